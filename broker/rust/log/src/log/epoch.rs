//! Beginning epochs.
//!
//! Invariants: in format 2 an epoch begins with its record, the first one of a segment, and all records of a segment are
//! of one epoch. Nothing is appended between the opening of a log and its first epoch.

use std::path::Path;

use super::room::Purpose;
use super::{EpochToBegin, Log, Opened, Stage};
use crate::active::{Size, random};
use crate::encode::{encode_epoch, epoch_bytes};
use crate::epochs;
use crate::error::LogError;
use crate::fold::FoldState;
use crate::format::Format;
use crate::record::{Begun, EpochView, Position, Record};
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::sync::SyncTicket;

impl Opened {
    /// Begins the epoch of this start, which raises the sequences where that is necessary; does nothing in format 1, where
    /// opening has begun one. Returns the position after it.
    pub fn begin_epoch(&mut self, begun: Begun) -> Result<Position, LogError> {
        let Some(EpochToBegin { raises, is_new }) = self.epoch_to_begin else { return Ok(self.log.end()) };
        let epoch = self.log.append_first(raises, begun)?;
        self.epoch_to_begin = None;
        self.state.apply(&Record::Epoch(epoch), self.log.appended());
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
            let synced = self.begin_sync().map(SyncTicket::perform).transpose()?;
            self.finish_sync(synced.unwrap_or(end));
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
        if self.stage != Stage::Begun {
            return Err(self.refusal());
        }
        let first = self.write()?;
        self.epoch = after(self.epoch, &self.directory)?;
        self.stage = Stage::Opened;
        self.begin_segment(first, Size::bare(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))?;
        self.append_first(raises, begun)?;
        self.settle_start(raises > 0)?;
        Ok(self.appended())
    }

    /// Appends the record of the epoch that the active segment is for. After a failure nothing else is appended.
    fn append_first(&mut self, raises: u8, begun: Begun) -> Result<EpochView, LogError> {
        let epoch = EpochView { epoch: self.epoch, raises, begun: Some(begun) };
        self.stage = Stage::Begun;
        if let Err(error) = self.append_epoch_record(&epoch) {
            self.stage = Stage::Opened;
            return Err(error);
        }
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
