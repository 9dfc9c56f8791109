//! How a queue gets the lanes that a start found under numbers of their own, and the leases of their messages.
//!
//! Invariants: a lease is held once all lanes are known in which it may have messages; until then nothing expires, because
//! its messages look ready. The map of queues keeps no room for many more than it has, once lanes have left it.

use std::collections::BTreeMap;

use penstock_queue::{AckSet, Queue, QueueId, Sequence};

use crate::error::EngineError;
use crate::lease::{Found, Lease};
use crate::priorities::{Lane, Priorities};
use crate::queue_entry::QueueEntry;
use crate::state::State;

/// The map of queues shrinks when it holds less than a fourth of what it has room for, to half of it or less: shrinking costs each
/// lane that leaves it a constant time.
const ROOM_SHARE: usize = 4;

impl State {
    /// The entry of a queue, which is made if there is none.
    pub fn entry_of(&mut self, id: QueueId) -> &mut QueueEntry {
        let first = self.first_sequence;
        self.queues.entry(id).or_insert_with(|| {
            let machine = Queue::recovered(first, AckSet::starting_at(first), 0, 0, BTreeMap::new());
            let skipped = first.0 - Sequence::FIRST.0;
            QueueEntry { skipped, ..QueueEntry::new("", machine, false) }
        })
    }

    /// Makes a queue one with priorities, or with keys that take turns, and takes over what was found under the numbers of its
    /// lanes. It does nothing when the queue has them.
    pub fn lay_out(&mut self, id: QueueId, highest: u8, has_keys: bool) {
        let turns = self.turn_lanes.remove(&id).unwrap_or_default();
        if (highest == 0 && !has_keys && turns.is_empty()) || self.priorities.contains_key(&id) {
            return;
        }
        self.priorities.insert(id, highest);
        let has_turns = has_keys || !turns.is_empty();
        let lanes = (1..=u16::from(highest)).chain(turns);
        let found: Vec<(u16, QueueEntry)> =
            lanes.filter_map(|lane| Some((lane, self.queues.remove(&id.lane(lane))?))).collect();
        if self.queues.len() < self.queues.capacity() / ROOM_SHARE {
            self.queues.shrink_to(2 * self.queues.len());
        }
        let waiting = self.waiting_leases.remove(&id);
        let entry = self.entry_of(id);
        if has_turns {
            entry.machine.set_priorities(u16::from(highest) + 1);
        }
        let mut priorities = Priorities { highest, lanes: BTreeMap::new() };
        for (number, QueueEntry { machine, recovered_below, skipped, deliveries, .. }) in found {
            entry.machine.put_lane(number, machine);
            let recovered_below = recovered_below.in_lane(number);
            priorities.lanes.insert(number, Lane { recovered_below, skipped, deliveries });
        }
        entry.priorities = Some(Box::new(priorities));
        if let Some(found) = waiting {
            self.hold_leases(id, found);
            self.next_expiry.lower(0);
        }
    }

    /// Records that a queue is deleted, each of its lanes.
    pub fn delete_lanes(&mut self, id: QueueId, entry: &QueueEntry) -> Result<(), EngineError> {
        for lane in entry.machine.lanes().chain([0]) {
            self.log.append_delete(id.lane(lane))?;
        }
        Ok(())
    }

    /// The queue and the lane that have a number in the log.
    pub fn queue_of(&self, id: QueueId) -> (QueueId, u16) {
        if let Some((queue, lane)) = id.of_turn() {
            return if self.priorities.contains_key(&queue) { (queue, lane) } else { (id, 0) };
        }
        let below = self.priorities.range(..=id).next_back();
        let lane = below.and_then(|(&queue, &highest)| {
            let lane = u16::try_from(id.0 - queue.0).ok().filter(|&lane| lane <= highest.into())?;
            Some((queue, lane))
        });
        lane.unwrap_or((id, 0))
    }

    /// Makes a queue's machine hold the leases that a start found, now or once the queue has its lanes.
    pub fn hold_leases(&mut self, queue: QueueId, owners: Found) {
        let leases = owners.values().flat_map(|found| found.leases.values());
        let mut ranges = leases.flat_map(|found| &found.ranges);
        // A queue that is not there yet may have had messages with priorities only.
        let may_have_lanes = !self.queues.contains_key(&queue) || ranges.any(|range| range.last.lane() > 0);
        if !self.priorities.contains_key(&queue) && may_have_lanes {
            self.waiting_leases.insert(queue, owners);
            return;
        }
        let Some(entry) = self.queues.get_mut(&queue) else { return };
        for (name, found) in owners {
            let owner = entry.leases.owners.entry(name).or_default();
            owner.acked = found.acked;
            for (number, found) in found.leases {
                let holder = entry.machine.hold(&found.ranges, found.bytes);
                let (bytes, reserved_at_ms) = (found.bytes, found.reserved_at_ms);
                owner.leases.insert(number, Lease { holder, ranges: found.ranges, bytes, reserved_at_ms });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use penstock_log::{Attributes, Payload};

    use super::*;
    use crate::engine::{Engine, EngineOptions};
    use crate::publication::Publication;
    use crate::shard::Shard;

    const QUEUES: u64 = 20;

    fn open(directory: &Path) -> (Engine, Arc<Shard>) {
        let options = EngineOptions {
            segment_bytes_min: 1 << 20,
            segment_bytes_max: 1 << 20,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let engine = Engine::new(options).unwrap();
        let shard = engine.open_shard("/", directory, false).unwrap();
        for number in 0..QUEUES {
            let id = QueueId(1 + 256 * number);
            shard.prioritize_queues([(id, 255)]).unwrap();
            shard.put_queue(id, &number.to_string(), false, None).unwrap();
        }
        (engine, shard)
    }

    /// It had a place for each lane, which takes more memory than the lane.
    #[test]
    fn the_map_of_queues_keeps_no_room_for_lanes_that_have_left_it() {
        let directory = tempfile::tempdir().unwrap();
        let (engine, shard) = open(directory.path());
        for number in 0..QUEUES {
            let key = number.to_string();
            let key = key.as_bytes();
            for priority in 0..=255 {
                let attributes = Attributes { priority: Some(priority), ..Attributes::default() };
                let payload = Payload::new(b"", key, b"", b"body").unwrap().with_attributes(&attributes);
                let one =
                    Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: true };
                shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
            }
        }
        engine.close().unwrap();

        let (engine, shard) = open(directory.path());

        assert!(shard.lock().unwrap().queues.capacity() <= 8 * QUEUES as usize);
        let ids: Vec<QueueId> = (0..QUEUES).map(|number| QueueId(1 + 256 * number)).collect();
        assert!(shard.queue_counts(&ids).unwrap().iter().all(|counts| counts.ready_count == 256));
        engine.close().unwrap();
    }
}
