//! How far a queue's messages may have been delivered, as a mark in the log: after a crash, messages below it are
//! flagged as redelivered.
//!
//! Invariants: the mark is in the page cache before the messages below it are delivered. It runs ahead, so that a
//! message costs a fraction of a mark: at most by the number of deliveries since the start, and never by more than
//! `AHEAD_MAX`. So many messages may be flagged without a delivery. It has no delivery counts. No sync waits for it: a
//! power failure may lose it.

use penstock_log::marks;
use penstock_queue::{QueueId, Sequence};

use crate::error::EngineError;
use crate::state::{QueueEntry, State};

/// The first distance that the mark runs ahead, and the largest.
const AHEAD_MIN: u64 = 16;
const AHEAD_MAX: u64 = 1024;

/// State of one queue's mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryMark {
    below: Sequence,
    ahead: u64,
}

impl Default for DeliveryMark {
    fn default() -> DeliveryMark {
        DeliveryMark { below: Sequence(0), ahead: 0 }
    }
}

impl DeliveryMark {
    /// The mark needed before messages below a sequence are delivered; `None` when it exists already.
    fn before(&mut self, taken_below: Sequence) -> Option<Sequence> {
        if taken_below <= self.below {
            return None;
        }
        self.below = Sequence(taken_below.0.saturating_add(self.ahead));
        self.ahead = (2 * self.ahead).clamp(AHEAD_MIN, AHEAD_MAX);
        Some(self.below)
    }
}

impl QueueEntry {
    /// Restores the mark found by a start.
    pub fn recover_deliveries(&mut self, mark: &[u8]) {
        let Ok(below) = mark.try_into().map(u64::from_le_bytes) else { return };
        self.deliveries.below = Sequence(below);
        self.machine.set_perhaps_delivered_below(Sequence(below));
    }

    /// The sequence to flag after a clean stop: messages that consumers still hold, and messages that were to be
    /// flagged before and were not taken since.
    fn delivered_at_stop(&self) -> Option<Sequence> {
        let is_held = self.signals.keys().any(|&id| self.machine.unsettled_of(id) > 0);
        let below = self.machine.perhaps_delivered_below();
        if is_held {
            return Some(self.machine.first_untaken().max(below));
        }
        (self.machine.settled().next_unsettled(Sequence(0)) < below).then_some(below)
    }
}

impl State {
    /// Marks taken messages, before they are delivered.
    pub fn mark_deliveries(&mut self, queue: QueueId) -> Result<(), EngineError> {
        if self.closed || self.stopped.is_some() {
            return Ok(());
        }
        let Some(entry) = self.queues.get_mut(&queue) else { return Ok(()) };
        let Some(below) = entry.deliveries.before(entry.machine.first_untaken()) else { return Ok(()) };
        self.put_delivery_mark(queue, &below.0.to_le_bytes())?;
        self.write()
    }

    /// At a stop, removes the part of the mark that was not delivered.
    pub fn end_delivery_marks(&mut self) -> Result<(), EngineError> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let marked = self.queues.iter().filter(|(_, entry)| entry.deliveries.below > Sequence(0));
        let exact: Vec<_> =
            marked.map(|(&id, entry)| (id, entry.deliveries.below, entry.delivered_at_stop())).collect();
        for (id, marked, exact) in exact {
            match exact {
                None => self.put_delivery_mark(id, &[])?,
                Some(below) if below != marked => self.put_delivery_mark(id, &below.0.to_le_bytes())?,
                Some(_) => {}
            }
        }
        self.write()
    }

    /// A full disk does not refuse a consumer for a flag: consumers free the disk.
    fn put_delivery_mark(&mut self, queue: QueueId, value: &[u8]) -> Result<(), EngineError> {
        match self.log.append_mark(&marks::owner_of_deliveries(queue), &[], value) {
            Err(error) if error.is_full() => Ok(()),
            appended => Ok(appended.map(|_| ())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AHEAD_MAX, DeliveryMark};
    use penstock_queue::Sequence;

    #[test]
    fn a_mark_runs_ahead_by_no_more_than_went_out_and_costs_less_and_less() {
        let mut mark = DeliveryMark::default();
        let (mut marks, mut furthest) = (0, 0);
        for taken in 1..=100_000_u64 {
            if let Some(below) = mark.before(Sequence(1 + taken)) {
                let ahead = below.0 - 1 - taken;
                assert!(ahead <= AHEAD_MAX && ahead <= 16 * taken, "{ahead} ahead of {taken}");
                (marks, furthest) = (marks + 1, furthest.max(ahead));
            }
        }
        assert_eq!(furthest, AHEAD_MAX);
        assert!(marks <= 8 + 100_000 / AHEAD_MAX, "{marks} marks");
    }
}
