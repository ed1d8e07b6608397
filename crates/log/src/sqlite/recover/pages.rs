//! The pages of a database file, without SQLite: each as the last committed transaction left it.
//!
//! The file format is described at <https://www.sqlite.org/fileformat2.html>. Nothing here is written, and nothing
//! that a page says is believed before it was checked.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::super::open_files::beside;
use super::bytes::{u16_at, u32_at};
use std::path::Path;

/// What every database file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The page size of databases that parlor makes, for a file that does not tell its own.
const PAGE_BYTES: usize = 4096;

/// The byte that SQLite locks; the page with it holds nothing.
const LOCK_BYTE: u64 = 1 << 30;

/// What a page that is free is called in the map of pages.
const FREE_PAGE: u8 = 2;

/// The same for the first page of a table, of which there are some in every database.
const ROOT_PAGE: u8 = 1;

/// All pages that a database has.
pub(super) struct Pages {
    file: File,
    /// The write-ahead log, with the place of the last copy of each page in it.
    log: Option<(File, HashMap<u32, u64>)>,
    bytes: usize,
    usable: usize,
    count: u32,
    /// Those that hold no rows: free ones, the maps of pages and the one with the lock.
    skipped: HashSet<u32>,
}

impl Pages {
    /// Those of the database at `path` and of the write-ahead log beside it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut header = [0; 100];
        let has_header = file.read_exact_at(&mut header, 0).is_ok() && header.starts_with(MAGIC);
        let log = match File::open(beside(path, "-wal")) {
            Ok(log) => super::write_ahead::committed(&log)?.map(|committed| (log, committed)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let told = if has_header { page_bytes(u16_at(&header, 16)) } else { None };
        let bytes = told.or(log.as_ref().map(|(_, log)| log.page_bytes)).unwrap_or(PAGE_BYTES);
        let log = log.filter(|(_, log)| log.page_bytes == bytes);
        let in_file = u32::try_from(file.metadata()?.len() / bytes as u64).unwrap_or(u32::MAX);
        let count = log.as_ref().map_or(in_file, |(_, log)| log.pages);
        let log = log.map(|(file, log)| (file, log.places));
        let mut pages = Self { file, log, bytes, usable: bytes, count, skipped: HashSet::new() };
        pages.learn();
        Ok(pages)
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How much of each page is used.
    pub(super) fn usable(&self) -> usize {
        self.usable
    }

    /// The numbers of those that can hold rows.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.count).filter(|number| !self.skipped.contains(number))
    }

    /// Reads a page, if it is there.
    pub(super) fn read(&self, number: u32) -> Option<Vec<u8>> {
        if number == 0 || number > self.count {
            return None;
        }
        let mut page = vec![0; self.bytes];
        let logged = self.log.as_ref().and_then(|(log, places)| Some((log, *places.get(&number)?)));
        let read = match logged {
            Some((log, place)) => log.read_exact_at(&mut page, place),
            None => self.file.read_exact_at(&mut page, u64::from(number - 1) * self.bytes as u64),
        };
        read.ok().map(|()| page)
    }

    /// Finds out which pages hold no rows, from the header, the list of free pages and the map of pages: a page
    /// that was freed may still have what was deleted.
    fn learn(&mut self) {
        let first = self.read(1).filter(|page| page.starts_with(MAGIC));
        let reserved = first.as_ref().and_then(|page| page.get(20)).copied().unwrap_or(0);
        // SQLite itself takes no page of which less than 480 bytes can be used.
        self.usable = self.bytes.saturating_sub(usize::from(reserved)).max(480);
        self.skipped.insert(u32::try_from(LOCK_BYTE / self.bytes as u64 + 1).unwrap_or(u32::MAX));
        if let Some(first) = &first {
            self.learn_free_list(u32_at(first, 32));
        }
        let is_mapped = first.as_ref().map_or_else(|| self.looks_mapped(), |first| u32_at(first, 52) > 0);
        if is_mapped {
            self.learn_map();
        }
    }

    fn learn_free_list(&mut self, mut trunk: u32) {
        // A damaged list may lead in circles.
        while trunk > 1 && self.skipped.insert(trunk) {
            let Some(page) = self.read(trunk) else { break };
            let leaves = (u32_at(&page, 4) as usize).min(self.usable / 4 - 2);
            self.skipped.extend((0..leaves).map(|leaf| u32_at(&page, 8 + 4 * leaf)));
            trunk = u32_at(&page, 0);
        }
    }

    /// Whether the second page looks like a map that says of the third that a table begins there.
    fn looks_mapped(&self) -> bool {
        self.read(2).is_some_and(|page| page.first() == Some(&ROOT_PAGE) && u32_at(&page, 1) == 0)
    }

    fn learn_map(&mut self) {
        let entries = u32::try_from(self.usable / 5).unwrap_or(u32::MAX);
        let lock = u32::try_from(LOCK_BYTE / self.bytes as u64 + 1).unwrap_or(u32::MAX);
        let mut place = 2;
        while place <= self.count {
            let map = if place == lock { place + 1 } else { place };
            self.skipped.insert(map);
            if let Some(page) = self.read(map) {
                for (entry, number) in page.chunks_exact(5).zip(map + 1..map.saturating_add(entries + 1)) {
                    // Of a free page no parent is known; that tells it from damage.
                    if entry.first() == Some(&FREE_PAGE) && u32_at(entry, 1) == 0 {
                        self.skipped.insert(number);
                    }
                }
            }
            place = place.saturating_add(entries + 1);
        }
    }
}

/// The page size that a header tells, if it can be one.
pub(super) fn page_bytes(told: u16) -> Option<usize> {
    match told {
        1 => Some(1 << 16),
        512..=32768 if told.is_power_of_two() => Some(usize::from(told)),
        _ => None,
    }
}
