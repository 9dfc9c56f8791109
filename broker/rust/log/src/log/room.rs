//! Disk space: messages are refused while the free space is needed to drain the disk.
//!
//! Invariants: a message never takes the space for two segments of the current size, and for a start and a checkpoint
//! of all logs of the disk; settlements, directories and checkpoints may. Free space is checked when a segment is
//! begun, for all of it, and again for each step that is reserved: other programs may have filled the disk meanwhile.
//! Draining a full disk takes as little space as possible, and so does a start, on any disk: there may be hundreds of
//! logs on it.

use std::sync::atomic::Ordering;

use super::Log;
use crate::active::Size;
use crate::error::LogError;
use crate::fold_ticket::FoldTicket;
use crate::format::Format;
use crate::segment::SEGMENT_HEADER_BYTES;

/// Records that drain a full disk reserve space in steps of this size.
const SMALL_STEP_BYTES: u64 = 16 << 10;

/// Purpose of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Message,
    /// Frees the disk in the end, or maintains the log.
    Upkeep,
}

/// Free and needed disk space of a log, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free space of the file system; `None` when unknown.
    pub free: Option<u64>,
    /// Below this messages are refused.
    pub needed: u64,
    /// Space that the next segment takes on top of that.
    pub next: u64,
}

impl Log {
    /// Returns the free and the needed space.
    #[must_use]
    pub fn room(&self) -> Room {
        let free = self.options.disk.space(&self.directory).ok().map(|space| space.free);
        let reserve = 2 * self.active.segment.bytes() + self.share.of_all();
        Room { free, needed: reserve.max(self.options.free_bytes_min), next: self.next_segment_bytes() }
    }

    /// A fold of all written records below the bound, so that recent settlements free their segments: the log rolls to another segment.
    /// It takes two of them, as the older checkpoint decides which segments go. `None` while another fold or a copy is
    /// running. It takes almost no space until more is appended, so that hundreds of emptied logs return their space.
    pub fn begin_whole_fold(&mut self) -> Result<Option<FoldTicket>, LogError> {
        if self.folding.load(Ordering::SeqCst) || self.holds.is_held() {
            return Ok(None);
        }
        if self.format() == Format::One {
            // A fold needs a record, also when nothing came since the last one.
            self.append_epoch(false)?;
        }
        let first = self.write()?;
        if first > self.active.segment.first() && self.bound() == first {
            self.begin_segment(first, self.smallest(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))?;
        }
        Ok(self.within_bound().checked_sub(1).and_then(|last| self.ticket(last, true)))
    }

    /// Reserves space in the active segment for a record that ends at an offset.
    pub(super) fn reserve_to(&mut self, end: u64, purpose: Purpose) -> Result<(), LogError> {
        if end <= self.active.reserved {
            return Ok(());
        }
        let whole = self.active.step_to(end);
        let Room { free, needed, .. } = self.room();
        let low = free.filter(|&free| free < needed.saturating_add(whole - self.active.reserved));
        let to = match (low, purpose) {
            (None, _) => whole,
            (Some(free), Purpose::Message) => {
                return Err(LogError::Full { path: self.directory.to_path_buf(), free, needed });
            }
            (Some(_), Purpose::Upkeep) => end.next_multiple_of(SMALL_STEP_BYTES).min(whole),
        };
        match self.active.reserve(self.options.disk.as_ref(), to) {
            Err(error) if error.is_full() && purpose == Purpose::Upkeep => {
                self.active.reserve(self.options.disk.as_ref(), end)
            }
            reserved => reserved,
        }
    }

    /// The size of the next segment, which should have `bytes` and must have `least`.
    pub(super) fn size_with_room(&self, bytes: u64, least: u64, purpose: Purpose) -> Result<Size, LogError> {
        let Room { free: Some(free), needed, .. } = self.room() else { return Ok(Size::stepped(bytes)) };
        if free >= needed.saturating_add(bytes) {
            return Ok(Size::stepped(bytes));
        }
        match purpose {
            Purpose::Message => Err(LogError::Full { path: self.directory.to_path_buf(), free, needed }),
            Purpose::Upkeep => Ok(self.smallest(bytes, least)),
        }
    }

    /// The smallest possible segment.
    pub(super) fn smallest(&self, bytes: u64, least: u64) -> Size {
        Size::bare(self.options.segment_bytes_min.min(bytes).max(least), least)
    }
}
