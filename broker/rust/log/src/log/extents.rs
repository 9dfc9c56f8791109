//! The extents of queues for readers of a log whose queues are closed.
//!
//! Invariant: nothing above the bound counts, and neither the log nor its timers change.

use std::sync::Arc;

use penstock_queue::QueueId;

use super::Log;
use crate::extent::ExtentTicket;
use crate::record::Position;
use crate::segment::Segment;
use crate::state_ticket::StateTicket;

impl Log {
    /// The position of the last fold: segments and records below it may be gone when they are settled there.
    #[must_use]
    pub fn folded(&self) -> Position {
        self.folded
    }

    /// The extent of a queue at the last fold, for a thread without the lock.
    pub fn begin_extent(&self, queue: QueueId) -> ExtentTicket {
        ExtentTicket { keeper: Arc::clone(&self.keeper), queue }
    }

    /// The state of the queues at the bound, for a thread without the lock.
    pub fn begin_state_at_bound(&self) -> StateTicket {
        let bound = self.bound();
        let sealed = self.sealed.iter().map(|sealed| (&sealed.segment, sealed.end));
        let parts = sealed.chain([(&self.active.segment, bound)]);
        let below = |(segment, end): (&Arc<Segment>, Position)| {
            (segment.first() < bound).then(|| (segment.unmapped(), end.min(bound)))
        };
        StateTicket {
            parts: parts.filter_map(below).collect(),
            end: bound,
            keeper: Arc::clone(&self.keeper),
            disk: Arc::clone(&self.options.disk),
        }
    }
}
