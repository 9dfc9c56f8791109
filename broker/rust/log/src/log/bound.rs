//! The bound of a log, its high watermark: records above it may still be cut, so nothing reads, folds or counts them.
//!
//! Invariants: it never goes back, and never above what is written; it is where a record ends, and every checkpoint is at or
//! below it. Readers need no check of their own: bytes of a segment are readable up to the bound. Without replication there is none, and the end of
//! the log is in its place.

use std::fs::File;
use std::sync::{Arc, PoisonError};

use super::{Log, Sealed};
use crate::error::LogError;
use crate::fold::FoldState;
use crate::format::Format;
use crate::record::Position;
use crate::segment::Segment;
use crate::synced_file::Progress;

const WHAT: &str = "a high watermark";

/// The bound of an opened log, and the state to go on from.
pub(super) fn of(
    bounded: Option<(Position, FoldState)>,
    at_end: FoldState,
    format: Format,
) -> Result<(Option<Position>, FoldState), LogError> {
    match bounded {
        Some(_) if format == Format::One => Err(LogError::NotInFormat { what: WHAT }),
        Some((bound, state)) => Ok((Some(bound), state)),
        None => Ok((None, at_end)),
    }
}

/// Makes the bytes above a bound unreadable; returns the segments below it.
pub(super) fn hide_above(bound: Option<Position>, sealed: &[Sealed]) -> &[Sealed] {
    let Some(bound) = bound else { return sealed };
    let (below, above) = sealed.split_at(sealed.partition_point(|sealed| sealed.end <= bound));
    above.iter().for_each(|sealed| sealed.segment.set_readable(sealed.segment.offset_of(bound)));
    below
}

impl Log {
    /// The position above which nothing is read, folded, written into a checkpoint, rewritten or copied. Without
    /// [`crate::LogOptions::is_bounded`] it is the end of what is written.
    #[must_use]
    pub fn bound(&self) -> Position {
        self.bound.unwrap_or(self.written)
    }

    /// Raises the bound to the end of a record, which every append returns. It is stored with the next sync, or when the log
    /// is closed, so that a start may find an earlier one. Within the records that are written it steps over those between the
    /// two bounds.
    pub fn set_bound(&mut self, bound: Position) -> Result<(), LogError> {
        let path = || self.directory.to_path_buf();
        let Some(before) = self.bound else {
            let refused = LogError::Unbounded { path: path() };
            return Err(if self.format() == Format::One { LogError::NotInFormat { what: WHAT } } else { refused });
        };
        if bound < before || bound > self.written {
            let (from, end) = (before.0, self.written.0);
            return Err(LogError::BoundOutOfRange { path: path(), bound: bound.0, from, end });
        }
        if !self.ends_record(before, bound)? {
            return Err(LogError::BoundInRecord { path: path(), bound: bound.0 });
        }
        self.bound = Some(bound);
        for sealed in self.sealed.iter().rev().take_while(|sealed| sealed.end > before) {
            sealed.segment.set_readable(sealed.segment.offset_of(bound.min(sealed.end)));
        }
        let active = &self.active.segment;
        active.set_readable(active.offset_of(bound));
        self.return_early_deadlines();
        Ok(())
    }

    /// Whether a record ends at a position that is not below another one where a record ends.
    fn ends_record(&self, from: Position, position: Position) -> Result<bool, LogError> {
        if position == from || position == self.written {
            return Ok(true);
        }
        let sealed = self.sealed.iter().rev().find(|sealed| sealed.segment.first() < position);
        let segment = match sealed {
            _ if self.active.segment.first() < position => &self.active.segment,
            Some(sealed) if position < sealed.end => &sealed.segment,
            // Between two segments.
            _ => return Ok(true),
        };
        let from = segment.offset_of(from.max(segment.first()));
        segment.ends_record(self.options.disk.as_ref(), from, segment.offset_of(position))
    }

    /// How many sealed segments are below the bound.
    pub(super) fn within_bound(&self) -> usize {
        match self.bound {
            Some(bound) => self.sealed.partition_point(|sealed| sealed.end <= bound),
            None => self.sealed.len(),
        }
    }

    /// Stores the bound, also where nothing was synced since it was raised.
    pub(super) fn save_bound(&self) -> Result<(), LogError> {
        let progress = Progress { position: Position(0), ..self.progress() };
        let mut file = self.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
        if self.bound.is_some() { file.save(self.options.disk.as_ref(), progress) } else { Ok(()) }
    }

    /// The segment with the last record below a position, its file, and how many sealed ones are before it. No record of
    /// later segments is below it.
    pub(super) fn last_up_to(&self, position: Position) -> Result<(usize, &Arc<Segment>, Arc<File>), LogError> {
        if self.active.segment.first() <= position {
            return Ok((self.sealed.len(), &self.active.segment, Arc::clone(&self.active.file)));
        }
        let count = self.sealed.partition_point(|sealed| sealed.end <= position);
        let Some(Sealed { segment, .. }) = self.sealed.get(count) else {
            return Ok((self.sealed.len(), &self.active.segment, Arc::clone(&self.active.file)));
        };
        let file = File::open(segment.path()).map_err(|error| LogError::io("open", segment.path(), error))?;
        Ok((count, segment, Arc::new(file)))
    }
}
