//! Records between replicas: a leader reads them as bytes, and a follower checks and appends them.
//!
//! Invariants: a follower appends only records that were checked, at the log's end, with the bytes of its leader. An epoch begins with its record, once. A follower may go on in any epoch that its log ends in, also
//! one that is below those that were cut, because an epoch and a position have one record in all replicas.

use super::room::Purpose;
use super::{Log, Stage};
use crate::active::Size;
use crate::directory::Lookup;
use crate::error::LogError;
use crate::format::{Coding, Format};
use crate::record::{Decoded, Position, Record, decode_with};
use crate::records::{CheckedRecords, RecordsTicket};
use crate::segment::SEGMENT_HEADER_BYTES;

impl Log {
    /// The id that all replicas of the log share.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.log_id
    }

    /// The records from a position on, below another one, for a thread without the lock: those that one segment has. `None`
    /// where the log does not have them any more, because they were rewritten or removed.
    pub fn begin_records(&self, after: Position, until: Position) -> Result<Option<RecordsTicket>, LogError> {
        let until = until.min(self.written);
        if after >= until {
            return Ok(None);
        }
        let active = &self.active.segment;
        if active.first() <= after {
            return RecordsTicket::of(active, Some(&self.active.file), (after, until), None);
        }
        let at = self.sealed.partition_point(|sealed| sealed.end <= after);
        let Some(sealed) = self.sealed.get(at).filter(|sealed| sealed.segment.first() <= after) else {
            return Ok(None);
        };
        // A segment that was dead before a start may have lost its bytes by then: they never had to reach the disk.
        let may_be_lost = matches!(sealed.lookup, Lookup::Nothing) && sealed.end <= self.recovered.min(self.folded);
        if may_be_lost || sealed.segment.is_rewritten() || sealed.segment.format() == Format::One {
            return Ok(None);
        }
        RecordsTicket::of(&sealed.segment, None, (after, until.min(sealed.end)), self.gap_behind(at))
    }

    /// Appends records of an epoch at the log's end, as another replica that leads sent them. After a failure some of them may
    /// be appended, whole ones. Returns the position after them.
    ///
    /// # Errors
    /// `NotCopied` where they are for another place of the log; `OldEpoch` and `OtherEpoch` where their epoch has begun, or has
    /// not.
    pub fn append_records(&mut self, records: &CheckedRecords) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "a record of another replica" });
        }
        if self.stage == Stage::Closed {
            return Err(self.refusal());
        }
        let (epoch, first, newest) = (records.epoch, self.appended(), self.epochs.newest());
        let path = || self.directory.to_path_buf();
        if records.after() != first {
            return Err(LogError::NotCopied { path: path(), from: records.after().0, end: first.0 });
        }
        match records.begins {
            true if epoch <= newest => return Err(LogError::OldEpoch { path: path(), epoch, newest }),
            false if epoch != newest => return Err(LogError::OtherEpoch { path: path(), epoch, newest }),
            _ => {}
        }
        if self.stage != Stage::Begun || self.epoch != epoch {
            self.continue_in(epoch)?;
        }
        let (coding, mut rest) = (Coding::of_epoch(&self.log_id, epoch), records.bytes.as_ref());
        while let Ok(decoded) = decode_with(rest, coding, false) {
            let (record, later) = rest.split_at_checked(decoded.length as usize).unwrap_or_default();
            self.append_copy_of(record, &decoded)?;
            rest = later;
        }
        if records.begins {
            self.newest_epoch = self.newest_epoch.max(epoch);
            self.epochs.begin(epoch, first);
        }
        Ok(self.appended())
    }

    /// Makes the active segment an empty one of that epoch.
    fn continue_in(&mut self, epoch: u64) -> Result<(), LogError> {
        let first = self.write()?;
        let is_unused = self.active.segment.first() == first;
        let before = std::mem::replace(&mut self.epoch, epoch);
        let begun = self.begin_segment(first, Size::bare(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES));
        begun.inspect_err(|_| self.epoch = before)?;
        self.stage = Stage::Begun;
        // It may be of a later epoch, as one that opening or a cut made is.
        if is_unused {
            self.remove_unused();
        }
        Ok(())
    }

    fn append_copy_of(&mut self, bytes: &[u8], decoded: &Decoded<'_>) -> Result<(), LogError> {
        let purpose = match decoded.record {
            Record::Message(_) | Record::Envelope(_) => Purpose::Message,
            _ => Purpose::Upkeep,
        };
        let stamp = self.place(bytes.len(), purpose)?;
        let offset = self.active.segment.offset_of(stamp.position) as u32;
        let known = self.active.index.deadlines().len();
        self.active.index.take_in(offset, decoded);
        self.add_timers_from(known);
        decoded.each(offset, |_, record| {
            if let Record::Delete(queue) = record {
                self.hints.borrow_mut().remove(queue);
            }
        });
        self.tail.extend_from_slice(bytes);
        Ok(())
    }
}
