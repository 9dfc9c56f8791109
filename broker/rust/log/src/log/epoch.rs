//! Beginning epochs.
//!
//! Invariants: in format 2 an epoch begins with its record, the first one of a segment, and all records of a segment are
//! of one epoch. Nothing is appended between the opening of a log and its first epoch, but by a follower that goes on in the
//! epoch that it was in.

use std::path::Path;
use std::sync::Arc;

use super::room::Purpose;
use super::{EpochToBegin, Log, Opened, Stage};
use crate::active::{Size, random};
use crate::encode::{encode_epoch, epoch_bytes};
use crate::epochs::{self, Epochs};
use crate::error::LogError;
use crate::fold::FoldState;
use crate::format::Format;
use crate::record::{Begun, EpochView, Position, Record};
use crate::segment::SEGMENT_HEADER_BYTES;

impl Opened {
    /// Begins the epoch of this start, which raises the sequences where that is necessary; does nothing in format 1, where
    /// opening has begun one. Returns the position after it.
    pub fn begin_epoch(&mut self, begun: Begun) -> Result<Position, LogError> {
        let Some(EpochToBegin { raises, is_new }) = self.epoch_to_begin else { return Ok(self.log.end()) };
        if self.log.stage != Stage::Opened {
            // The active segment is for another one by now.
            let begun = self.log.begin_epoch(raises, begun)?;
            self.epoch_to_begin = None;
            return Ok(begun);
        }
        let epoch = self.log.append_first(raises, begun)?;
        self.epoch_to_begin = None;
        // A bound is below it.
        if self.log.bound.is_none() {
            self.state.apply(&Record::Epoch(epoch), self.log.appended());
        }
        self.log.settle_start(raises > 0 || is_new)?;
        Ok(self.log.end())
    }
}

impl Log {
    /// The records of a start in format 1: of its epoch, and of further raises.
    pub(super) fn begin_as_one(&mut self, state: &mut FoldState, raises: u8) -> Result<(), LogError> {
        let raise = raises > 0;
        for _ in 0..raises.max(1) {
            let end = self.append_epoch(raise)?;
            state.apply(&Record::Epoch(EpochView::of_one(self.epoch, raise)), end);
        }
        Ok(())
    }

    /// Writes the records of a start, and syncs them where that is necessary: sequences above a raise are assigned from now
    /// on, and no later start may raise to the same ones.
    pub(super) fn settle_start(&mut self, is_owed: bool) -> Result<(), LogError> {
        let end = self.write()?;
        if is_owed {
            match self.begin_sync() {
                Some(ticket) => self.finish_sync(ticket.perform()?),
                None => self.note_synced(end),
            }
        }
        Ok(())
    }

    /// Appends the record of format 1 that a start and some folds need.
    pub(super) fn append_epoch(&mut self, raise: bool) -> Result<Position, LogError> {
        self.append_epoch_record(&EpochView::of_one(self.epoch, raise))
    }

    /// Begins the next epoch of format 2, in a segment of its own. The first one of a start is begun by
    /// [`Opened::begin_epoch`], which knows how often to raise. Returns the position after its record.
    pub fn begin_epoch(&mut self, raises: u8, begun: Begun) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "an epoch within a start" });
        }
        if !matches!(self.stage, Stage::Begun | Stage::Between) {
            return Err(self.refusal());
        }
        self.enter_epoch(after(self.newest_epoch, &self.directory)?)?;
        self.append_first(raises, begun)?;
        self.settle_start(raises > 0)?;
        Ok(self.appended())
    }

    /// Begins an epoch that another replica leads, with the record that this one appended: a follower begins none itself.
    /// Returns the position after the record.
    pub fn follow_epoch(&mut self, epoch: u64, raises: u8, begun: Begun) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "an epoch of another replica" });
        }
        if self.stage == Stage::Closed {
            return Err(self.refusal());
        }
        if epoch <= self.newest_epoch {
            return Err(LogError::OldEpoch { path: self.directory.to_path_buf(), epoch, newest: self.newest_epoch });
        }
        // Nothing may say the log's id yet.
        let is_first = self.stage == Stage::Opened;
        self.enter_epoch(epoch)?;
        self.append_first(raises, begun)?;
        self.settle_start(raises > 0 || is_first)?;
        Ok(self.appended())
    }

    /// Goes on in the newest epoch after a start: a follower that restarts within it gets the rest of its records from the
    /// replica that leads it. Records that a failure took come again with the same bytes, so within an epoch a position still
    /// has one record. Refused once the log was truncated, until an epoch begins. Returns the log's end.
    pub fn go_on_in_epoch(&mut self, epoch: u64) -> Result<Position, LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "an epoch of another replica" });
        }
        let is_cut = self.cuts > 0 && self.stage != Stage::Begun;
        if is_cut || matches!(self.stage, Stage::Closed | Stage::Between) {
            return Err(self.refusal());
        }
        let newest = self.newest_epoch;
        if epoch != newest || self.epochs.newest() != newest {
            return Err(LogError::OtherEpoch { path: self.directory.to_path_buf(), epoch, newest });
        }
        if self.stage == Stage::Opened {
            let before = std::mem::replace(&mut self.epoch, epoch);
            let begun =
                self.begin_segment(self.written, Size::bare(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES));
            begun.inspect_err(|_| self.epoch = before)?;
            self.stage = Stage::Begun;
            self.remove_unused();
        }
        Ok(self.appended())
    }

    /// Removes the segment that opening made for a later epoch: where another one loses its header, that epoch would count as
    /// one that came before. If that fails, a fold removes it.
    pub(super) fn remove_unused(&mut self) {
        let Some(unused) = self.sealed.last().map(|sealed| Arc::clone(&sealed.segment)) else { return };
        if self.options.disk.unlink(unused.path()).is_ok() {
            self.sealed.pop();
            self.unsynced.retain(|unsynced| unsynced.number != unused.number());
        }
    }

    /// The epochs of format 2 with their first positions, up to the log's end: two replicas have the same records up to the
    /// end of their last common epoch.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Makes the active segment an empty one for an epoch. After a failure nothing is appended.
    fn enter_epoch(&mut self, epoch: u64) -> Result<(), LogError> {
        let first = self.write()?;
        self.epoch = epoch;
        self.stage = Stage::Between;
        self.begin_segment(first, Size::bare(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))
    }

    /// Appends the record of the epoch that the active segment is for. After a failure nothing else is appended.
    fn append_first(&mut self, raises: u8, begun: Begun) -> Result<EpochView, LogError> {
        let (epoch, first) = (EpochView { epoch: self.epoch, raises, begun: Some(begun) }, self.appended());
        let before = std::mem::replace(&mut self.stage, Stage::Begun);
        if let Err(error) = self.append_epoch_record(&epoch) {
            self.stage = before;
            return Err(error);
        }
        self.newest_epoch = self.newest_epoch.max(self.epoch);
        self.epochs.begin(self.epoch, first);
        Ok(epoch)
    }

    fn append_epoch_record(&mut self, epoch: &EpochView) -> Result<Position, LogError> {
        let stamp = self.place(epoch_bytes(self.format()), Purpose::Upkeep)?;
        encode_epoch(&mut self.tail, stamp, epoch);
        Ok(self.appended())
    }
}

/// The number of the epoch after one.
pub(super) fn after(epoch: u64, directory: &Path) -> Result<u64, LogError> {
    Ok(epochs::after(epoch, u32::from_le_bytes(random(directory)?)))
}
