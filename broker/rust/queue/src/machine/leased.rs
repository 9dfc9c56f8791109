//! Operations for leases: hold exactly the messages from before a start, and put back the excess.
//!
//! A lease is a subscription without credit: its messages are unacked like a consumer's, and no invariant of the
//! queue differs.

use crate::ids::SequenceRange;
use crate::machine::Queue;
use crate::settled::{Settled, extend};
use crate::subscription::{Rank, Subscription, SubscriptionId, SubscriptionSettings};

impl Queue {
    /// Makes a subscription that holds exactly the messages of these ranges that are ready or wait; the cost depends on the
    /// messages below the highest of them that were never taken. `bytes` is their sum: each message counts with its share, so
    /// that the sum is right when they are settled without reading them.
    pub fn hold(&mut self, ranges: &[SequenceRange], bytes: u64) -> SubscriptionId {
        let settings = SubscriptionSettings { prefetch: 0, auto_ack: false, exclusive: false };
        let mut subscription = Subscription::new(settings, Rank::Pull);
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
            self.unacked_count += 1;
            self.unacked_bytes += u64::from(size);
            subscription.hold(message.with_bytes(size).sent());
        }
        self.slots.insert(subscription)
    }

    /// The messages of these ranges that a subscription holds.
    #[must_use]
    pub fn held_in(&self, id: SubscriptionId, ranges: &[SequenceRange]) -> Vec<SequenceRange> {
        let mut held = Settled::default();
        if let Some(subscription) = self.slots.get(id) {
            for &range in ranges {
                subscription.add_up(subscription.places(range), &mut held);
            }
        }
        held.ranges
    }

    /// The messages that a subscription holds and that were sent to it.
    #[must_use]
    pub fn sent_to(&self, id: SubscriptionId) -> Vec<SequenceRange> {
        let mut sent = Vec::new();
        let held = self.slots.get(id).into_iter().flat_map(Subscription::held);
        held.filter(|message| message.is_sent())
            .for_each(|message| extend(&mut sent, SequenceRange::of(message.sequence)));
        sent
    }

    /// The messages of a subscription, with the bytes of those with a reported size.
    #[must_use]
    pub fn held(&self, id: SubscriptionId) -> Settled {
        let mut held = Settled::default();
        if let Some(subscription) = self.slots.get(id) {
            subscription.add_up(subscription.places(SequenceRange::ALL), &mut held);
        }
        held
    }

    /// Puts messages of these ranges that a subscription holds back to their places, as if they had never been taken;
    /// returns how many.
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
