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

    /// The sequences to flag after a clean stop, by lane, each with the present mark: messages that consumers still hold, and
    /// messages that were to be flagged before and were not taken since.
    fn delivered_at_stop(&self) -> Vec<(u16, Sequence, Option<Sequence>)> {
        let is_held = self.signals.keys().any(|&id| self.machine.unsettled_of(id) > 0);
        let exact = |lane: u16, untaken: Sequence| {
            let below = self.machine.perhaps_delivered_in(lane);
            if is_held {
                return Some(untaken.max(below).within());
            }
            let first = self.machine.settled_in(lane).next_unsettled(Sequence(0).in_lane(lane));
            (first < below).then_some(below.within())
        };
        let mut found = Vec::new();
        if self.deliveries.below > Sequence(0) {
            found.push((0, self.deliveries.below, exact(0, self.machine.first_untaken())));
        }
        let Some(priorities) = &self.priorities else { return found };
        for (number, _, untaken) in self.machine.ends_of_lanes() {
            let marked = priorities.lanes.get(&number).map_or(Sequence(0), |lane| lane.deliveries.below);
            if marked > Sequence(0) {
                found.push((number, marked, exact(number, untaken)));
            }
        }
        found
    }
}

impl State {
    /// Marks taken messages, before they are delivered.
    pub fn mark_deliveries(&mut self, queue: QueueId) -> Result<(), EngineError> {
        // The next leader flags all messages that it finds.
        if self.closed || self.stopped.is_some() || self.term.is_some() {
            return Ok(());
        }
        let Some(entry) = self.queues.get_mut(&queue) else { return Ok(()) };
        let mut marks: Vec<(QueueId, Sequence)> = Vec::new();
        if let Some(priorities) = &mut entry.priorities {
            for (number, _, untaken) in entry.machine.ends_of_lanes() {
                let lane = priorities.lanes.get_mut(&number);
                let below = lane.and_then(|lane| lane.deliveries.before(untaken.within()));
                marks.extend(below.map(|below| (queue.lane(number), below)));
            }
        }
        let below = entry.deliveries.before(entry.machine.first_untaken());
        if below.is_none() && marks.is_empty() {
            return Ok(());
        }
        for (id, below) in below.map(|below| (queue, below)).into_iter().chain(marks) {
            self.put_delivery_mark(id, &below.0.to_le_bytes())?;
        }
        self.write()
    }

    /// At a stop, removes the part of the mark that was not delivered.
    pub fn end_delivery_marks(&mut self) -> Result<(), EngineError> {
        if self.stopped.is_some() {
            return Ok(());
        }
        let of_entry = |(&id, entry): (&QueueId, &QueueEntry)| {
            let lanes = entry.delivered_at_stop().into_iter();
            lanes.map(|(lane, marked, exact)| (id.lane(lane), marked, exact)).collect::<Vec<_>>()
        };
        let exact: Vec<_> = self.queues.iter().flat_map(of_entry).collect();
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
