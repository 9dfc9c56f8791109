//! Segments behind which others were removed: a start gives the positions of those to the segment before.
//!
//! Invariants: the records of such a segment may end before the position at which the log goes on, and the bytes of its
//! file after them belong to no record: zeros, or a torn tail, which may begin with a record whose head is whole. The segment was dead or folded when the
//! others were removed, so its directory names each message that lives. What cannot be read behind the last of them is no corruption.

use std::sync::Arc;

use crate::directory::{Directory, Lookup};
use crate::error::LogError;
use crate::record::Position;
use crate::recovery::Sealed;
use crate::segment::Segment;

/// The gap behind a segment; see the module.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// Of the segment, with a map of its own: its file may be removed meanwhile.
    lookup: Lookup,
}

impl Gap {
    /// The gap between a segment of a log and the next one; `None` where its records end at the position that the log says. `covered` is up to where
    /// a start may have taken the positions of other segments for its own.
    pub(crate) fn behind(sealed: &Sealed, next: &Segment, covered: Position) -> Option<Gap> {
        if sealed.end > covered || ends_exactly(&sealed.segment, next) {
            return None;
        }
        let lookup = sealed.lookup.apart();
        lookup.hold();
        Some(Gap { lookup })
    }

    /// The gap behind a segment of a copy that a checkpoint covers.
    pub(crate) fn behind_copied(segment: &Segment, next: Option<&Segment>) -> Result<Option<Gap>, LogError> {
        if next.is_none_or(|next| ends_exactly(segment, next)) {
            return Ok(None);
        }
        Gap::by_directory(segment)
    }

    /// The same by the directory's file, if it can be read.
    pub(crate) fn by_directory(segment: &Segment) -> Result<Option<Gap>, LogError> {
        let directory = Directory::of(segment);
        Ok(directory.is_usable()?.then(|| Gap { lookup: Lookup::File(Arc::new(directory)) }))
    }

    /// Where the last message begins that the directory names; `None` without one.
    pub(crate) fn last_message(&self) -> Result<Option<u64>, LogError> {
        self.lookup.last_offset().map(|last| last.map(u64::from))
    }

    /// Whether no message begins at or behind an offset.
    pub(crate) fn has_begun_at(&self, offset: u64) -> Result<bool, LogError> {
        Ok(self.last_message()?.is_some_and(|last| last < offset))
    }
}

/// Whether the next segment was begun where this one ends. Records of a rewritten segment have an end of their own.
fn ends_exactly(segment: &Segment, next: &Segment) -> bool {
    let is_behind = !next.is_rewritten() && next.number() == segment.number() + 1 && next.epoch() == segment.epoch();
    segment.is_rewritten() || is_behind
}
