//! Lines on their way to stderr.
//!
//! Whoever reads them may stop: a pager that waits, a pipe that is full. Those who have something to say never wait for
//! that. (`tracing-appender` does the same, and brings seven crates for files that turn over by date.)

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How many lines may wait to be read. Those that come on top are lost, and their number is told.
pub(super) const MAX_WAITING_LINES: usize = 1024;

/// How long the end of the program waits for the last lines to be taken.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// Takes lines, and never waits. Clones write to the same place.
#[derive(Clone)]
pub(super) struct Journal {
    queue: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

enum Item {
    Line(Vec<u8>),
    /// All lines before this are written: say so.
    Mark(SyncSender<()>),
}

impl Journal {
    /// Writes to `out` from a thread of its own.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, items) = sync_channel(MAX_WAITING_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        thread::Builder::new().name("journal".to_owned()).spawn(move || write_all(&items, &counted, out))?;
        Ok(Self { queue, lost })
    }

    /// Waits until all lines so far are written, but not for ever.
    pub(super) fn finish(&self) {
        let (written, is_written) = sync_channel(1);
        if self.queue.try_send(Item::Mark(written)).is_ok() {
            // Whoever reads too slowly has been waited for.
            let _ = is_written.recv_timeout(LAST_LINES_WAIT);
        }
    }
}

impl Write for Journal {
    /// Takes a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Item::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(items: &Receiver<Item>, lost: &AtomicU64, mut out: impl Write) {
    for item in items {
        // A stderr that is closed has nobody to tell.
        let _ = match item {
            Item::Line(line) => out.write_all(&line),
            Item::Mark(written) => written.try_send(()).map_err(io::Error::other),
        };
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = out.write_all(format!("{lost} lines were lost here: they were not read\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes nothing until it may, then passes on what it gets.
    struct Gate {
        open: Receiver<()>,
        through: SyncSender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once the other end is gone it stays open.
            let _ = self.open.recv();
            self.through.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_writes_never_waits_and_what_is_lost_is_counted() {
        let (key, open) = sync_channel::<()>(0);
        let (through, written) = sync_channel(4 * MAX_WAITING_LINES);
        let mut journal = Journal::start(Gate { open, through }).unwrap();
        let lines = 3 * MAX_WAITING_LINES;
        for number in 0..lines {
            journal.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        drop(key);
        let mut told = String::new();
        let is_lost = |told: &str| told.contains(" lines were lost here");
        while !is_lost(&told) {
            told.push_str(&written.recv().unwrap());
        }
        journal.finish();
        told.extend(written.try_iter());
        let (kept, notes): (Vec<&str>, Vec<&str>) =
            told.lines().partition(|line| line.parse::<usize>().is_ok());
        let lost: usize =
            notes.iter().map(|note| note.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!((kept.len() + lost, kept[0]), (lines, "0"));
        assert!(kept.len() >= MAX_WAITING_LINES, "{}", kept.len());
    }

    #[test]
    fn the_last_lines_are_written_before_the_end() {
        let (through, written) = sync_channel(8);
        let (_, open) = sync_channel(0);
        let mut journal = Journal::start(Gate { open, through }).unwrap();
        journal.write_all(b"goodbye\n").unwrap();
        journal.finish();
        assert_eq!(written.try_recv().as_deref(), Ok("goodbye\n"));
    }
}
