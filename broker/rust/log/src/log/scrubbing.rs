//! Which records a round of checks reads next.

use super::Log;
use crate::directory::Lookup;
use crate::scrubbing::{CorruptAt, ScrubPlace, ScrubTicket};

impl Log {
    /// The records after a place, for a thread without the lock; `None` at the end of the round.
    ///
    /// # Errors
    /// A segment whose file cannot be opened.
    pub fn begin_scrub(&self, after: ScrubPlace) -> Result<Option<ScrubTicket>, CorruptAt> {
        for sealed in self.sealed.get(..self.within_bound()).unwrap_or_default() {
            let segment = &sealed.segment;
            let is_dead = sealed.end <= self.folded && matches!(sealed.lookup, Lookup::Nothing);
            let records_end = if segment.is_rewritten() {
                segment.bytes()
            } else {
                segment.offset_of(sealed.end).min(segment.bytes())
            };
            let from = after.within(segment, records_end).filter(|_| !is_dead);
            if let Some(from) = from {
                return ScrubTicket::of(segment, (from, records_end)).map(Some);
            }
        }
        Ok(None)
    }
}
