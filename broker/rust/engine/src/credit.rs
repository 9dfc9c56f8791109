//! A credit that several subscriptions share, as those of an AMQP channel do: how many messages they may hold unacked
//! together, beside the prefetch of each.
//!
//! Its subscriptions may be of queues with different logs, so it has a lock of its own, which is taken under a shard's lock
//! and never the other way round.
//!
//! Invariants: what is held is the sum of what the shares count, and no share takes what is not left. While credit is left
//! and subscriptions that were refused wait for it, one that was woken has not looked yet: it wakes the next one when it
//! has.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::signal::{Signal, Wakes};

/// See the module.
#[derive(Debug)]
pub struct Credit(Mutex<Shared>);

#[derive(Debug)]
struct Shared {
    limit: u32,
    is_paused: bool,
    held: u64,
    /// Shares that were refused, in the order of their refusals.
    waiting: VecDeque<Arc<Share>>,
}

/// One subscription's part of a credit.
#[derive(Debug)]
pub(crate) struct Share {
    credit: Arc<Credit>,
    signal: Arc<Signal>,
    /// How many messages it counts in the credit: while the subscription takes, this may be more than it holds. It and
    /// `waits` change under the credit's lock.
    held: AtomicU32,
    waits: AtomicBool,
}

impl Credit {
    /// A credit for so many messages; `u32::MAX` is no limit.
    #[must_use]
    pub fn new(limit: u32) -> Credit {
        Credit(Mutex::new(Shared { limit, is_paused: false, held: 0, waiting: VecDeque::new() }))
    }

    /// How many messages its subscriptions hold.
    #[must_use]
    pub fn held_count(&self) -> u64 {
        self.shared().held
    }

    /// Whether it is a limit at all.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.shared().limit < u32::MAX
    }

    /// Changes how many messages its subscriptions may hold; they keep messages beyond that.
    pub fn set_limit(&self, limit: u32) {
        self.change(|shared| shared.limit = limit);
    }

    /// Its subscriptions take nothing until it is resumed.
    pub fn pause(&self) {
        self.change(|shared| shared.is_paused = true);
    }

    pub fn resume(&self) {
        self.change(|shared| shared.is_paused = false);
    }

    fn change(&self, change: impl FnOnce(&mut Shared)) {
        // Dropped last: it wakes after the lock is released.
        let mut wakes = Wakes::default();
        let mut shared = self.shared();
        change(&mut shared);
        shared.wake_next(&mut wakes);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn left(&self) -> u64 {
        if self.is_paused { 0 } else { u64::from(self.limit).saturating_sub(self.held) }
    }

    fn wake_next(&mut self, wakes: &mut Wakes) {
        if self.left() > 0
            && let Some(next) = self.waiting.pop_front()
        {
            next.waits.store(false, Ordering::Relaxed);
            wakes.add(&next.signal);
        }
    }
}

impl Share {
    pub fn new(credit: &Arc<Credit>, signal: &Arc<Signal>) -> Arc<Share> {
        let (credit, signal) = (Arc::clone(credit), Arc::clone(signal));
        Arc::new(Share { credit, signal, held: AtomicU32::new(0), waits: AtomicBool::new(false) })
    }

    /// Counts at most so many messages that the subscription is about to take, and returns how many: no more than an equal
    /// part of what it and the waiting ones could have. Without credit it waits in its turn. It is counted anew afterwards.
    pub fn reserve(self: &Arc<Self>, wanted: u32) -> u32 {
        if wanted == 0 {
            return 0;
        }
        let mut shared = self.credit.shared();
        let left = shared.left();
        if left == 0 {
            if !self.waits.swap(true, Ordering::Relaxed) {
                shared.waiting.push_back(Arc::clone(self));
            }
            return 0;
        }
        let part = (left / (1 + shared.waiting.len() as u64)).max(1);
        let reserved = wanted.min(u32::try_from(part).unwrap_or(u32::MAX));
        shared.held += u64::from(reserved);
        self.held.fetch_add(reserved, Ordering::Relaxed);
        reserved
    }

    /// Whether it was refused and not woken since.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Counts what the subscription holds now, and wakes the next one that waits when credit is left.
    pub fn recount(&self, held: u32, wakes: &mut Wakes) {
        let mut shared = self.credit.shared();
        let before = self.held.swap(held, Ordering::Relaxed);
        shared.held = (shared.held + u64::from(held)).saturating_sub(u64::from(before));
        shared.wake_next(wakes);
    }

    /// Releases everything once the subscription has ended.
    pub fn leave(&self) {
        let before = self.held.swap(0, Ordering::Relaxed);
        self.credit.change(|shared| {
            shared.held = shared.held.saturating_sub(u64::from(before));
            if self.waits.swap(false, Ordering::Relaxed) {
                shared.waiting.retain(|other| !std::ptr::eq(Arc::as_ptr(other), self));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(credit: &Arc<Credit>) -> Arc<Share> {
        Share::new(credit, &Arc::default())
    }

    /// Whether it was woken since the last question.
    fn is_woken(share: &Share) -> bool {
        let heard = std::pin::pin!(share.signal.heard());
        heard.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[test]
    fn those_that_were_refused_get_equal_parts_in_their_turn() {
        let credit = Arc::new(Credit::new(9));
        let [busy, one, two, three] = [(); 4].map(|()| share(&credit));
        assert_eq!(busy.reserve(100), 9);
        assert_eq!([&one, &two, &three, &one].map(|share| share.reserve(100)), [0; 4]);
        assert!(one.waits() && credit.held_count() == 9);

        busy.recount(0, &mut Wakes::default());

        let mut got = Vec::new();
        for next in [&one, &two, &three] {
            assert_eq!(
                [&one, &two, &three].map(|share| is_woken(share)),
                [&one, &two, &three].map(|share| Arc::ptr_eq(share, next))
            );
            let reserved = next.reserve(100);
            next.recount(reserved, &mut Wakes::default());
            got.push(reserved);
        }
        assert_eq!(got, [3, 3, 3]);
    }

    #[test]
    fn a_lower_limit_takes_nothing_away_and_a_higher_one_wakes() {
        let credit = Arc::new(Credit::new(5));
        let [one, other] = [(); 2].map(|()| share(&credit));
        assert_eq!(one.reserve(4), 4);
        credit.set_limit(2);
        assert_eq!((other.reserve(1), credit.held_count()), (0, 4));
        one.recount(3, &mut Wakes::default());
        assert!(!is_woken(&other));

        credit.set_limit(4);

        assert!(is_woken(&other) && !other.waits());
        assert_eq!(other.reserve(5), 1);
    }

    #[test]
    fn while_it_is_paused_nothing_is_left_of_it() {
        let credit = Arc::new(Credit::new(5));
        let [one, other] = [(); 2].map(|()| share(&credit));
        assert_eq!(one.reserve(1), 1);
        credit.pause();
        assert_eq!([&one, &other].map(|share| share.reserve(1)), [0, 0]);
        one.recount(0, &mut Wakes::default());
        assert!(!is_woken(&one) && !is_woken(&other));

        credit.resume();

        assert!(is_woken(&one) && !is_woken(&other), "in turn");
        one.recount(one.reserve(1), &mut Wakes::default());
        assert!(is_woken(&other));
    }

    #[test]
    fn one_that_leaves_frees_what_it_held_and_its_turn() {
        let credit = Arc::new(Credit::new(1));
        let [busy, left, next] = [(); 3].map(|()| share(&credit));
        assert_eq!([&busy, &left, &next].map(|share| share.reserve(1)), [1, 0, 0]);

        left.leave();
        assert!(!is_woken(&next));
        busy.leave();

        assert!(is_woken(&next) && !is_woken(&left));
        assert_eq!((credit.held_count(), Arc::strong_count(&left)), (0, 1));
    }
}
