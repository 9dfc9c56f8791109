//! Reading single records of a sealed segment from its file, a window at a time: nothing is mapped, so nothing of the
//! segment stays in this process's memory, and a sector that cannot be read is an error.
//!
//! Invariant: the file stays open, so that its bytes can be read after it was removed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::{Corruption, LogError};
use crate::record::{HEADER_BYTES, MessageView, le_u32};
use crate::segment::Segment;

/// Adjacent records come with one read; a larger window would mostly be wasted where few messages are live.
const WINDOW_BYTES: usize = 16 << 10;

/// Reader of single records; see the module.
#[derive(Debug)]
pub(crate) struct RecordReader {
    segment: Arc<Segment>,
    file: File,
    window: Vec<u8>,
    /// Where the window begins in the file.
    at: u64,
}

impl RecordReader {
    pub(crate) fn open(segment: Arc<Segment>) -> Result<RecordReader, LogError> {
        let file = File::open(segment.path()).map_err(|error| LogError::io("open", segment.path(), error))?;
        Ok(RecordReader { segment, file, window: Vec::new(), at: 0 })
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The message at `offset` after checks of its position and both its checksums. Blocks.
    pub(crate) fn message(&mut self, offset: u32) -> Result<MessageView<'_>, LogError> {
        let length = self.bytes(offset, HEADER_BYTES)?.first_chunk::<4>().map_or(0, |length| le_u32(length));
        let segment = Arc::clone(&self.segment);
        let record = self.bytes(offset, length as usize)?;
        segment.check_record(record, offset)
    }

    /// So many bytes from an offset on, or as many as the segment has.
    fn bytes(&mut self, offset: u32, length: usize) -> Result<&[u8], LogError> {
        let left = self.segment.readable().saturating_sub(u64::from(offset)) as usize;
        let length = length.min(left);
        let begin = u64::from(offset).checked_sub(self.at).map_or(usize::MAX, |begin| begin as usize);
        if begin.saturating_add(length) <= self.window.len() {
            return Ok(self.window.get(begin..begin + length).unwrap_or_default());
        }
        // The memory of one large record is not kept.
        self.window.clear();
        self.window.shrink_to(WINDOW_BYTES);
        self.window.resize(length.max(WINDOW_BYTES).min(left), 0);
        self.at = u64::from(offset);
        if let Err(error) = self.file.read_exact_at(&mut self.window, self.at) {
            self.window.clear();
            return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::IO | Errno::HWPOISON) => self.segment.corrupt(self.at, Corruption::Unreadable),
                _ if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    self.segment.corrupt(self.at, Corruption::Short)
                }
                _ => LogError::io("read", self.segment.path(), error),
            });
        }
        Ok(self.window.get(..length).unwrap_or_default())
    }
}
