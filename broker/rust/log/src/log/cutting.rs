//! Truncating a log: records above its bound are cut, as a leader tells a follower.
//!
//! Invariants: no record below the bound is cut, nor a part of a record. Before a byte is changed the intention is on the
//! disk, so that a start completes it, and nothing is appended before an epoch begins: bytes of the cut records are never
//! taken for later ones. A failure half-way stops the log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::{Log, Stage, epoch};
use crate::active::Size;
use crate::ahead::Ahead;
use crate::contents::Contents;
use crate::cut::{Cut, Unwritten};
use crate::directory::Lookup;
use crate::error::{KeptRecords, LogError};
use crate::format::Format;
use crate::index::{MemoryIndex, of_whole};
use crate::record::Position;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment};

/// The number of the segment that is cut within, and the index of the rest.
type Rest = (u64, MemoryIndex);

impl Log {
    /// Cuts all records at and above a position, which is where one begins; waits for the disk. Afterwards the log is as if
    /// it had never had them, and [`Log::begin_epoch`] or [`Log::follow_epoch`] comes before anything is appended. Refused
    /// below the bound and within a record; at the end it does nothing.
    pub fn truncate_to(&mut self, position: Position) -> Result<(), LogError> {
        if self.format() == Format::One {
            return Err(LogError::NotInFormat { what: "a log that is truncated" });
        }
        if self.stage == Stage::Closed {
            return Err(self.refusal());
        }
        let end = self.write()?;
        if position == end {
            return Ok(());
        }
        let rest = self.rest_below(position, end)?;
        let cut = Cut { position, epoch: self.newest_epoch };
        // Nothing is written to space that was not reserved.
        let unwritten = Unwritten { segment: self.active.segment.number(), from: self.active.reserved };
        let begun = cut.intend(self.options.disk.as_ref(), &self.directory).and_then(|()| self.begin_behind(position));
        if let Err(error) = begun {
            let forgotten = Cut::forget(self.options.disk.as_ref(), &self.directory);
            self.stopped.fetch_or(forgotten.is_err(), Ordering::SeqCst);
            return Err(error);
        }
        let mut synced = self.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
        let completed = cut.complete(self.options.disk.as_ref(), &self.directory, &mut synced, Some(unwritten));
        drop(synced);
        completed.inspect_err(|_| self.stopped.store(true, Ordering::SeqCst))?;
        self.forget_above(position, rest);
        Ok(())
    }

    /// Whether the log may be cut there. Returns what the segment with the position has below it, unless all of it is below.
    fn rest_below(&self, position: Position, end: Position) -> Result<Option<Rest>, LogError> {
        let refused = |why| LogError::NotTruncated { path: self.directory.to_path_buf(), position: position.0, why };
        if position > end {
            return Err(refused(KeptRecords::AtEnd(end.0)));
        }
        let least = self.bound().max(self.folded);
        if position < least {
            return Err(refused(KeptRecords::Committed(least.0)));
        }
        let sealed = self.sealed.iter().map(|sealed| (&sealed.segment, sealed.end));
        let mut segments = sealed.chain([(&self.active.segment, end)]);
        let Some((segment, _)) = segments.find(|(segment, end)| segment.first() <= position && position < *end) else {
            return Ok(None);
        };
        let index = self.index_below(segment, position)?.ok_or_else(|| refused(KeptRecords::InRecord))?;
        Ok(Some((segment.number(), index)))
    }

    /// The index of a segment up to a position; `None` if no record ends there.
    fn index_below(&self, segment: &Segment, position: Position) -> Result<Option<MemoryIndex>, LogError> {
        let to = segment.offset_of(position);
        let contents = Contents::read(self.options.disk.as_ref(), segment.path(), to)?;
        Ok(of_whole(segment, contents.up_to(to)))
    }

    /// Makes the segment that the log goes on in. A start that finds it takes it for the end of those before.
    fn begin_behind(&mut self, position: Position) -> Result<(), LogError> {
        self.epoch = epoch::after(self.newest_epoch, &self.directory)?;
        self.begin_segment(position, Size::bare(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))?;
        if self.stage == Stage::Begun {
            self.stage = Stage::Between;
        }
        Ok(())
    }

    fn forget_above(&mut self, position: Position, rest: Option<Rest>) {
        self.sealed.retain(|sealed| sealed.segment.first() <= position);
        for sealed in &mut self.sealed {
            sealed.end = sealed.end.min(position);
        }
        let is_there = |number: u64| self.sealed.iter().any(|sealed| sealed.segment.number() == number);
        let active = self.active.segment.number();
        self.unsynced.retain(|unsynced| unsynced.number == active || is_there(unsynced.number));
        if let Some((number, index)) = rest
            && let Some(sealed) = self.sealed.iter_mut().find(|sealed| sealed.segment.number() == number)
        {
            sealed.lookup = Lookup::Memory(Arc::new(index));
            self.cut_timers(number);
        }
        self.follow_segments();
        self.written = position;
        self.synced = self.synced.min(position);
        self.ahead = Ahead::new(position);
        self.epochs.cut(position);
        self.hints.get_mut().clear();
        self.cuts += 1;
    }
}
