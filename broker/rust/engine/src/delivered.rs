//! When the marks of deliveries are written: before messages are delivered, and at a stop.

use penstock_log::marks;
use penstock_queue::{QueueId, Sequence};

use crate::error::EngineError;
use crate::queue_entry::QueueEntry;
use crate::state::State;

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
