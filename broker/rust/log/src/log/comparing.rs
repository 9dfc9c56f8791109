//! Lists by which replicas compare their records.

use std::ops::Range;
use std::sync::Arc;

use super::Log;
use crate::checksums::{ChecksumTicket, ListTicket};
use crate::directory::Lookup;
use crate::error::LogError;
use crate::format::Format;
use crate::record::Position;

impl Log {
    /// A list of the written records in a range of positions, for a thread without the lock, also of those above the bound.
    /// Segments without a live message below the newest checkpoint are left out: they need not be on the disk.
    pub fn begin_checksums(&self, positions: Range<Position>) -> Result<ChecksumTicket, LogError> {
        let is_dead = |end: Position, lookup: &Lookup| end <= self.folded && matches!(lookup, Lookup::Nothing);
        let sealed = self.sealed.iter().enumerate().filter(|(_, sealed)| !is_dead(sealed.end, &sealed.lookup));
        let segments = sealed.map(|(at, sealed)| (&sealed.segment, sealed.end, self.gap_behind(at)));
        let mut parts = Vec::new();
        for (segment, end, gap) in segments.chain([(&self.active.segment, self.written, None)]) {
            if segment.first() >= positions.end || end <= positions.start {
                continue;
            }
            if segment.format() == Format::One {
                return Err(LogError::NotInFormat { what: "a checksum that is the same in all replicas" });
            }
            let segment = segment.unmapped();
            // Mapped now, so that the bytes stay readable when the file is removed.
            segment.map()?;
            parts.push((segment, end, gap));
        }
        Ok(ChecksumTicket { parts, positions, disk: Arc::clone(&self.options.disk) })
    }

    /// A list of the committed records in a range of positions, for a thread without the lock: those of the first segment that has some, so that a
    /// list costs one segment. Segments without a live message below the newest checkpoint are left out.
    ///
    /// # Errors
    /// `NotInFormat` for records of format 1; `Io`.
    pub fn begin_listing(&self, positions: Range<Position>) -> Result<ListTicket, LogError> {
        let (from, bound) = (positions.start, self.bound());
        let sealed = self.sealed.iter().enumerate().filter(|(_, sealed)| !sealed.is_dead(self.folded));
        let segments = sealed.map(|(at, sealed)| (&sealed.segment, sealed.end, Some(at)));
        let segments = segments.chain([(&self.active.segment, self.written, None)]);
        let mut ends = segments.map(|(segment, end, at)| (segment, end.min(bound), at));
        let first = ends.find(|&(segment, end, _)| end > from && segment.first() < end);
        let until = positions.end.min(bound).max(from);
        let (segment, until) = match first {
            Some((segment, end, at)) if segment.first() < until => {
                if segment.format() == Format::One {
                    return Err(LogError::NotInFormat { what: "a checksum that is the same in all replicas" });
                }
                let segment = segment.unmapped();
                // Mapped now, so that the bytes stay readable when the file is removed.
                segment.map()?;
                (Some((segment, end, at.and_then(|at| self.gap_behind(at)))), until.min(end))
            }
            _ => (None, until),
        };
        Ok(ListTicket { segment, positions: from..until, disk: Arc::clone(&self.options.disk) })
    }
}
