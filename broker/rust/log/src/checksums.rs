//! Positions and checksums of records, as work for a thread: two replicas have the same record where both are equal.
//!
//! Invariants: a checksum is that of the head as it was appended, whatever was rewritten since, and it covers the
//! payload's. The head's own checksum is checked first, and no payload is read. The records of an envelope are listed in
//! its place, because they are rewritten without it.

use std::ops::Range;
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::record::{DecodeError, Position, Record};
use crate::segment::Segment;

/// A list to be made; see the module.
#[derive(Debug)]
#[must_use]
pub struct ChecksumTicket {
    /// Segments, and where their records end.
    pub(crate) parts: Vec<(Segment, Position)>,
    pub(crate) positions: Range<Position>,
    pub(crate) disk: Arc<dyn Disk>,
}

impl ChecksumTicket {
    /// Lists the records by position: 16 bytes for each, so a large log is listed in several ranges. A record whose head
    /// cannot be read is an error.
    pub fn perform(self) -> Result<Vec<(Position, u32)>, LogError> {
        let mut listed = Vec::new();
        for (segment, end) in &self.parts {
            self.list(segment, *end, &mut listed)?;
        }
        // Those of a rewritten segment are by queue.
        listed.sort_unstable();
        Ok(listed)
    }

    fn list(&self, segment: &Segment, end: Position, listed: &mut Vec<(Position, u32)>) -> Result<(), LogError> {
        let end = if segment.is_rewritten() { segment.bytes() } else { segment.offset_of(end).min(segment.bytes()) };
        let mut walk = segment.walk_heads(end)?;
        while walk.offset() < end {
            walk.keep_window(self.disk.as_ref())?;
            let at = walk.offset();
            let (offset, decoded) = match walk.step() {
                // A start assigns the positions of segments that were removed to the one before.
                Err(DecodeError::End) if walk.is_at_zeros(self.disk.as_ref())? => return Ok(()),
                step => step.map_err(|error| segment.unreadable(at, error))?,
            };
            decoded.each(offset, |at, record| {
                let position = Position(decoded.position.0 + u64::from(at - offset));
                let checksum = match record {
                    Record::Message(message) => message.checksum(),
                    _ => walk.checksum_at(at),
                };
                if self.positions.contains(&position) {
                    listed.push((position, checksum));
                }
            });
        }
        Ok(())
    }
}
