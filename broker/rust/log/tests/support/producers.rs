//! Messages of named producers, and those that they send again after a crash: every message that does not count as
//! stored, in order, as a client without confirms does.
//!
//! Invariants: a sequence stands for one message, and a producer sends nothing new before the messages to repeat.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use penstock_log::{Log, LogError, Position, Producer, TARGETS_MAX, batch_and_row, marks, sequence_in};

use super::{Model, Stored};

/// A message of a named producer.
#[derive(Clone, Debug)]
pub struct Sent {
    pub producer: Producer,
    pub stored: Arc<Stored>,
    pub queues: Arc<[u64]>,
    /// How many disk steps were done before it was first sent.
    pub steps: usize,
}

impl Sent {
    fn id(&self) -> u64 {
        self.producer.id.get()
    }

    fn is_counted(&self, model: &Model) -> bool {
        model.producers.get(&self.id()).is_some_and(|&highest| self.producer.sequence <= highest)
    }

    /// Whether its producer has to send it again.
    pub fn is_owed(&self, model: &Model) -> bool {
        !model.forgotten.contains(&self.id()) && !self.is_counted(model)
    }

    fn queues_left(&self, model: &Model) -> Vec<u64> {
        self.queues.iter().copied().filter(|queue| !model.deleted.contains(queue)).collect()
    }

    /// Publishes it for the remaining queues, under a name that the log knows.
    pub fn publish(&self, model: &mut Model, log: &mut Log) -> Result<Vec<(Position, Model)>, LogError> {
        let queues = self.queues_left(model);
        if queues.is_empty() {
            return Ok(Vec::new());
        }
        let mut before = Vec::new();
        if !has_name(model, self.id()) {
            put_name(model, log, self.id())?;
            before.push((log.end(), model.clone()));
        }
        before.extend(model.publish_as(log, &queues, &self.stored, Some(self.producer))?);
        Ok(before)
    }

    /// Where its sequence counts as stored, each of its queues has it: once, unless it took several records, of which
    /// all but the last may also be there from an earlier attempt.
    pub fn check(&self, model: &Model) {
        if model.forgotten.contains(&self.id()) || !self.is_counted(model) {
            return;
        }
        let queues = self.queues_left(model);
        for &queue in &queues {
            let copies =
                model.queues.get(&queue).and_then(|queue| queue.copies.get(&(self.id(), self.producer.sequence)));
            let copies = copies.copied().unwrap_or(0);
            assert!(copies > 0, "{:?} counts as stored, and queue {queue} does not have it", self.producer);
            let may_be_twice = self.queues.len() > TARGETS_MAX && self.queues.last() != Some(&queue);
            assert!(copies == 1 || may_be_twice, "{:?} is stored {copies} times in queue {queue}", self.producer);
        }
    }
}

fn name_of(id: u64) -> Vec<u8> {
    format!("producer {id}").into_bytes()
}

pub fn has_name(model: &Model, id: u64) -> bool {
    model.marks.contains_key(&(marks::PRODUCER_NAMES.to_vec(), name_of(id)))
}

pub fn put_name(model: &mut Model, log: &mut Log, id: u64) -> Result<(), LogError> {
    model.put_mark(log, marks::PRODUCER_NAMES, &name_of(id), &id.to_le_bytes())
}

/// Removes a name and then its state. Returns where the first of the two records ends, and the content there.
pub fn forget(model: &mut Model, log: &mut Log, id: u64) -> Result<Vec<(Position, Model)>, LogError> {
    model.put_mark(log, marks::PRODUCER_NAMES, &name_of(id), &[])?;
    model.forgotten.insert(id);
    let before = (log.end(), model.clone());
    log.append_mark(&marks::owner_of_producer(id), &[], &[])?;
    model.producers.remove(&id);
    model.batches.remove(&id);
    Ok(vec![before])
}

/// The next message of a producer that sent these. One with an odd id numbers batches, and begins one where there is a gap.
pub fn next_of(id: u64, sent: &[Sent], gap: u64) -> Producer {
    let of_it = sent.iter().filter(|sent| sent.id() == id);
    let last = of_it.map(|sent| sent.producer.sequence).max().unwrap_or(0);
    let sequence = match batch_and_row(last) {
        _ if id.is_multiple_of(2) => last + 1 + gap,
        None => sequence_in(0, 1),
        Some((batch, _)) if gap > 0 => sequence_in(batch + gap as u32, 1),
        Some(_) => last + 1,
    };
    Producer { id: NonZeroU64::new(id).unwrap(), sequence }
}

/// The digest of a batch up to a row.
pub fn digest_of(batch: u32, row: u32) -> NonZeroU32 {
    NonZeroU32::new(batch * 1000 + row).unwrap()
}
