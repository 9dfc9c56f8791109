//! Which records a round of checks reads next.

use super::Log;
use crate::scrubbing::{CorruptAt, ScrubPlace, ScrubTicket};

impl Log {
    /// The records after a place, for a thread without the lock; `None` at the end of the round.
    ///
    /// # Errors
    /// A segment whose file cannot be opened.
    pub fn begin_scrub(&self, after: ScrubPlace) -> Result<Option<ScrubTicket>, CorruptAt> {
        for sealed in self.sealed.get(..self.within_bound()).unwrap_or_default() {
            let segment = &sealed.segment;
            let records_end = sealed.records_end();
            let from = after.within(segment, records_end).filter(|_| !sealed.is_dead(self.folded));
            if let Some(from) = from {
                return ScrubTicket::of(segment, (from, records_end)).map(Some);
            }
        }
        Ok(None)
    }
}
