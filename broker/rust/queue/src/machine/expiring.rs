//! Operations for messages with times: delayed ones, and those that go.
//!
//! The machine knows no time: the caller says which messages go, and which are ready.

use std::collections::BTreeMap;

use crate::ids::{Sequence, SequenceRange};
use crate::machine::Queue;
use crate::retry::RetrySchedule;
use crate::settled::{Settled, Standing, extend};
use crate::subscription::SubscriptionId;

impl Queue {
    /// Stores a message that is not ready until it is released; returns its sequence.
    pub fn publish_delayed(&mut self, body_bytes: u64) -> Sequence {
        self.backlog.publish_delayed(body_bytes)
    }

    /// Returns messages of some ranges that a subscription holds to their places, as if they had not been taken, until they
    /// are released.
    pub fn put_aside(&mut self, id: SubscriptionId, ranges: &[SequenceRange]) {
        let mut put_aside = Settled::default();
        let Some(subscription) = self.slots.get_mut(id) else { return };
        for &range in ranges {
            let places = subscription.places(range);
            self.unsized_count -= subscription.add_up(places.clone(), &mut put_aside);
            subscription.release(places).for_each(|message| self.backlog.put_aside(message.untouched()));
        }
        self.forget_settled(id, &put_aside);
    }

    /// Puts those of some messages aside that no subscription has: they are not ready until they are released. Returns them,
    /// with those that wait already.
    pub fn set_aside(&mut self, sequences: impl IntoIterator<Item = Sequence>) -> Vec<SequenceRange> {
        let mut aside = Vec::new();
        for sequence in sequences {
            if self.backlog.set_aside(sequence) {
                extend(&mut aside, SequenceRange { first: sequence, last: sequence });
            }
        }
        aside
    }

    /// The messages in these ranges that came back after more deliveries than the limit and that no subscription has.
    #[must_use]
    pub fn delivered_more_often(&self, ranges: &[SequenceRange], limit: u32) -> Vec<Sequence> {
        ranges.iter().flat_map(|&range| self.backlog.delivered_more_often(range, limit)).collect()
    }

    /// Some messages that came back and wait, by how long their schedule makes them wait, in ms. Those that need not wait
    /// are ready from now on, and are returned under 0.
    pub fn back_off(
        &mut self,
        sequences: impl IntoIterator<Item = Sequence>,
        schedule: &RetrySchedule,
    ) -> BTreeMap<u64, Vec<SequenceRange>> {
        let mut waiting: BTreeMap<u64, Vec<SequenceRange>> = BTreeMap::new();
        for sequence in sequences {
            let delay_ms = schedule.delay_ms(self.backlog.deliveries_of_waiting(sequence));
            if delay_ms == 0 {
                self.backlog.release(sequence);
            }
            extend(waiting.entry(delay_ms).or_default(), SequenceRange::of(sequence));
        }
        waiting
    }

    /// After a start: makes a ready message wait until it is released.
    pub fn delay_recovered(&mut self, sequence: Sequence) {
        self.backlog.delay_recovered(sequence);
    }

    /// Makes a ready message that no subscription took yet wait until it is released; returns whether it does.
    pub fn delay(&mut self, sequence: Sequence) -> bool {
        let before = self.backlog.delayed_count();
        self.backlog.delay_recovered(sequence);
        self.backlog.delayed_count() > before
    }

    /// Makes those of some messages ready that are delayed; returns how many.
    pub fn release(&mut self, sequences: &[Sequence]) -> u64 {
        sequences.iter().map(|&sequence| u64::from(self.backlog.release(sequence))).sum()
    }

    /// The messages that no subscription has, delayed ones included.
    #[must_use]
    pub fn free_count(&self) -> u64 {
        self.backlog.count() + self.backlog.delayed_count()
    }

    /// The messages that are stored and not ready yet.
    #[must_use]
    pub fn delayed_count(&self) -> u64 {
        self.backlog.delayed_count()
    }

    /// Settles those of some messages that are ready or delayed, each with the size of its body. Also returns the ones that a
    /// subscription holds, which stay with it.
    pub fn expire(&mut self, messages: &[(Sequence, u32)]) -> (Settled, Vec<Sequence>) {
        let found = self.backlog.expire(messages);
        self.forget_lost_bytes();
        found
    }

    /// The ready messages from a sequence on, at most so many in all.
    #[must_use]
    pub fn ready_from(&self, from: Sequence, count_max: u64) -> Vec<SequenceRange> {
        self.backlog.ready_from(from, count_max)
    }

    #[must_use]
    pub fn standing(&self, sequence: Sequence) -> Standing {
        self.backlog.standing(sequence)
    }
}
