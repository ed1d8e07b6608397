//! Reads the write-ahead log of a database: which pages its committed transactions wrote, and at which offsets.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::bytes::u32_at;

/// The first bytes of a log. The last bit tells the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The committed contents of a log.
pub(super) struct Committed {
    pub(super) page_bytes: usize,
    /// The number of pages of the database after the last transaction.
    pub(super) pages: u32,
    /// The offset of the last copy of each page.
    pub(super) offsets: HashMap<u32, u64>,
}

/// Finds the committed pages of `log`. `None` if it has no committed transaction.
pub(super) fn committed(log: &File) -> io::Result<Option<Committed>> {
    let mut header = [0; HEADER_BYTES as usize];
    if !read(log, &mut header, 0)? || u32_at(&header, 0) & !1 != MAGIC {
        return Ok(None);
    }
    let mut sum = Checksum { is_big_endian: u32_at(&header, 0) & 1 == 1, sums: [0; 2] };
    sum.add(header.get(..24).unwrap_or_default());
    let page_bytes = u32_at(&header, 8) as usize;
    let is_valid = sum.sums == [u32_at(&header, 24), u32_at(&header, 28)];
    if !is_valid || !page_bytes.is_power_of_two() || !(512..=1 << 16).contains(&page_bytes) {
        return Ok(None);
    }
    let mut committed: Option<Committed> = None;
    let mut uncommitted: HashMap<u32, u64> = HashMap::new();
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let mut offset = HEADER_BYTES;
    // The first frame with a wrong checksum ends the log; frames after it belong to an older log.
    while read(log, &mut frame, offset)? {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        sum.add(head.get(..8).unwrap_or_default());
        sum.add(page);
        let is_current = head.get(8..16) == header.get(16..24);
        if !is_current || sum.sums != [u32_at(head, 16), u32_at(head, 20)] {
            break;
        }
        uncommitted.insert(u32_at(head, 0), offset + FRAME_HEADER_BYTES as u64);
        let pages = u32_at(head, 4);
        if pages > 0 {
            let total =
                committed.get_or_insert_with(|| Committed { page_bytes, pages, offsets: HashMap::new() });
            total.pages = pages;
            total.offsets.extend(uncommitted.drain());
        }
        offset += frame.len() as u64;
    }
    Ok(committed)
}

/// Fills `into`. Returns false if the file is too short.
fn read(file: &File, into: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(into, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The running checksum of a log.
struct Checksum {
    is_big_endian: bool,
    sums: [u32; 2],
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let number = |bytes: &[u8]| {
            let number = u32_at(bytes, 0);
            if self.is_big_endian { number } else { number.swap_bytes() }
        };
        let [mut first, mut second] = self.sums;
        for pair in bytes.chunks_exact(8) {
            let (left, right) = pair.split_at(4);
            first = first.wrapping_add(number(left)).wrapping_add(second);
            second = second.wrapping_add(number(right)).wrapping_add(first);
        }
        self.sums = [first, second];
    }
}
