//! Expires the messages of queues that are over the age limit of their queue, lane by lane.
//!
//! Invariants: messages of a lane are stored in the order of their sequences, so a check ends at the first one that is not over
//! the limit, except where a delayed one is in front, which ages from its own time on. After a start nothing says which
//! messages are delayed: a check that reads an early one makes it wait.
//!
//! Limit: behind more than [`PASSED_MAX`] messages that were delayed and are not over the limit yet, others wait for those.

use penstock_log::Target;
use penstock_queue::{QueueId, Sequence};

use super::{AT_ONCE, CHECK_AGAIN_MS, Found, read};
use crate::aging::Aging;
use crate::error::EngineError;
use crate::priorities::target_of;
use crate::shard::Shard;
use crate::state::State;

/// The first messages of a queue that are read: mostly few are over its limit.
const AT_FIRST: u64 = 32;

/// Messages in front of a lane that were delayed and are younger than the ones behind them: one check reads at most so many.
const PASSED_MAX: usize = 4096;

/// Messages that one check of a lane makes wait; the next check follows at once.
const EARLY_MAX: usize = 16_384;

/// A check of a lane at a time, and how far it is.
struct Check {
    id: QueueId,
    now_ms: u64,
    max_age_ms: u64,
    from: Sequence,
    count_max: u64,
    expired: u64,
    /// Messages that it made wait.
    early: usize,
    /// Messages that it passed because they age from their own times on.
    passed: usize,
    /// None that it read goes before this.
    next_ms: u64,
}

/// Some messages, by what becomes of them.
#[derive(Default)]
struct Sorted {
    over: Vec<(Sequence, u32)>,
    /// Each with its own time.
    early: Vec<(Sequence, u64)>,
    passed: usize,
    /// When the first of the others may be over the limit.
    next_ms: Option<u64>,
    /// Whether the ones behind are younger.
    is_end: bool,
}

impl Shard {
    /// Sets how old the messages of queues may become; `None` is any age. It counts at once, also for messages that they have.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn limit_ages(&self, limits: impl IntoIterator<Item = (QueueId, Option<u64>)>) -> Result<(), EngineError> {
        let mut elsewhere = Vec::new();
        let mut guard = self.lock()?;
        for (id, max_age_ms) in limits {
            if guard.elsewhere.contains_key(&id) {
                elsewhere.push((id, max_age_ms));
            } else {
                guard.limit_age(id, max_age_ms);
            }
        }
        drop(guard);
        for (id, max_age_ms) in elsewhere {
            if let Some(home) = self.others.home(id) {
                home.lock()?.limit_age(id, max_age_ms);
            }
        }
        Ok(())
    }

    /// Expires messages over the age limits of their queues.
    pub(super) fn expire_aged(&self, now_ms: u64) -> Result<u64, EngineError> {
        let due: Vec<(QueueId, u64)> = {
            let mut guard = self.lock()?;
            let State { aging, queues, .. } = &mut *guard;
            aging.retain(|id, _| queues.contains_key(id));
            let due = aging.iter().filter(|(_, aging)| aging.next_ms <= now_ms);
            due.map(|(id, aging)| (*id, aging.max_age_ms)).collect()
        };
        let mut expired = 0;
        for (id, max_age_ms) in due {
            let (lanes, before) = {
                let guard = self.lock()?;
                let Some(entry) = guard.queues.get(&id) else { continue };
                (entry.machine.lanes().collect::<Vec<_>>(), entry.machine.unacked_count())
            };
            let mut next_ms = u64::MAX;
            for lane in lanes.into_iter().chain([0]) {
                let (count, lane_next_ms) = self.expire_aged_in(id, lane, (now_ms, max_age_ms))?;
                expired += count;
                next_ms = next_ms.min(lane_next_ms);
            }
            let mut guard = self.lock()?;
            let unacked_count = guard.queues.get(&id).map_or(0, |entry| entry.machine.unacked_count());
            // They may have come back in front of the ones that were read.
            let next_ms =
                if before + unacked_count > 0 { next_ms.min(now_ms.saturating_add(CHECK_AGAIN_MS)) } else { next_ms };
            // The limit may have changed meanwhile: then it is checked at once.
            if let Some(aging) = guard.aging.get_mut(&id).filter(|aging| aging.max_age_ms == max_age_ms) {
                aging.next_ms = next_ms.max(now_ms.saturating_add(1));
            }
        }
        Ok(expired)
    }

    /// Expires the messages of a lane that are over the age limit of the queue; returns how many, and when the next one may
    /// be.
    fn expire_aged_in(
        &self,
        id: QueueId,
        lane: u16,
        (now_ms, max_age_ms): (u64, u64),
    ) -> Result<(u64, u64), EngineError> {
        let (from, count_max) = (Sequence(0).in_lane(lane), AT_FIRST);
        let next_ms = u64::MAX;
        let mut check = Check { id, now_ms, max_age_ms, from, count_max, expired: 0, early: 0, passed: 0, next_ms };
        while self.expire_part(&mut check)? {
            check.count_max = (4 * check.count_max).min(AT_ONCE as u64);
        }
        Ok((check.expired, check.next_ms))
    }

    /// Expires the next messages of a lane that are over the age limit of the queue; returns whether there may be more.
    fn expire_part(&self, check: &mut Check) -> Result<bool, EngineError> {
        let id = check.id;
        let found = {
            let mut guard = self.lock()?;
            let Some(entry) = guard.queues.get(&id).filter(|entry| entry.stream.is_none()) else { return Ok(false) };
            let ready = entry.machine.ready_from(check.from, check.count_max);
            let (Some(first), Some(last)) = (ready.first(), ready.last()) else {
                // Whatever is stored or becomes ready from now on is not over the limit before.
                check.next_ms = check.next_ms.min(check.now_ms.saturating_add(check.max_age_ms));
                return Ok(false);
            };
            check.from = last.last.next();
            // An index says when its first message was stored, so nothing is read before that one may be over the limit.
            let Target { queue, sequence } = target_of(id, first.first);
            let oldest = guard.log.stored_from(queue, sequence)?;
            let at_ms = oldest.map(|stored_ms| stored_ms.saturating_add(check.max_age_ms));
            if let Some(at_ms) = at_ms.filter(|&at_ms| at_ms > check.now_ms) {
                check.next_ms = check.next_ms.min(at_ms);
                return Ok(false);
            }
            guard.find_all(id, &ready, 0)?
        };
        let sorted = check.sort(&found)?;
        self.delay_early(id, &sorted.early)?;
        let expired = self.settle_expired(id, &sorted.over)?;
        Ok(check.pass(&sorted, expired))
    }

    /// Makes messages wait that a start took for ready, each until its own time.
    fn delay_early(&self, id: QueueId, early: &[(Sequence, u64)]) -> Result<(), EngineError> {
        if early.is_empty() {
            return Ok(());
        }
        let mut guard = self.lock()?;
        let passed_ms = guard.passed_ms;
        let Some(entry) = guard.queues.get_mut(&id) else { return Ok(()) };
        // Nothing would release those whose deadlines have come meanwhile.
        let early = early.iter().filter(|&&(_, due_at_ms)| due_at_ms > passed_ms);
        early.for_each(|&(sequence, _)| entry.machine.delay_recovered(sequence));
        Ok(())
    }
}

impl Check {
    /// Reads messages, up to the first one behind which all are younger.
    fn sort(&self, found: &[Found]) -> Result<Sorted, EngineError> {
        let mut sorted = Sorted::default();
        for one in found {
            let Some(stored) = read(self.id, one)? else { continue };
            let over_at_ms = stored.born_at_ms.saturating_add(self.max_age_ms);
            match stored.due_at_ms {
                _ if over_at_ms <= self.now_ms => sorted.over.push((one.sequence, stored.body_bytes)),
                Some(due_at_ms) if due_at_ms > self.now_ms => sorted.early.push((one.sequence, due_at_ms)),
                due_at_ms => {
                    sorted.next_ms = Some(sorted.next_ms.map_or(over_at_ms, |next_ms| next_ms.min(over_at_ms)));
                    sorted.passed += 1;
                    if due_at_ms.is_none() {
                        sorted.is_end = true;
                        break;
                    }
                }
            }
        }
        Ok(sorted)
    }

    /// Notes what became of some messages; returns whether the check goes on behind them.
    fn pass(&mut self, sorted: &Sorted, expired: u64) -> bool {
        self.expired += expired;
        self.early += sorted.early.len();
        self.passed += sorted.passed;
        if let Some(next_ms) = sorted.next_ms {
            self.next_ms = self.next_ms.min(next_ms);
        }
        if expired == 0 && sorted.early.is_empty() && sorted.passed == 0 {
            // Records that cannot be read are dropped when they are delivered.
            self.next_ms = self.next_ms.min(self.now_ms.saturating_add(CHECK_AGAIN_MS));
            return false;
        }
        if self.early >= EARLY_MAX {
            self.next_ms = self.now_ms;
        }
        !sorted.is_end && self.passed < PASSED_MAX && self.early < EARLY_MAX
    }
}

impl State {
    fn limit_age(&mut self, id: QueueId, max_age_ms: Option<u64>) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        entry.max_age_ms = max_age_ms;
        match max_age_ms {
            Some(max_age_ms) => {
                if self.aging.get(&id).is_none_or(|aging| aging.max_age_ms != max_age_ms) {
                    self.aging.insert(id, Aging { max_age_ms, next_ms: 0 });
                    self.next_expiry.lower(0);
                }
            }
            None => {
                self.aging.remove(&id);
            }
        }
    }
}
