//! The write-ahead log beside a database: which pages its committed transactions wrote, and where they are.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::bytes::u32_at;

/// How a log begins; the last bit tells the order of bytes in its checksums.
const MAGIC: u32 = 0x377f_0682;
const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// What a log holds.
pub(super) struct Committed {
    pub(super) page_bytes: usize,
    /// How many pages the database has after the last transaction.
    pub(super) pages: u32,
    /// Where in the log the last copy of each page is.
    pub(super) places: HashMap<u32, u64>,
}

/// What is committed in `log`; nothing, if no transaction is.
pub(super) fn committed(log: &File) -> io::Result<Option<Committed>> {
    let mut header = [0; HEADER_BYTES as usize];
    if !read(log, &mut header, 0)? || u32_at(&header, 0) & !1 != MAGIC {
        return Ok(None);
    }
    let mut sum = Checksum { is_big: u32_at(&header, 0) & 1 == 1, sums: [0; 2] };
    sum.add(header.get(..24).unwrap_or_default());
    let page_bytes = u32_at(&header, 8) as usize;
    let is_right = sum.sums == [u32_at(&header, 24), u32_at(&header, 28)];
    if !is_right || !page_bytes.is_power_of_two() || !(512..=1 << 16).contains(&page_bytes) {
        return Ok(None);
    }
    let mut committed: Option<Committed> = None;
    let mut open: HashMap<u32, u64> = HashMap::new();
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let mut place = HEADER_BYTES;
    // The first frame that does not fit is where the log ends: what stands behind it is of an older one.
    while read(log, &mut frame, place)? {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        sum.add(head.get(..8).unwrap_or_default());
        sum.add(page);
        let is_of_this_log = head.get(8..16) == header.get(16..24);
        if !is_of_this_log || sum.sums != [u32_at(head, 16), u32_at(head, 20)] {
            break;
        }
        open.insert(u32_at(head, 0), place + FRAME_HEADER_BYTES as u64);
        let pages = u32_at(head, 4);
        if pages > 0 {
            let all =
                committed.get_or_insert_with(|| Committed { page_bytes, pages, places: HashMap::new() });
            all.pages = pages;
            all.places.extend(open.drain());
        }
        place += frame.len() as u64;
    }
    Ok(committed)
}

/// Whether there was as much to read.
fn read(file: &File, into: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(into, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Of all that came before.
struct Checksum {
    is_big: bool,
    sums: [u32; 2],
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let number = |bytes: &[u8]| {
            let number = u32_at(bytes, 0);
            if self.is_big { number } else { number.swap_bytes() }
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
