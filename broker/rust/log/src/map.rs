//! Read-only maps of files: the crate's only `unsafe`.
//!
//! Invariants: a file is never truncated while it is mapped (a log creates its files at their full size and only ever
//! unlinks them), and bytes that are still being written are not read (readers stay below a segment's end, which moves
//! only after the write returned).

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};
use rustix::io::Errno;

/// A whole file, mapped for reading.
#[derive(Debug)]
pub(crate) struct Map {
    map: Mmap,
}

impl Map {
    pub(crate) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: the log's files keep their size while they exist, and bytes below a segment's end never change; bytes
        // above it are not read (see the module's head). A file truncated by another program is out of scope.
        let map = unsafe { MmapOptions::new().map(file)? };
        Ok(Map { map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Whether all pages of a range are in the page cache, so that reading them does not block. `false` when unknown.
    pub(crate) fn is_resident(&self, offset: usize, len: usize) -> bool {
        let Some(range) = offset.checked_add(len).and_then(|end| self.map.get(offset..end)) else { return false };
        let page_bytes = rustix::param::page_size();
        let inside = range.as_ptr() as usize % page_bytes;
        let start = range.as_ptr().wrapping_sub(inside);
        let mut pages = vec![0_u8; (inside + len).div_ceil(page_bytes)];
        // SAFETY: `start` is the page that the range begins in and is in the map, which begins at a page; the call only
        // reads the state of the pages from there to the range's end and writes one byte for each of them, which
        // `pages` has.
        let result = unsafe { libc::mincore(start.cast_mut().cast(), inside + len, pages.as_mut_ptr()) };
        result == 0 && pages.iter().all(|page| page & 1 == 1)
    }

    /// Takes the pages of a range out of this process's memory; the next access finds the same bytes.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        // A needless page is harmless, so a failure is too. SAFETY: the map is of a file and only for reading: a
        // dropped page is read from the file again.
        let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, len) };
    }

    /// Brings the pages of a range into memory; a sector that cannot be read is an error here instead of a signal later.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        match self.map.advise_range(Advice::PopulateRead, offset, len) {
            // Kernels before 5.14 do not know the advice; the first touch then reads.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            other => other,
        }
    }
}

/// Whether an error is the kernel's for unreadable sectors; any other may be temporary.
pub(crate) fn is_bad_sector(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::FAULT | Errno::IO | Errno::HWPOISON))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::Map;

    /// How many pages of a map are in this process's memory.
    fn pages_of(map: &Map) -> usize {
        let begins = format!("{:x}-", map.bytes().as_ptr() as usize);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let own = smaps.lines().skip_while(|line| !line.starts_with(&begins));
        let resident = own.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 4
    }

    #[test]
    fn released_pages_leave_this_process_and_read_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        let map = Map::of(&file).unwrap();
        map.populate(0, 1 << 20).unwrap();
        assert_eq!(pages_of(&map), 256);

        map.release(0, 1 << 20);

        assert_eq!(pages_of(&map), 0);
        assert!(map.bytes().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn what_was_just_written_is_resident_and_what_lies_outside_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();

        let map = Map::of(&file).unwrap();

        assert!(map.is_resident(0, 10_000));
        assert!(map.is_resident(5_000, 100));
        assert!(!map.is_resident(9_000, 2_000));
    }
}
