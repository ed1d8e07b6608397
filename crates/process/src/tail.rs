//! The last output of a process, with the offset of each byte.
//!
//! An offset counts the bytes of all streams of the process, in the order in which parlor read them. Each stream has its
//! own limit, so that a stream with much output does not displace another one. The kept output may therefore have gaps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::OutputStream;

/// How many runs of one stream are kept. A run costs memory too, and a process that writes single bytes to two streams in
/// turn makes a run of each byte.
pub const MAX_RETAINED_RUNS: usize = 16 * 1024;

/// Output without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputChunk {
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes; never empty.
    pub bytes: Vec<u8>,
}

/// The retained output of all streams of a process. An offset counts the bytes of all streams, in the order in which
/// [`ChildEvent::Output`](crate::ChildEvent::Output) reports them.
#[derive(Clone, Debug)]
pub struct RetainedOutput(Arc<Mutex<Tail>>);

impl RetainedOutput {
    pub(crate) fn new(tail: Arc<Mutex<Tail>>) -> Self {
        Self(tail)
    }

    /// The offset of the first retained byte that is not before `offset`; the end of the output if there is none.
    pub fn first_offset(&self, offset: u64) -> u64 {
        self.tail().first_offset(offset)
    }

    /// Returns the output from `offset` on, and moves the offset to the end. Output that is not retained any more is
    /// missing between two chunks, or before the first one.
    pub fn read_since(&self, offset: &mut u64) -> Vec<OutputChunk> {
        let tail = self.tail();
        let chunks = tail.since(*offset);
        *offset = tail.end();
        chunks
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the last `limit` bytes of each stream.
#[derive(Debug)]
pub(crate) struct Tail {
    limit: usize,
    /// The offset of the next byte.
    end: u64,
    streams: Vec<(OutputStream, StreamTail)>,
}

/// The last bytes of one stream.
#[derive(Debug, Default)]
struct StreamTail {
    bytes: VecDeque<u8>,
    /// The offsets of `bytes`, in ascending order. There is one run as long as no other stream has output.
    runs: VecDeque<Run>,
}

/// Bytes of one stream with successive offsets.
#[derive(Debug)]
struct Run {
    offset: u64,
    len: usize,
}

impl Tail {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, end: 0, streams: Vec::new() }
    }

    pub(crate) fn push(&mut self, stream: OutputStream, piece: &[u8]) {
        self.end += piece.len() as u64;
        let kept = &piece[piece.len() - piece.len().min(self.limit)..];
        let index = self.streams.iter().position(|(name, _)| *name == stream).unwrap_or_else(|| {
            self.streams.push((stream, StreamTail::default()));
            self.streams.len() - 1
        });
        let tail = &mut self.streams[index].1;
        tail.drop_oldest((tail.bytes.len() + kept.len()).saturating_sub(self.limit));
        tail.push(self.end - kept.len() as u64, kept);
    }

    /// The offset of the next byte that the process will write.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The offset of the first kept byte that is not before `offset`; the end if there is none.
    pub(crate) fn first_offset(&self, offset: u64) -> u64 {
        let first_runs = self.streams.iter().filter_map(|(_, tail)| tail.runs.get(tail.first_run(offset)));
        first_runs.map(|run| run.offset.max(offset)).min().unwrap_or(self.end)
    }

    /// The kept output from `offset` on, in as few chunks as possible: there is a gap between two chunks.
    pub(crate) fn since(&self, offset: u64) -> Vec<OutputChunk> {
        let mut pieces: Vec<_> = self.streams.iter().flat_map(|(_, tail)| tail.since(offset)).collect();
        pieces.sort_unstable_by_key(|(offset, _)| *offset);
        let mut chunks: Vec<OutputChunk> = Vec::new();
        for (offset, bytes) in pieces {
            match chunks.last_mut() {
                Some(last) if last.end() == offset => last.bytes.extend(bytes),
                Some(_) | None => chunks.push(OutputChunk { offset, bytes: bytes.copied().collect() }),
            }
        }
        chunks
    }

    /// The kept bytes of one stream.
    pub(crate) fn stream_bytes(&self, stream: OutputStream) -> Vec<u8> {
        let found = self.streams.iter().find(|(name, _)| *name == stream);
        found.map_or_else(Vec::new, |(_, tail)| tail.bytes.iter().copied().collect())
    }
}

impl OutputChunk {
    /// The offset of the byte after the chunk.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Run {
    fn end(&self) -> u64 {
        self.offset + self.len as u64
    }
}

impl StreamTail {
    fn push(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.runs.back_mut() {
            Some(last) if last.end() == offset => last.len += bytes.len(),
            Some(_) | None => {
                if self.runs.len() == MAX_RETAINED_RUNS {
                    self.drop_oldest(self.runs.front().map_or(0, |oldest| oldest.len));
                }
                self.runs.push_back(Run { offset, len: bytes.len() });
            }
        }
        self.bytes.extend(bytes);
    }

    fn drop_oldest(&mut self, mut count: usize) {
        self.bytes.drain(..count);
        while count > 0
            && let Some(oldest) = self.runs.front_mut()
        {
            let dropped = count.min(oldest.len);
            oldest.offset += dropped as u64;
            oldest.len -= dropped;
            count -= dropped;
            if oldest.len == 0 {
                self.runs.pop_front();
            }
        }
    }

    /// The index of the first run that does not end before `offset`.
    fn first_run(&self, offset: u64) -> usize {
        self.runs.partition_point(|run| run.end() <= offset)
    }

    /// The kept bytes from `offset` on, with their offsets.
    fn since(&self, offset: u64) -> impl Iterator<Item = (u64, impl Iterator<Item = &u8>)> {
        let runs = self.runs.range(self.first_run(offset)..);
        // Counted from the end, because a reader that follows the output needs only the last run.
        let mut start = self.bytes.len() - runs.clone().map(|run| run.len).sum::<usize>();
        runs.map(move |run| {
            let first = run.offset.max(offset);
            let end = start + run.len;
            let len = usize::try_from(run.end() - first).expect("a part of a run is not longer than it");
            start = end;
            (first, self.bytes.range(end - len..end))
        })
    }
}

#[cfg(test)]
mod tests {
    use OutputStream::{Stderr, Stdout};

    use super::*;

    fn tail(limit: usize, pieces: &[(OutputStream, &str)]) -> Tail {
        let mut tail = Tail::new(limit);
        for (stream, piece) in pieces {
            tail.push(*stream, piece.as_bytes());
        }
        tail
    }

    fn chunks(tail: &Tail, offset: u64) -> Vec<(u64, String)> {
        let text = |chunk: OutputChunk| (chunk.offset, String::from_utf8(chunk.bytes).unwrap());
        tail.since(offset).into_iter().map(text).collect()
    }

    #[test]
    fn the_oldest_bytes_are_dropped_first() {
        let kept = |pieces: &[&str]| {
            let pieces: Vec<_> = pieces.iter().map(|piece| (Stdout, *piece)).collect();
            tail(4, &pieces).stream_bytes(Stdout)
        };
        assert_eq!(kept(&["abc", "def"]), b"cdef");
        assert_eq!(kept(&["abcdefgh"]), b"efgh");
        assert_eq!(kept(&["ab"]), b"ab");
        assert_eq!(kept(&["abcd", "", "e"]), b"bcde");
    }

    #[test]
    fn a_reader_can_begin_at_each_kept_offset() {
        let tail = tail(4, &[(Stdout, "abc"), (Stdout, "def")]);
        for (offset, first, expected) in
            [(0, 2, "cdef"), (2, 2, "cdef"), (3, 3, "def"), (5, 5, "f"), (6, 6, ""), (u64::MAX, 6, "")]
        {
            let text: String = chunks(&tail, offset).into_iter().map(|(_, text)| text).collect();
            assert_eq!((tail.first_offset(offset), text.as_str()), (first, expected), "{offset}");
        }
        assert_eq!(tail.end(), 6);
    }

    #[test]
    fn a_limit_of_zero_keeps_nothing_and_counts_all() {
        let tail = tail(0, &[(Stdout, "abc")]);
        assert_eq!((chunks(&tail, 0), tail.first_offset(0), tail.end()), (Vec::new(), 3, 3));
    }

    #[test]
    fn streams_are_read_in_the_order_of_their_output() {
        let tail = tail(8, &[(Stdout, "ab"), (Stderr, "12"), (Stdout, "cd"), (Stderr, "3")]);
        assert_eq!(chunks(&tail, 0), [(0, "ab12cd3".to_owned())]);
        assert_eq!(chunks(&tail, 3), [(3, "2cd3".to_owned())]);
        assert_eq!((tail.stream_bytes(Stdout), tail.stream_bytes(Stderr)), (b"abcd".into(), b"123".into()));
    }

    #[test]
    fn a_stream_with_much_output_leaves_the_other_one_with_a_gap() {
        let tail = tail(4, &[(Stderr, "12"), (Stdout, "abcd"), (Stderr, "3"), (Stdout, "ef")]);
        assert_eq!(chunks(&tail, 0), [(0, "12".to_owned()), (4, "cd3ef".to_owned())]);
        assert_eq!([0, 1, 2, 4, 6].map(|offset| tail.first_offset(offset)), [0, 1, 4, 4, 6]);
    }

    #[test]
    fn any_cut_of_the_output_gives_each_kept_byte_once() {
        let mut tail = Tail::new(16);
        let mut written = Vec::new();
        for step in 0..200_u8 {
            let stream = if step % 3 == 0 { Stderr } else { Stdout };
            let piece = vec![step; usize::from(step) % 7];
            tail.push(stream, &piece);
            written.extend(piece);
            for offset in 0..=tail.end() {
                let chunks = tail.since(offset);
                assert_eq!(
                    chunks.first().map_or(tail.end(), |chunk| chunk.offset),
                    tail.first_offset(offset)
                );
                assert!(chunks.is_sorted_by(|one, next| one.end() < next.offset), "{chunks:?}");
                for chunk in &chunks {
                    let range = chunk.offset.max(offset) as usize..chunk.end() as usize;
                    assert_eq!(chunk.bytes, written[range]);
                }
            }
            let kept: usize = tail.since(0).iter().map(|chunk| chunk.bytes.len()).sum();
            assert_eq!(kept, [Stdout, Stderr].map(|stream| tail.stream_bytes(stream).len()).iter().sum());
        }
    }

    #[test]
    fn the_number_of_runs_is_limited() {
        let mut tail = Tail::new(1 << 20);
        for _ in 0..=MAX_RETAINED_RUNS {
            tail.push(Stdout, b"o");
            tail.push(Stderr, b"e");
        }
        let kept = MAX_RETAINED_RUNS as u64;
        assert_eq!((tail.first_offset(0), tail.end()), (2, 2 * kept + 2));
        assert_eq!(tail.stream_bytes(Stdout).len(), MAX_RETAINED_RUNS);
    }
}
