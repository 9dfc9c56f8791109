//! A pool of bytes with a bound, and the order of those that wait until it has room.
//!
//! What must stay true: whoever waits is woken when there is room, at the latest by [`Pool::look`]. One at a time may go on
//! beyond the bound, so that those that hold a part and need more do not wait for each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// About how much one that was woken takes.
const STEP_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    bytes_max: usize,
    used: AtomicUsize,
    waiting: Mutex<Waiting>,
    /// How many wait, to be read without the lock.
    waiting_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    /// In the order in which they came.
    wakers: BTreeMap<u64, (Instant, Waker)>,
    last_id: u64,
    /// Whether one goes on beyond the bound.
    is_exceeded: bool,
}

/// The place of one that waits for room, or goes on without.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    waits: Option<(u64, Instant)>,
    exceeds: bool,
}

impl Seat {
    /// Whether it is the one that goes on beyond the bound.
    pub fn exceeds(&self) -> bool {
        self.exceeds
    }

    pub fn waits(&self) -> bool {
        self.waits.is_some()
    }
}

impl Pool {
    pub fn new(bytes_max: usize) -> Pool {
        Pool { bytes_max, used: AtomicUsize::new(0), waiting: Mutex::default(), waiting_count: AtomicUsize::new(0) }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    pub fn has_room(&self) -> bool {
        self.used() < self.bytes_max
    }

    pub fn is_waited_for(&self) -> bool {
        self.waiting_count.load(Ordering::SeqCst) > 0
    }

    /// Counts bytes, whether there is room or not.
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::SeqCst);
    }

    pub fn give_back(&self, bytes: usize) {
        let left = self.used.fetch_sub(bytes, Ordering::SeqCst) - bytes;
        if left < self.bytes_max && self.waiting_count.load(Ordering::SeqCst) > 0 {
            self.wake((self.bytes_max - left) / STEP_BYTES + 1);
        }
    }

    /// Ready when there is room, or, for one that may exceed the bound, when no other one does.
    pub fn poll_room(&self, seat: &mut Seat, may_exceed: bool, cx: &mut Context<'_>) -> Poll<()> {
        if seat.exceeds {
            return Poll::Ready(());
        }
        if self.has_room() {
            self.withdraw(seat);
            return Poll::Ready(());
        }
        let mut waiting = self.lock();
        if may_exceed && !waiting.is_exceeded {
            (waiting.is_exceeded, seat.exceeds) = (true, true);
            self.remove(&mut waiting, seat);
            return Poll::Ready(());
        }
        let (id, since) = *seat.waits.get_or_insert_with(|| {
            waiting.last_id += 1;
            (waiting.last_id, Instant::now())
        });
        waiting.wakers.insert(id, (since, cx.waker().clone()));
        self.waiting_count.store(waiting.wakers.len(), Ordering::SeqCst);
        // Bytes that were given back before it was counted woke nobody.
        if self.has_room() {
            self.remove(&mut waiting, seat);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Waits no more, and exceeds the bound no more.
    pub fn withdraw(&self, seat: &mut Seat) {
        if !seat.exceeds && seat.waits.is_none() {
            return;
        }
        let mut waiting = self.lock();
        self.remove(&mut waiting, seat);
        if std::mem::take(&mut seat.exceeds) {
            waiting.is_exceeded = false;
        }
        drop(waiting);
        // Whatever it was woken for, the next one may use.
        self.wake(1);
    }

    fn remove(&self, waiting: &mut Waiting, seat: &mut Seat) {
        if let Some((id, _)) = seat.waits.take() {
            waiting.wakers.remove(&id);
            self.waiting_count.store(waiting.wakers.len(), Ordering::SeqCst);
        }
    }

    /// Wakes so many of those that have waited longest. Each looks again, and has its old place if it has to wait.
    fn wake(&self, count: usize) {
        let mut waiting = self.lock();
        let mut woken = Vec::new();
        for _ in 0..count {
            let Some((_, (_, waker))) = waiting.wakers.pop_first() else { break };
            woken.push(waker);
        }
        self.waiting_count.store(waiting.wakers.len(), Ordering::SeqCst);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes all when one of them may go on: those that were woken before may have had other things to do. Return since when
    /// the first waits for room.
    pub fn look(&self) -> Option<Instant> {
        if self.waiting_count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let waiting = self.lock();
        let (is_exceeded, first) =
            (waiting.is_exceeded, waiting.wakers.first_key_value().map(|(_, (since, _))| *since));
        drop(waiting);
        let has_room = self.has_room();
        if has_room || !is_exceeded {
            self.wake(usize::MAX);
        }
        first.filter(|_| !has_room)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::{Pool, STEP_BYTES, Seat};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// One that asks for room, and how often it was woken.
    #[derive(Default)]
    struct Asker {
        seat: Seat,
        woken: Arc<Woken>,
    }

    impl Asker {
        fn asks(&mut self, pool: &Pool, may_exceed: bool) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            pool.poll_room(&mut self.seat, may_exceed, &mut Context::from_waker(&waker)).is_ready()
        }

        fn woken_count(&self) -> usize {
            self.woken.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn those_that_waited_longest_are_woken_first_and_as_many_as_there_is_room_for() {
        let pool = Pool::new(10 * STEP_BYTES);
        pool.take(10 * STEP_BYTES);
        let mut askers: Vec<Asker> = (0..4).map(|_| Asker::default()).collect();
        assert!(askers.iter_mut().all(|asker| !asker.asks(&pool, false)));

        pool.give_back(STEP_BYTES);

        assert_eq!(askers.iter().map(Asker::woken_count).collect::<Vec<_>>(), [1, 1, 0, 0]);
        assert!(askers[0].asks(&pool, false));
        assert_eq!(askers[2].woken_count(), 1, "there may be room for another one");
        pool.take(STEP_BYTES);
        assert!(!askers[1].asks(&pool, false), "the room was taken");
        pool.give_back(STEP_BYTES);
        assert_eq!(askers.iter().map(Asker::woken_count).collect::<Vec<_>>(), [1, 2, 1, 1], "it kept its place");
    }

    #[test]
    fn one_at_a_time_goes_on_beyond_the_bound() {
        let pool = Pool::new(1);
        pool.take(1);
        let (mut first, mut second) = (Asker::default(), Asker::default());

        assert!(first.asks(&pool, true) && first.seat.exceeds());
        assert!(!second.asks(&pool, true));
        assert!(first.asks(&pool, true), "it goes on until it leaves");

        pool.withdraw(&mut first.seat);
        assert_eq!(second.woken_count(), 1);
        assert!(second.asks(&pool, true));
    }

    #[test]
    fn one_that_goes_away_after_it_was_woken_wakes_the_next() {
        let pool = Pool::new(1);
        pool.take(1);
        let (mut first, mut second) = (Asker::default(), Asker::default());
        assert!(!first.asks(&pool, false) && !second.asks(&pool, false));
        pool.give_back(1);
        assert_eq!((first.woken_count(), second.woken_count()), (1, 0));

        pool.withdraw(&mut first.seat);

        assert_eq!(second.woken_count(), 1);
    }

    #[test]
    fn a_look_wakes_those_that_were_passed_over_and_says_since_when_others_wait() {
        let pool = Pool::new(1);
        pool.take(1);
        let (mut first, mut second, mut exceeding) = (Asker::default(), Asker::default(), Asker::default());
        assert!(exceeding.asks(&pool, true) && !first.asks(&pool, false) && !second.asks(&pool, false));
        assert!(pool.look().is_some());
        assert_eq!(second.woken_count(), 0);

        pool.give_back(1);
        assert!(pool.look().is_none());

        assert_eq!(second.woken_count(), 1);
    }
}
