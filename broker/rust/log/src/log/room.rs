//! Room on the disk: messages are refused while what is left is needed to drain it.
//!
//! What must stay true: a message never takes the last two segments of the current size and what all logs of the disk need
//! for a start and a checkpoint; settlements, directories and checkpoints may. Room is asked for when a segment is begun, for all of it, and again for each step that is
//! reserved of it: others may have filled the disk meanwhile. What drains a full disk takes as little of it as will do, and so
//! does a start, on any disk: there may be hundreds of logs on it.

use std::sync::atomic::Ordering;

use super::Log;
use crate::active::Size;
use crate::error::LogError;
use crate::fold_ticket::FoldTicket;
use crate::segment::SEGMENT_HEADER_BYTES;

/// What drains a full disk takes room in steps of this size.
const SMALL_STEP_BYTES: u64 = 16 << 10;

/// What a record is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Message,
    /// What frees the disk in the end, or keeps the log in order.
    Upkeep,
}

/// The room that a log finds and needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What the file system has; `None` when it does not say.
    pub free: Option<u64>,
    /// Below this messages are refused.
    pub needed: u64,
    /// What the next segment takes on top of that.
    pub next: u64,
}

impl Log {
    /// How much room there is, and how much there must be.
    #[must_use]
    pub fn room(&self) -> Room {
        let free = self.options.disk.space(&self.directory).ok().map(|space| space.free);
        let reserve = 2 * self.active.segment.bytes() + self.share.of_all();
        Room { free, needed: reserve.max(self.options.free_bytes_min), next: self.next_segment_bytes() }
    }

    /// A fold of everything that was written, so that what was settled just now frees its segments: the log goes on in
    /// another segment. It takes two of them, as the older checkpoint decides which segments go. `None` while another fold or
    /// a copy is under way. What it begins takes next to nothing until more is appended, so that hundreds of emptied logs
    /// give back what they held.
    pub fn begin_whole_fold(&mut self) -> Result<Option<FoldTicket>, LogError> {
        if self.folding.load(Ordering::SeqCst) || self.holds.is_held() {
            return Ok(None);
        }
        // Something to fold, also when nothing came since the last time.
        self.append_epoch(false)?;
        let first = self.write()?;
        self.begin_segment(first, self.smallest(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))?;
        Ok(self.sealed.len().checked_sub(1).and_then(|last| self.ticket(last)))
    }

    /// Reserves room in the active segment for what ends at an offset.
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

    /// The size of the next segment, that would have `bytes` and must have `least`.
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

    /// The smallest segment that will do.
    pub(super) fn smallest(&self, bytes: u64, least: u64) -> Size {
        Size::bare(self.options.segment_bytes_min.min(bytes).max(least), least)
    }
}
