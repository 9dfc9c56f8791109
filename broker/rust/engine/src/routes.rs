//! The queues that the messages of a round reach, found in one table and without the shard's lock.
//!
//! The table is the present one when the round begins: changes that were answered by then are in it, later ones are as
//! if they came after the round. One later change counts, the deletion of a queue: storing the round finds it and routes
//! the whole round again, in the table of that moment, as if the deletion had come first. So a message goes to no
//! deleted queue, and one that the deletion leaves without a queue has the fate, the alternate exchange or the new queue
//! of that name that it would have had.

use std::cell::RefCell;

use penstock_queue::{Matched, QueueId, Routing};
use penstock_wire::is_same;

use crate::publication::Publication;

/// The most messages stored in one hold of the lock, also bounded by targets, so that others of the vhost do not wait
/// longer.
pub const MESSAGES_AT_ONCE: usize = 1024;
const TARGETS_AT_ONCE: usize = 1024;

/// A thread keeps lists of at most this many queues for its next round.
const KEPT_MAX: usize = 16 * TARGETS_AT_ONCE;

thread_local! {
    static KEPT: RefCell<Routes> = RefCell::default();
}

/// Invariant: each pair in `found` is a part of `queues`.
#[derive(Default)]
pub(crate) struct Routes {
    /// How many queues had been removed from the table.
    pub removals: u64,
    matched: Matched,
    queues: Vec<QueueId>,
    /// Of each message the begin and the end of its queues; `None` when there is no such exchange.
    found: Vec<Option<(usize, usize)>>,
}

impl Routes {
    /// The routes of the first messages, as many as fit one hold of the lock: at least one.
    pub fn of(table: &Routing, batch: &[Publication<'_>]) -> Routes {
        let mut routes = KEPT.take();
        routes.find(table, batch);
        routes
    }

    /// Finds them again in another table.
    pub fn find(&mut self, table: &Routing, batch: &[Publication<'_>]) {
        self.removals = table.removals();
        self.queues.clear();
        self.found.clear();
        let mut targets = 0;
        let mut last: Option<&Publication<'_>> = None;
        for publication in batch.iter().take(MESSAGES_AT_ONCE) {
            let same = last.filter(|last| is_same_route(last, publication)).and(self.found.last().copied());
            let found = same.unwrap_or_else(|| self.find_one(table, publication));
            self.found.push(found);
            last = Some(publication);
            targets += found.map_or(0, |(begin, end)| end - begin);
            if targets >= TARGETS_AT_ONCE {
                break;
            }
        }
    }

    /// How many messages were routed.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// The queues of one of them, ascending; `None` when its exchange does not exist.
    pub fn queues(&self, place: usize) -> Option<&[QueueId]> {
        let (begin, end) = self.found.get(place).copied().flatten()?;
        self.queues.get(begin..end)
    }

    /// Keeps the buffers for the thread's next round.
    pub fn keep(self) {
        if self.queues.capacity() <= KEPT_MAX && self.matched.queues.capacity() <= KEPT_MAX {
            KEPT.set(self);
        }
    }

    fn find_one(&mut self, table: &Routing, publication: &Publication<'_>) -> Option<(usize, usize)> {
        let Publication { exchange, key, headers, .. } = *publication;
        table.route_keyed(exchange, key, publication.payload.key(), headers, &mut self.matched).ok()?;
        let begin = self.queues.len();
        self.queues.extend_from_slice(&self.matched.queues);
        Some((begin, self.queues.len()))
    }
}

/// Whether nothing that routing reads differs. Publishers repeat themselves.
fn is_same_route(one: &Publication<'_>, other: &Publication<'_>) -> bool {
    let is_plain = |publication: &Publication<'_>| publication.headers.is_none() && publication.payload.key().is_none();
    is_plain(one) && is_plain(other) && is_same(one.exchange, other.exchange) && is_same(one.key, other.key)
}
