//! The times at which shards have something to do, and the thread that waits for the earliest of them.
//!
//! Invariants: a shard has at most one place among the times, whatever it lowers its own to, so memory is bounded by the
//! number of shards. While nothing is due the thread costs one look a second, however many shards there are. This module does
//! not know what a shard does at its time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;

/// The thread looks at the clock at least so often, as that may be set forward.
const WAIT_MAX_MS: u64 = 1000;

/// A subject that is called when its time has come.
pub(crate) trait Timed: Send + Sync {
    fn on_time(&self, now_ms: u64);
}

/// All times, in milliseconds of one clock.
#[derive(Default)]
pub(crate) struct Alarms {
    times: Mutex<Times>,
    changed: Condvar,
}

#[derive(Default)]
struct Times {
    /// By time, then by the number of the alarm.
    waiting: BTreeMap<(u64, u64), Weak<dyn Timed>>,
    /// The time of each alarm that waits.
    by_number: FxHashMap<u64, u64>,
    last_number: u64,
    /// When the thread looks next by itself; 0 while it is busy.
    looks_at_ms: u64,
    has_ended: bool,
}

/// The time of one shard.
pub(crate) struct Alarm {
    alarms: Arc<Alarms>,
    number: u64,
    who: OnceLock<Weak<dyn Timed>>,
    at_ms: AtomicU64,
}

impl Alarms {
    /// Waits until a time has come; returns whose, and that they go on. `None` once it has ended.
    pub fn wait(&self, clock_ms: impl Fn() -> u64) -> Option<Vec<Arc<dyn Timed>>> {
        let mut times = self.hold();
        loop {
            if times.has_ended {
                return None;
            }
            let now_ms = clock_ms();
            let due = times.take_due(now_ms);
            if !due.is_empty() {
                times.looks_at_ms = 0;
                return Some(due.iter().filter_map(Weak::upgrade).collect());
            }
            let latest_ms = now_ms.saturating_add(WAIT_MAX_MS);
            let first_ms = times.waiting.first_key_value().map_or(latest_ms, |(&(at_ms, _), _)| at_ms.min(latest_ms));
            times.looks_at_ms = first_ms;
            let pause = Duration::from_millis(first_ms.saturating_sub(now_ms));
            times = self.changed.wait_timeout(times, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Pauses, unless it ends.
    pub fn pause(&self, pause: Duration) {
        let running = |times: &mut Times| !times.has_ended;
        drop(self.changed.wait_timeout_while(self.hold(), pause, running));
    }

    /// Ends the wait.
    pub fn end(&self) {
        self.hold().has_ended = true;
        self.changed.notify_all();
    }

    fn lower(&self, number: u64, at_ms: u64, who: &Weak<dyn Timed>) {
        let mut times = self.hold();
        let before_ms = times.by_number.get(&number).copied();
        if before_ms.is_some_and(|before_ms| before_ms <= at_ms) {
            return;
        }
        times.remove(number);
        times.by_number.insert(number, at_ms);
        times.waiting.insert((at_ms, number), Weak::clone(who));
        if at_ms < times.looks_at_ms {
            times.looks_at_ms = at_ms;
            self.changed.notify_all();
        }
    }

    fn hold(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    fn take_due(&mut self, now_ms: u64) -> Vec<Weak<dyn Timed>> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now_ms) {
            self.by_number.remove(&first.key().1);
            due.push(first.remove());
        }
        due
    }

    fn remove(&mut self, number: u64) {
        if let Some(at_ms) = self.by_number.remove(&number) {
            self.waiting.remove(&(at_ms, number));
        }
    }
}

impl Alarm {
    /// The time 0 of a shard that begins later.
    pub fn new(alarms: &Arc<Alarms>) -> Alarm {
        let number = {
            let mut times = alarms.hold();
            times.last_number += 1;
            times.last_number
        };
        Alarm { alarms: Arc::clone(alarms), number, who: OnceLock::new(), at_ms: AtomicU64::new(0) }
    }

    /// Says whose time it is. It has come.
    pub fn begin(&self, who: Weak<dyn Timed>) {
        self.alarms.lower(self.number, 0, self.who.get_or_init(|| who));
    }

    pub fn at_ms(&self) -> u64 {
        self.at_ms.load(Ordering::Relaxed)
    }

    /// Lowers the time, if it is later. This costs one step unless it is.
    #[inline]
    pub fn lower(&self, at_ms: u64) {
        if at_ms < self.at_ms.fetch_min(at_ms, Ordering::Relaxed)
            && let Some(who) = self.who.get()
        {
            self.alarms.lower(self.number, at_ms, who);
        }
    }

    /// Forgets the time that has come. What is to be done later is found afterwards, or lowers it again.
    pub fn clear(&self) {
        self.at_ms.store(u64::MAX, Ordering::Relaxed);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.hold().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    impl Timed for AtomicU64 {
        fn on_time(&self, now_ms: u64) {
            self.store(now_ms, Ordering::SeqCst);
        }
    }

    fn shards<const COUNT: usize>(alarms: &Arc<Alarms>) -> [(Arc<AtomicU64>, Alarm); COUNT] {
        std::array::from_fn(|_| {
            let shard = Arc::new(AtomicU64::new(0));
            let alarm = Alarm::new(alarms);
            alarm.begin(Arc::<AtomicU64>::downgrade(&shard));
            (shard, alarm)
        })
    }

    /// Which of some are due.
    fn due<const COUNT: usize>(
        alarms: &Alarms,
        now_ms: u64,
        shards: &[(Arc<AtomicU64>, Alarm); COUNT],
    ) -> [bool; COUNT] {
        let due = alarms.hold().take_due(now_ms);
        std::array::from_fn(|at| {
            let is_due = due.iter().any(|one| std::ptr::addr_eq(one.as_ptr(), Arc::as_ptr(&shards[at].0)));
            if is_due {
                shards[at].1.clear();
            }
            is_due
        })
    }

    #[test]
    fn each_is_due_once_at_its_lowest_time() {
        let alarms = Arc::default();
        let shards = shards::<2>(&alarms);
        assert_eq!(due(&alarms, 0, &shards), [true; 2], "a start does not know yet");
        let [(_, one), (_, other)] = &shards;
        [30, 40, 20].iter().for_each(|&at_ms| one.lower(at_ms));
        other.lower(25);
        assert_eq!(alarms.hold().waiting.len(), 2);

        assert_eq!(due(&alarms, 19, &shards), [false; 2]);
        assert_eq!(due(&alarms, 24, &shards), [true, false]);
        assert_eq!(due(&alarms, 40, &shards), [false, true]);
        assert_eq!(due(&alarms, u64::MAX, &shards), [false; 2]);
    }

    #[test]
    fn one_that_is_dropped_takes_its_time_along() {
        let alarms = Arc::default();
        drop(shards::<1>(&alarms));

        let times = alarms.hold();
        assert!(times.waiting.is_empty() && times.by_number.is_empty());
    }

    /// As a deadline of some milliseconds behind one of a second.
    #[test]
    fn an_earlier_time_ends_the_wait_for_a_later_one() {
        let alarms = Arc::default();
        let shards = shards::<2>(&alarms);
        due(&alarms, 0, &shards);
        shards[0].1.lower(1000);
        let now_ms = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| alarms.wait(|| now_ms.load(Ordering::SeqCst)).unwrap());
            while alarms.hold().looks_at_ms == 0 {
                std::thread::yield_now();
            }
            now_ms.store(7, Ordering::SeqCst);

            shards[1].1.lower(7);

            waiter.join().unwrap().iter().for_each(|one| one.on_time(7));
        });
        assert_eq!([0, 1].map(|at: usize| shards[at].0.load(Ordering::SeqCst)), [0, 7]);
        alarms.end();
        assert!(alarms.wait(|| 0).is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_lowered_each_is_due_at_its_own_time(
            steps in prop::collection::vec((0..4_usize, 0..50_u64, any::<bool>()), 1..60),
        ) {
            let alarms = Arc::default();
            let shards = shards::<4>(&alarms);
            let mut times = [0; 4];
            for (at, at_ms, is_look) in steps {
                if is_look {
                    let expected = times.map(|time| time <= at_ms);
                    prop_assert_eq!(due(&alarms, at_ms, &shards), expected);
                    times = times.map(|time| if time <= at_ms { u64::MAX } else { time });
                } else {
                    shards[at].1.lower(at_ms);
                    times[at] = times[at].min(at_ms);
                }
                let waiting = times.iter().filter(|&&time| time < u64::MAX).count();
                prop_assert_eq!(alarms.hold().waiting.len(), waiting);
            }
        }
    }
}
