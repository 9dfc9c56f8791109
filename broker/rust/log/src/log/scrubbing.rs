//! Which records a round of checks reads next.

use super::Log;
use crate::gap::Gap;
use crate::scrubbing::{CorruptAt, ScrubPlace, ScrubTicket};

impl Log {
    /// The records after a place, for a thread without the lock; `None` at the end of the round.
    ///
    /// # Errors
    /// A segment whose file cannot be opened.
    pub fn begin_scrub(&self, after: ScrubPlace) -> Result<Option<ScrubTicket>, CorruptAt> {
        for (at, sealed) in self.sealed.iter().enumerate().take(self.within_bound()) {
            let segment = &sealed.segment;
            let records_end = sealed.records_end();
            let from = after.within(segment, records_end).filter(|_| !sealed.is_dead(self.folded));
            if let Some(from) = from {
                return ScrubTicket::of(segment, (from, records_end), self.gap_behind(at)).map(Some);
            }
        }
        Ok(None)
    }

    /// The gap behind the sealed segment at that index.
    pub(super) fn gap_behind(&self, at: usize) -> Option<Gap> {
        let next = self.sealed.get(at + 1).map_or(&self.active.segment, |next| &next.segment);
        // Only a start gives a segment the positions of others, and only below the newest checkpoint.
        Gap::behind(self.sealed.get(at)?, next, self.recovered.min(self.folded))
    }
}
