//! When consumers are woken: by messages that become ready, and in a replicated shard by those that are committed.

use std::sync::Arc;

use penstock_log::Position;
use penstock_queue::{QueueId, Sequence};

use crate::state::State;
use crate::term::{Replication, Term, Waiting};

impl State {
    /// Begins the term of a shard that was opened for it. Every message may have been delivered by an earlier leader.
    pub fn begin_term(&mut self, replication: Arc<dyn Replication>) {
        self.term = Some(Box::new(Term::new(replication, self.log.end())));
        for entry in self.queues.values_mut() {
            let next = entry.machine.next();
            entry.machine.set_perhaps_delivered_below(next);
        }
    }

    /// Wakes consumers of a queue; see [`crate::queue_entry::QueueEntry::wake`].
    pub fn wake(&mut self, queue: QueueId, fresh_count: u64) {
        if let Some(entry) = self.queues.get_mut(&queue) {
            if self.term.as_ref().is_none_or(|term| term.wakes(queue)) {
                entry.wake(fresh_count, &mut self.wakes);
            }
            if entry.head_limit.is_some() {
                self.note_if_long(queue);
            }
        }
    }

    /// Wakes consumers of the queues that the current publish has messages for.
    pub(crate) fn wake_touched(&mut self) {
        let mut touched: Vec<QueueId> = std::mem::take(&mut self.touched);
        for queue in touched.drain(..) {
            if let Some(entry) = self.queues.get_mut(&queue) {
                let fresh_count = std::mem::take(&mut entry.fresh_count);
                match &mut self.term {
                    None => entry.wake(fresh_count, &mut self.wakes),
                    Some(term) => term.hold_back(queue, self.log.end()),
                }
            }
        }
        self.touched = touched;
    }

    /// Whether no message may be delivered now.
    pub fn is_paused(&self) -> bool {
        self.term.as_ref().is_some_and(|term| !term.delivers())
    }

    /// Whether some records of a replicated log are not committed.
    pub fn has_uncommitted(&self) -> bool {
        self.term.is_some() && self.log.bound() < self.log.end()
    }

    /// Whether a message without a place in the log is not committed. Everything from before the term is.
    pub fn is_uncommitted(&self, queue: QueueId, sequence: Sequence) -> bool {
        let is_of_term = |recovered_below: Sequence| sequence >= recovered_below;
        let entry = self.queues.get(&queue);
        self.has_uncommitted() && entry.is_some_and(|entry| is_of_term(entry.recovered_below(sequence)))
    }

    /// Has a queue's consumers wait for the next messages that are committed.
    pub fn wait_for_commit(&mut self, queue: QueueId) {
        if let Some(term) = &mut self.term {
            term.hold_back_some(queue, self.log.end());
        }
    }

    /// Has messages without a committed record tried again after the next commit.
    pub fn wait_for_next_commit(&mut self, what: Waiting) {
        self.term.iter_mut().for_each(|term| term.wait_for_next_commit(what));
    }

    /// Whether some waited for the commit that there was.
    pub fn waited_for_commit(&mut self, what: Waiting) -> bool {
        self.term.as_mut().is_some_and(|term| term.waited_for_commit(what))
    }

    /// Wakes consumers for what was committed since; returns whether the term lasts.
    pub fn committed(&mut self, below: Position) -> bool {
        let Some(term) = self.term.as_mut().filter(|term| !term.is_over()) else { return false };
        for queue in term.committed(below) {
            self.wake_all(queue);
        }
        if self.log.take_returned_deadlines() || !self.too_long.is_empty() {
            self.next_expiry.lower(0);
        }
        true
    }

    /// Begins or ends deliveries.
    pub fn set_delivers(&mut self, delivers: bool) {
        if self.term.as_mut().is_some_and(|term| term.set_delivers(delivers)) && delivers {
            let queues: Vec<QueueId> = self.queues.keys().copied().collect();
            queues.into_iter().for_each(|queue| self.wake_all(queue));
        }
    }

    fn wake_all(&mut self, queue: QueueId) {
        if self.is_paused() {
            return;
        }
        if let Some(entry) = self.queues.get_mut(&queue) {
            let ready_count = entry.machine.ready_count();
            entry.wake(ready_count, &mut self.wakes);
        }
    }
}
