//! What a lease needs of a queue: to hold the very messages that it held before a start, and to give back what is too much.
//!
//! A lease is a subscription that never has credit: what it holds is unsettled like what a consumer holds, and no invariant
//! of the queue knows the difference.

use crate::ids::SequenceRange;
use crate::machine::{Queue, Settled};
use crate::subscription::{Subscription, SubscriptionId, SubscriptionSettings};

impl Queue {
    /// A subscription that holds the ready messages of these ranges, and no others; it costs what lies below the highest of
    /// them and was never taken. `bytes` are those of all of them together: each message counts with its share, so that the
    /// sum is right when they are settled, and nobody has to read them for that.
    pub fn hold(&mut self, ranges: &[SequenceRange], bytes: u64) -> SubscriptionId {
        let settings = SubscriptionSettings { prefetch: 0, auto_ack: false, exclusive: false };
        let mut subscription = Subscription::new(settings);
        let mut taken = Vec::new();
        for &range in ranges {
            self.backlog.take_range(range, &mut taken);
        }
        let count = ranges.iter().map(SequenceRange::count).sum::<u64>().max(1);
        let (share, larger_count) = (bytes / count, bytes % count);
        for (message, number) in taken.into_iter().zip(0..) {
            let own = share + u64::from(number < larger_count);
            let size = message.bytes().unwrap_or_else(|| u32::try_from(own).unwrap_or(u32::MAX));
            if message.bytes().is_none() {
                self.backlog.sized(message.sequence, size);
            }
            self.unsettled_count += 1;
            self.unsettled_bytes += u64::from(size);
            subscription.hold(message.with_bytes(size).sent());
        }
        self.slots.insert(subscription)
    }

    /// What a subscription holds, with the bytes of those whose size was told.
    #[must_use]
    pub fn held(&self, id: SubscriptionId) -> Settled {
        let mut held = Settled::default();
        if let Some(subscription) = self.slots.get(id) {
            subscription.add_up(subscription.places(SequenceRange::ALL), &mut held);
        }
        held
    }

    /// Puts what a subscription holds of these ranges back to its place, as if it had never been taken; gives how many.
    pub fn put_back(&mut self, id: SubscriptionId, ranges: &[SequenceRange]) -> u64 {
        let mut put_back = Settled::default();
        let Some(subscription) = self.slots.get_mut(id) else { return 0 };
        for &range in ranges {
            let places = subscription.places(range);
            self.unsized_count -= subscription.add_up(places.clone(), &mut put_back);
            subscription.release(places).for_each(|message| self.backlog.put_back(message));
        }
        self.forget_settled(id, &put_back);
        put_back.count
    }
}
