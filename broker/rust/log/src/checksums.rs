//! Positions and checksums of records, as work for a thread: two replicas have the same record where both are equal.
//!
//! Invariants: a checksum is that of the head as it was appended, whatever was rewritten since, and it covers the
//! payload's. The head's own checksum is checked first, and no payload is read. The records of an envelope are listed in
//! its place, because they are rewritten without it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::gap::Gap;
use crate::record::{DecodeError, Position, Record};
use crate::segment::Segment;

/// A list to be made; see the module.
#[derive(Debug)]
#[must_use]
pub struct ChecksumTicket {
    /// Segments, where their records end, and the gaps behind them.
    pub(crate) parts: Vec<(Segment, Position, Option<Gap>)>,
    pub(crate) positions: Range<Position>,
    pub(crate) disk: Arc<dyn Disk>,
}

impl ChecksumTicket {
    /// Lists the records by position: 16 bytes for each, so a large log is listed in several ranges. A record whose head
    /// cannot be read is an error.
    pub fn perform(self) -> Result<Vec<(Position, u32)>, LogError> {
        let mut listed = Vec::new();
        for (segment, end, gap) in &self.parts {
            let each = |position, checksum| {
                if self.positions.contains(&position) {
                    listed.push((position, checksum));
                }
                ControlFlow::Continue(())
            };
            walk(segment, (*end, gap.as_ref()), self.disk.as_ref(), each)?;
        }
        // Those of a rewritten segment are by queue.
        listed.sort_unstable();
        Ok(listed)
    }
}

/// Visits the records of a segment in their order in the file, up to a position; before a gap up to the last message, because heads alone do not show
/// whether a record behind it is one of the log.
fn walk(
    segment: &Segment,
    (end, gap): (Position, Option<&Gap>),
    disk: &dyn Disk,
    mut each: impl FnMut(Position, u32) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let end = if segment.is_rewritten() { segment.bytes() } else { segment.offset_of(end).min(segment.bytes()) };
    let mut walk = segment.walk_heads(end)?;
    let mut goes_on = ControlFlow::Continue(());
    let last = gap.map_or(Ok(None), Gap::last_message)?.unwrap_or(end);
    while walk.offset() < end && walk.offset() <= last && goes_on.is_continue() {
        walk.keep_window(disk)?;
        let at = walk.offset();
        let (offset, decoded) = match walk.step() {
            // A start assigns the positions of segments that were removed to the one before.
            Err(DecodeError::End) if walk.is_at_zeros(disk)? => return Ok(()),
            step => step.map_err(|error| segment.unreadable(at, error))?,
        };
        decoded.each(offset, |at, record| {
            let position = Position(decoded.position.0 + u64::from(at - offset));
            let checksum = match record {
                Record::Message(message) => message.checksum(),
                _ => walk.checksum_at(at),
            };
            if goes_on.is_continue() {
                goes_on = each(position, checksum);
            }
        });
    }
    Ok(())
}

/// A list of the committed records of one segment, as work for a thread: see [`crate::Log::begin_listing`].
#[derive(Debug)]
#[must_use]
pub struct ListTicket {
    /// Up to where its records are committed, and the gap behind it.
    pub(crate) segment: Option<(Segment, Position, Option<Gap>)>,
    pub(crate) positions: Range<Position>,
    pub(crate) disk: Arc<dyn Disk>,
}

/// Records by position: all that a log has from where the list was asked for up to `until`, and can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub until: Position,
    pub records: Vec<(Position, u32)>,
}

impl ListTicket {
    /// Lists at most so many records, 16 bytes for each; those of a rewritten segment take as much for all of it meanwhile. After one that cannot be
    /// read no others are listed: checks of what lies on the disk find it. Blocks.
    ///
    /// # Errors
    /// `Io`.
    pub fn perform(self, count_max: usize) -> Result<Listed, LogError> {
        let (positions, mut records) = (self.positions, Vec::new());
        let Some((segment, end, gap)) = &self.segment else { return Ok(Listed { until: positions.end, records }) };
        let in_order = !segment.is_rewritten();
        let walked = walk(segment, (*end, gap.as_ref()), self.disk.as_ref(), |position, checksum| {
            if positions.contains(&position) {
                records.push((position, checksum));
            }
            if in_order && (records.len() > count_max || position >= positions.end) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if let Err(error @ LogError::Io { .. }) = walked {
            return Err(error);
        }
        records.sort_unstable();
        let until = records.get(count_max).map_or(positions.end, |&(position, _)| position);
        records.truncate(count_max);
        Ok(Listed { until, records })
    }
}
