//! Queues that are deleted when they were unused for some time: when each was used last, and which one is due next.
//!
//! A use only writes the time. Invariants: each queue has one place among the times, at or before the moment when it is due, so
//! that nothing looks at a queue before one of its times has come; a start is a use.

use std::collections::BTreeSet;

use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// A queue that is in use, or whose deletion failed, is looked at again after this at the earliest.
const AGAIN_MS: u64 = 100;

#[derive(Debug)]
struct Idle {
    after_ms: u64,
    used_at_ms: u64,
    /// Its place among the times.
    looked_at_ms: u64,
}

impl Idle {
    fn due_at_ms(&self) -> u64 {
        self.used_at_ms.saturating_add(self.after_ms)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct IdleQueues {
    queues: FxHashMap<QueueId, Idle>,
    times: BTreeSet<(u64, QueueId)>,
}

impl IdleQueues {
    /// Sets after which time without a use a queue is deleted; `None` is never. The time begins now where it changes.
    pub fn set(&mut self, id: QueueId, after_ms: Option<u64>, now_ms: u64) {
        if self.queues.get(&id).map(|idle| idle.after_ms) == after_ms {
            return;
        }
        self.forget(id);
        if let Some(after_ms) = after_ms {
            let looked_at_ms = now_ms.saturating_add(after_ms);
            self.queues.insert(id, Idle { after_ms, used_at_ms: now_ms, looked_at_ms });
            self.times.insert((looked_at_ms, id));
        }
    }

    pub fn forget(&mut self, id: QueueId) {
        if let Some(idle) = self.queues.remove(&id) {
            self.times.remove(&(idle.looked_at_ms, id));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Notes that a queue is used.
    pub fn used(&mut self, id: QueueId, now_ms: u64) {
        if let Some(idle) = self.queues.get_mut(&id) {
            idle.used_at_ms = idle.used_at_ms.max(now_ms);
        }
    }

    /// When to look next.
    pub fn next_ms(&self) -> Option<u64> {
        self.times.first().map(|(at_ms, _)| *at_ms)
    }

    /// Whether a queue was unused for its time.
    pub fn is_due(&self, id: QueueId, now_ms: u64) -> bool {
        self.queues.get(&id).is_some_and(|idle| idle.due_at_ms() <= now_ms)
    }

    /// The queues that were unused for their time, of which the caller says whether they are in use at this moment; at most so
    /// many are looked at.
    pub fn take_due(&mut self, now_ms: u64, most: usize, is_in_use: impl Fn(QueueId) -> bool) -> Vec<QueueId> {
        let mut due = Vec::new();
        for _ in 0..most {
            let Some(&(at_ms, id)) = self.times.first().filter(|(at_ms, _)| *at_ms <= now_ms) else { break };
            self.times.remove(&(at_ms, id));
            let Some(idle) = self.queues.get_mut(&id) else { continue };
            if is_in_use(id) {
                idle.used_at_ms = idle.used_at_ms.max(now_ms);
            } else if idle.due_at_ms() <= now_ms {
                due.push(id);
            }
            idle.looked_at_ms = idle.due_at_ms().max(now_ms.saturating_add(AGAIN_MS));
            self.times.insert((idle.looked_at_ms, id));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_MS, IdleQueues};
    use penstock_queue::QueueId;

    const ONE: QueueId = QueueId(1);
    const OTHER: QueueId = QueueId(2);

    fn due(idle: &mut IdleQueues, now_ms: u64, in_use: &[QueueId]) -> Vec<QueueId> {
        idle.take_due(now_ms, 100, |id| in_use.contains(&id))
    }

    #[test]
    fn a_queue_is_due_after_its_time_without_a_use_and_again_until_it_is_gone() {
        let mut idle = IdleQueues::default();
        idle.set(ONE, Some(1000), 5000);
        idle.set(OTHER, Some(3000), 5000);
        assert_eq!((idle.next_ms(), due(&mut idle, 5999, &[])), (Some(6000), vec![]));
        idle.used(ONE, 5500);

        assert_eq!((due(&mut idle, 6000, &[]), idle.next_ms()), (vec![], Some(6500)));
        assert_eq!(due(&mut idle, 6500, &[]), [ONE]);
        assert_eq!(idle.next_ms(), Some(6500 + AGAIN_MS));
        assert_eq!(due(&mut idle, 8000, &[]), [ONE, OTHER]);

        idle.forget(ONE);
        idle.set(OTHER, None, 9000);
        assert_eq!((idle.next_ms(), idle.is_empty(), due(&mut idle, u64::MAX, &[])), (None, true, vec![]));
    }

    #[test]
    fn one_in_use_is_looked_at_once_in_its_time_and_its_end_counts_from_the_last_use() {
        let mut idle = IdleQueues::default();
        idle.set(ONE, Some(1000), 0);

        assert_eq!((due(&mut idle, 1000, &[ONE]), idle.next_ms()), (vec![], Some(2000)));
        idle.used(ONE, 1700);
        assert_eq!((due(&mut idle, 2000, &[]), idle.next_ms()), (vec![], Some(2700)));
        assert!(!idle.is_due(ONE, 2699) && idle.is_due(ONE, 2700) && !idle.is_due(OTHER, u64::MAX));
    }

    #[test]
    fn ten_thousand_queues_in_use_are_looked_at_once_each_in_their_time() {
        let mut idle = IdleQueues::default();
        (0..10_000).for_each(|number| idle.set(QueueId(number), Some(60_000), 0));
        let looks = std::cell::Cell::new(0);
        let count = |_| {
            looks.set(looks.get() + 1);
            true
        };

        for now_ms in (0..=120_000).step_by(50) {
            while idle.next_ms().is_some_and(|at_ms| at_ms <= now_ms) {
                assert_eq!(idle.take_due(now_ms, 1024, count), []);
            }
        }

        assert_eq!(looks.get(), 20_000);
    }

    #[test]
    fn the_same_time_again_is_no_use_and_another_one_begins_anew() {
        let mut idle = IdleQueues::default();
        idle.set(ONE, Some(1000), 0);
        idle.set(ONE, Some(1000), 600);
        assert_eq!(idle.next_ms(), Some(1000));

        idle.set(ONE, Some(500), 600);

        assert_eq!(due(&mut idle, 1099, &[]), []);
        assert_eq!(due(&mut idle, 1100, &[]), [ONE]);
    }
}
