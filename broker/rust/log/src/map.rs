//! Read-only maps of files: the crate's only `unsafe`.
//!
//! What must stay true: a file is never made shorter while it is mapped (a log creates its files at their full size and
//! only ever unlinks them), and nobody reads bytes that are still being written (readers stay below a segment's end,
//! which moves only after the write returned).

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// A whole file, mapped for reading.
#[derive(Debug)]
pub(crate) struct Map {
    map: Mmap,
}

impl Map {
    pub(crate) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: the log's files keep their size while they live, and bytes below a segment's end never change; bytes
        // above it are not read (see the module's head). A file shortened by another program is outside what can be held.
        let map = unsafe { MmapOptions::new().map(file)? };
        Ok(Map { map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Brings the pages of a range into memory; a sector that cannot be read is an error here instead of a signal later.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        match self.map.advise_range(Advice::PopulateRead, offset, len) {
            // Kernels before 5.14 do not know the advice; the first touch then reads.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => Ok(()),
            other => other,
        }
    }
}
