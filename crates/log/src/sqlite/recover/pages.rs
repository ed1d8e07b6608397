//! Reads the pages of a database file without SQLite, each as the last committed transaction left it.
//!
//! <https://www.sqlite.org/fileformat2.html> describes the file format. This module writes nothing, and checks every number
//! on a page before it uses it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::super::open_files::sibling;
use super::bytes::{u16_at, u32_at};
use std::path::Path;

/// The first bytes of every database file.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The page size of databases that parlor creates. Used if the file header is damaged.
const PAGE_BYTES: usize = 4096;

/// The offset of the bytes that SQLite locks. The page with them contains no data.
const LOCK_BYTE: u64 = 1 << 30;

/// The type of a free page in the pointer map.
const FREE_PAGE: u8 = 2;

/// The type of a b-tree's root page in the pointer map.
const ROOT_PAGE: u8 = 1;

/// The pages of a database.
pub(super) struct Pages {
    file: File,
    /// The write-ahead log, with the offset of the last copy of each page in it.
    log: Option<(File, HashMap<u32, u64>)>,
    page_bytes: usize,
    /// The page size without the reserved bytes at the end of each page.
    usable: usize,
    count: u32,
    /// Pages without rows: free pages, pointer maps and the page with the lock bytes.
    skipped: HashSet<u32>,
}

impl Pages {
    /// Opens the database at `path` and the write-ahead log next to it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut header = [0; 100];
        let has_header = file.read_exact_at(&mut header, 0).is_ok() && header.starts_with(MAGIC);
        let log = match File::open(sibling(path, "-wal")) {
            Ok(log) => super::write_ahead::committed(&log)?.map(|committed| (log, committed)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let in_header = if has_header { valid_page_size(u16_at(&header, 16)) } else { None };
        let page_bytes = in_header.or(log.as_ref().map(|(_, log)| log.page_bytes)).unwrap_or(PAGE_BYTES);
        let log = log.filter(|(_, log)| log.page_bytes == page_bytes);
        let in_file = u32::try_from(file.metadata()?.len() / page_bytes as u64).unwrap_or(u32::MAX);
        let count = log.as_ref().map_or(in_file, |(_, log)| log.pages);
        let log = log.map(|(file, log)| (file, log.offsets));
        let mut pages = Self { file, log, page_bytes, usable: page_bytes, count, skipped: HashSet::new() };
        pages.find_skipped();
        Ok(pages)
    }

    /// The number of pages.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How many bytes of each page can contain data.
    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    /// The numbers of the pages that can contain rows.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.count).filter(|number| !self.skipped.contains(number))
    }

    /// Reads a page. `None` if it does not exist.
    pub(super) fn read(&self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        let mut page = vec![0; self.page_bytes];
        let logged = self.log.as_ref().and_then(|(log, offsets)| Some((log, *offsets.get(&number)?)));
        let read = match logged {
            Some((log, offset)) => log.read_exact_at(&mut page, offset),
            None => self.file.read_exact_at(&mut page, u64::from(number - 1) * self.page_bytes as u64),
        };
        read.ok().map(|()| page)
    }

    /// Finds the pages without rows, from the header, the list of free pages and the pointer map. Free pages must be
    /// skipped because they may still contain deleted rows.
    fn find_skipped(&mut self) {
        let first = self.read(1).filter(|page| page.starts_with(MAGIC));
        let reserved = first.as_ref().and_then(|page| page.get(20)).copied().unwrap_or(0);
        // SQLite requires at least 480 usable bytes.
        self.usable = self.page_bytes.saturating_sub(usize::from(reserved)).max(480);
        self.skipped.insert(u32::try_from(LOCK_BYTE / self.page_bytes as u64 + 1).unwrap_or(u32::MAX));
        if let Some(first) = &first {
            self.skip_free_list(u32_at(first, 32));
        }
        let is_mapped = first.as_ref().map_or_else(|| self.looks_mapped(), |first| u32_at(first, 52) > 0);
        if is_mapped {
            self.skip_mapped();
        }
    }

    fn skip_free_list(&mut self, mut trunk: u32) {
        // A damaged list may contain a cycle.
        while trunk > 1 && self.skipped.insert(trunk) {
            let Some(page) = self.read(trunk) else { break };
            let leaves = (u32_at(&page, 4) as usize).min(self.usable / 4 - 2);
            self.skipped.extend((0..leaves).map(|leaf| u32_at(&page, 8 + 4 * leaf)));
            trunk = u32_at(&page, 0);
        }
    }

    /// Whether the second page looks like a pointer map whose first entry is a root page.
    fn looks_mapped(&self) -> bool {
        self.read(2).is_some_and(|page| page.first() == Some(&ROOT_PAGE) && u32_at(&page, 1) == 0)
    }

    fn skip_mapped(&mut self) {
        let entries = u32::try_from(self.usable / 5).unwrap_or(u32::MAX);
        let lock = u32::try_from(LOCK_BYTE / self.page_bytes as u64 + 1).unwrap_or(u32::MAX);
        let mut position = 2;
        while position <= self.count {
            let map = if position == lock { position + 1 } else { position };
            self.skipped.insert(map);
            if let Some(page) = self.read(map) {
                for (entry, number) in page.chunks_exact(5).zip(map + 1..map.saturating_add(entries + 1)) {
                    // The entry of a free page has no parent. Anything else is damage.
                    if entry.first() == Some(&FREE_PAGE) && u32_at(entry, 1) == 0 {
                        self.skipped.insert(number);
                    }
                }
            }
            position = position.saturating_add(entries + 1);
        }
    }
}

/// Decodes the page size of a file header. `None` if it is not a valid one.
pub(super) fn valid_page_size(encoded: u16) -> Option<usize> {
    match encoded {
        1 => Some(1 << 16),
        512..=32768 if encoded.is_power_of_two() => Some(usize::from(encoded)),
        _ => None,
    }
}
