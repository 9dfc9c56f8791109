//! Delivery tags of one channel: which message of which consumer a tag stands for, until the client settles it.
//!
//! Tags ascend from 1. Settling one is a binary search; settled ones in the middle stay until as many have come together as
//! are still unacked, so that no order of acks costs more than a constant for each.

use std::collections::VecDeque;

use super::method::MethodId;
use super::reply::{Exception, ReplyCode};

/// Settled ones that may always stay.
const SLACK: usize = 64;

/// A delivery that the client has not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The channel's number for the consumer.
    pub consumer: u64,
    /// The message's number in its queue.
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    tag: u64,
    delivery: Delivery,
    is_settled: bool,
}

/// See the module. Invariant: `held` ascends by tag, `count` of it are unsettled, and the first of it is.
#[derive(Debug, Default)]
pub struct Unacked {
    /// The tag that was given last.
    last: u64,
    held: VecDeque<Held>,
    count: usize,
}

impl Unacked {
    /// Return the tag of a delivery that the client has to settle.
    #[inline]
    pub fn deliver(&mut self, delivery: Delivery) -> u64 {
        let tag = self.next_tag();
        self.held.push_back(Held { tag, delivery, is_settled: false });
        self.count += 1;
        tag
    }

    /// Return the tag of a delivery that is settled by being sent.
    #[inline]
    pub fn next_tag(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Removes the deliveries that a client settles, and hands them to `take` with their tags, oldest first. Tag 0 with `multiple`
    /// stands for all.
    ///
    /// # Errors
    /// When the client does not hold the tag. `method` is the one that says so.
    pub fn settle(
        &mut self,
        tag: u64,
        multiple: bool,
        method: MethodId,
        mut take: impl FnMut(u64, Delivery),
    ) -> Result<(), Exception> {
        if tag == 0 && multiple {
            self.held.drain(..).filter(|held| !held.is_settled).for_each(|held| take(held.tag, held.delivery));
            self.count = 0;
            return Ok(());
        }
        let found = self.held.binary_search_by_key(&tag, |held| held.tag);
        let place = found.ok().filter(|place| self.held.get(*place).is_some_and(|held| !held.is_settled));
        let Some(place) = place else {
            let text = format!("unknown delivery tag {tag}");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text, method));
        };
        if multiple {
            for held in self.held.drain(..=place).filter(|held| !held.is_settled) {
                self.count -= 1;
                take(held.tag, held.delivery);
            }
        } else if let Some(held) = self.held.get_mut(place) {
            held.is_settled = true;
            self.count -= 1;
            take(held.tag, held.delivery);
        }
        self.forget();
        Ok(())
    }

    /// Puts deliveries back that were settled, each with its tag: the client has not settled them after all.
    pub fn restore(&mut self, taken: impl Iterator<Item = (u64, Delivery)>) {
        self.held.retain(|held| !held.is_settled);
        self.held.extend(taken.map(|(tag, delivery)| Held { tag, delivery, is_settled: false }));
        self.held.make_contiguous().sort_unstable_by_key(|held| held.tag);
        self.count = self.held.len();
    }

    /// Removes all deliveries of a consumer, or of all, and hands them to `take`, oldest first: they return to their queues.
    pub fn withdraw(&mut self, consumer: Option<u64>, mut take: impl FnMut(Delivery)) {
        self.held.retain(|held| {
            let is_withdrawn = consumer.is_none_or(|consumer| consumer == held.delivery.consumer);
            if is_withdrawn && !held.is_settled {
                take(held.delivery);
            }
            !is_withdrawn && !held.is_settled
        });
        self.count = self.held.len();
    }

    fn forget(&mut self) {
        while self.held.front().is_some_and(|held| held.is_settled) {
            self.held.pop_front();
        }
        if self.held.len() > 2 * self.count + SLACK {
            self.held.retain(|held| !held.is_settled);
        }
        if self.held.is_empty() && self.held.capacity() > SLACK {
            self.held = VecDeque::new();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Delivery, SLACK, Unacked};
    use crate::amqp::method::MethodId;
    use crate::amqp::reply::ReplyCode;

    const ACK: MethodId = MethodId { class: 60, method: 80 };

    fn delivery(sequence: u64) -> Delivery {
        Delivery { consumer: sequence % 3, sequence }
    }

    fn settled(unacked: &mut Unacked, tag: u64, multiple: bool) -> Option<Vec<u64>> {
        let mut settled = Vec::new();
        let result = unacked.settle(tag, multiple, ACK, |_, delivery| settled.push(delivery.sequence));
        match result {
            Ok(()) => Some(settled),
            Err(exception) => {
                assert_eq!((exception.code, exception.method), (ReplyCode::PreconditionFailed, ACK));
                assert_eq!(exception.text, format!("unknown delivery tag {tag}"));
                None
            }
        }
    }

    #[test]
    fn tags_ascend_and_are_settled_once() {
        let mut unacked = Unacked::default();
        let tags: Vec<u64> = (10..15).map(|sequence| unacked.deliver(delivery(sequence))).collect();
        assert_eq!((tags, unacked.next_tag()), (vec![1, 2, 3, 4, 5], 6));

        assert_eq!(settled(&mut unacked, 2, false), Some(vec![11]));
        assert_eq!(settled(&mut unacked, 2, false), None, "it was settled");
        assert_eq!(settled(&mut unacked, 6, false), None, "it was settled by being sent");
        assert_eq!(settled(&mut unacked, 0, false), None);
        assert_eq!(settled(&mut unacked, 3, true), Some(vec![10, 12]));
        assert_eq!(settled(&mut unacked, 0, true), Some(vec![13, 14]));
        assert_eq!(settled(&mut unacked, 0, true), Some(vec![]));
    }

    #[test]
    fn a_consumer_takes_its_deliveries_with_it() {
        let mut unacked = Unacked::default();
        for sequence in 0..6 {
            unacked.deliver(delivery(sequence));
        }
        settled(&mut unacked, 1, false);

        let mut withdrawn = Vec::new();
        unacked.withdraw(Some(0), |delivery| withdrawn.push(delivery.sequence));
        assert_eq!((withdrawn, unacked.count()), (vec![3], 4));

        let mut withdrawn = Vec::new();
        unacked.withdraw(None, |delivery| withdrawn.push(delivery.sequence));
        assert_eq!((withdrawn, unacked.count()), (vec![1, 2, 4, 5], 0));
    }

    #[test]
    fn one_message_that_is_never_settled_keeps_no_others() {
        let mut unacked = Unacked::default();
        (0..10_000).for_each(|sequence| {
            let tag = unacked.deliver(delivery(sequence));
            if tag > 1 {
                settled(&mut unacked, tag, false);
            }
        });

        assert_eq!(unacked.count(), 1);
        assert!(unacked.held.len() <= 2 + SLACK, "{}", unacked.held.len());
    }

    #[test]
    fn deliveries_that_are_put_back_can_be_settled_by_their_tags() {
        let mut unacked = Unacked::default();
        for sequence in 10..15 {
            unacked.deliver(delivery(sequence));
        }
        let mut taken = Vec::new();
        unacked.settle(4, false, ACK, |tag, delivery| taken.push((tag, delivery))).unwrap();
        unacked.settle(2, true, ACK, |tag, delivery| taken.push((tag, delivery))).unwrap();
        assert_eq!(settled(&mut unacked, 4, false), None);

        unacked.restore(taken.into_iter());

        assert_eq!(unacked.count(), 5);
        assert_eq!(settled(&mut unacked, 4, false), Some(vec![13]));
        assert_eq!(settled(&mut unacked, 0, true), Some(vec![10, 11, 12, 14]));
    }

    proptest! {
        #[test]
        fn it_settles_as_a_map_does(steps in prop::collection::vec((0..3u8, 0..80u64), 0..300)) {
            let (mut unacked, mut model) = (Unacked::default(), BTreeMap::new());
            for (step, number) in steps {
                let expected = match step {
                    0 => {
                        model.insert(unacked.deliver(delivery(number)), number);
                        continue;
                    }
                    1 => model.remove(&number).map(|sequence| vec![sequence]),
                    _ if number == 0 => Some(std::mem::take(&mut model).into_values().collect()),
                    _ => model.contains_key(&number).then(|| {
                        let above = model.split_off(&(number + 1));
                        std::mem::replace(&mut model, above).into_values().collect()
                    }),
                };
                prop_assert_eq!(settled(&mut unacked, number, step == 2), expected);
                prop_assert_eq!(unacked.count(), model.len());
            }
        }
    }
}
