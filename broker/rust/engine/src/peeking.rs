//! Looking at the ready messages of a queue: nothing is taken, delivered or written, and consumers notice nothing.

use std::sync::Arc;

use penstock_queue::{Queue, QueueId, Sequence, SequenceRange, Taken};

use crate::error::EngineError;
use crate::expiry::Found;
use crate::shard::Shard;
use crate::subscription::{Filled, Picked};

/// Ready messages, and where to look on; nothing when there are no more.
#[derive(Debug, Default)]
pub struct Peeked {
    pub filled: Vec<Filled>,
    pub next: Option<Sequence>,
}

impl Shard {
    /// Finds ready messages in the order in which consumers would take them, at most so many: from the head on, or, unless
    /// `from` is 0, from this message on. Messages that no segment has are left out.
    ///
    /// # Errors
    /// `NoQueue`; `IsStream`; `Log` when a directory cannot be read.
    pub fn peek(&self, queue: QueueId, from: Sequence, count_max: u64) -> Result<Peeked, EngineError> {
        let mut guard = self.lock()?;
        let entry = self.entry(&mut guard, queue)?;
        if entry.stream.is_some() {
            return Err(EngineError::IsStream(entry.name.clone()));
        }
        let (ranges, next) = ready_from(&entry.machine, from, count_max);
        Ok(Peeked { filled: by_segment(guard.find_all(queue, &ranges, 0)?), next })
    }
}

/// The lanes of the highest priority first, each in its order: those of keys one after the other.
fn ready_from(machine: &Queue, from: Sequence, count_max: u64) -> (Vec<SequenceRange>, Option<Sequence>) {
    let (mut found, mut left) = (Vec::new(), count_max);
    let lanes = machine.lanes_in_order();
    let is_head = from == Sequence(0);
    for lane in lanes.into_iter().skip_while(|lane| !is_head && *lane != from.lane()) {
        let is_first = !is_head && lane == from.lane();
        let ready = machine.ready_from(if is_first { from } else { Sequence(0).in_lane(lane) }, left);
        left -= ready.iter().map(SequenceRange::count).sum::<u64>().min(left);
        found.extend(ready);
        if left == 0 {
            break;
        }
    }
    let next = found.last().filter(|_| left == 0).map(|range| range.last.next());
    (found, next)
}

fn by_segment(found: Vec<Found>) -> Vec<Filled> {
    let mut filled: Vec<Filled> = Vec::new();
    for Found { sequence, segment, offset } in found {
        let picked = Picked { taken: Taken { sequence, delivery_count: 0, redelivered: false }, offset };
        match filled.last_mut() {
            Some(last) if Arc::ptr_eq(&last.segment, &segment) => last.picked.push(picked),
            _ => filled.push(Filled { segment, picked: vec![picked] }),
        }
    }
    filled
}
