//! Publisher confirms of one channel: outcomes come in any order, by number, and become as few `basic.ack` and `basic.nack` as
//! possible. `multiple` is only said when each message up to the number has the same outcome, or was answered before.

use std::collections::BTreeMap;

use super::method::Method;

/// See the module. Invariant: every number below `lowest` was answered, `lowest` was not, and the ranges of `answered` are above
/// it, ascending, and neither touch nor overlap.
#[derive(Debug)]
pub struct Confirms {
    /// The lowest number that was not answered.
    lowest: u64,
    /// First and last numbers of ranges that were answered above `lowest`.
    answered: BTreeMap<u64, u64>,
}

/// How a message was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ack,
    Nack,
}

impl Default for Confirms {
    fn default() -> Confirms {
        Confirms { lowest: 1, answered: BTreeMap::new() }
    }
}

impl Confirms {
    /// Answers ranges of numbers, none of which was answered before, each with its first and last number, ascending; appends the
    /// methods.
    pub fn answer(&mut self, answer: Answer, ranges: &[(u64, u64)], channel: u16, out: &mut Vec<u8>) {
        let before = self.lowest;
        for &(first, last) in ranges {
            debug_assert!(first >= self.lowest && first <= last);
            self.insert(first, last);
        }
        // Everything that these ranges have below `lowest` can be said at once.
        let mut below = ranges.iter().copied().filter(|(first, _)| *first < self.lowest);
        let count: u64 = below.clone().map(|(first, last)| last - first + 1).sum();
        if let Some((_, last)) = below.next_back() {
            debug_assert!(self.lowest > before);
            put(answer, last, count > 1, channel, out);
        }
        for &(first, last) in ranges.iter().filter(|(first, _)| *first >= self.lowest) {
            (first..=last).for_each(|number| put(answer, number, false, channel, out));
        }
    }

    /// Return whether there are answers above one that is missing.
    #[must_use]
    pub fn has_gap(&self) -> bool {
        !self.answered.is_empty()
    }

    fn insert(&mut self, first: u64, last: u64) {
        if first == self.lowest {
            self.lowest = last + 1;
            while let Some(entry) = self.answered.first_entry().filter(|entry| *entry.key() == self.lowest) {
                self.lowest = entry.remove() + 1;
            }
            return;
        }
        let last = self.answered.remove(&(last + 1)).unwrap_or(last);
        match self.answered.range_mut(..first).next_back() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => drop(self.answered.insert(first, last)),
        }
    }
}

fn put(answer: Answer, delivery_tag: u64, multiple: bool, channel: u16, out: &mut Vec<u8>) {
    match answer {
        Answer::Ack => Method::BasicAck { delivery_tag, multiple }.put(channel, out),
        Answer::Nack => Method::BasicNack { delivery_tag, multiple, requeue: false }.put(channel, out),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Answer, Confirms};
    use crate::amqp::frame::next_frame;
    use crate::amqp::method::Method;

    /// The methods as a client gets them: outcome, number, multiple.
    fn read(mut bytes: &[u8]) -> Vec<(Answer, u64, bool)> {
        let mut answers = Vec::new();
        while let Some((frame, length)) = next_frame(bytes, 4096).unwrap() {
            answers.push(match Method::read(frame.payload).unwrap() {
                Method::BasicAck { delivery_tag, multiple } => (Answer::Ack, delivery_tag, multiple),
                Method::BasicNack { delivery_tag, multiple, requeue: false } => (Answer::Nack, delivery_tag, multiple),
                other => panic!("{other:?}"),
            });
            bytes = &bytes[length..];
        }
        answers
    }

    fn answered(confirms: &mut Confirms, answer: Answer, ranges: &[(u64, u64)]) -> Vec<(Answer, u64, bool)> {
        let mut out = Vec::new();
        confirms.answer(answer, ranges, 1, &mut out);
        read(&out)
    }

    #[test]
    fn ranges_from_the_lowest_on_are_one_answer() {
        let mut confirms = Confirms::default();
        assert_eq!(answered(&mut confirms, Answer::Ack, &[(1, 1)]), [(Answer::Ack, 1, false)]);
        assert_eq!(answered(&mut confirms, Answer::Ack, &[(2, 5)]), [(Answer::Ack, 5, true)]);
        assert_eq!(answered(&mut confirms, Answer::Nack, &[(6, 7)]), [(Answer::Nack, 7, true)]);
        assert!(!confirms.has_gap());
    }

    #[test]
    fn answers_above_a_missing_one_are_single() {
        let mut confirms = Confirms::default();
        let single = [(Answer::Ack, 2, false), (Answer::Ack, 3, false)];
        assert_eq!(answered(&mut confirms, Answer::Ack, &[(2, 3)]), single);
        assert!(confirms.has_gap());

        assert_eq!(answered(&mut confirms, Answer::Ack, &[(1, 1), (4, 4)]), [(Answer::Ack, 4, true)]);
        assert!(!confirms.has_gap());
    }

    #[test]
    fn an_answer_never_covers_one_of_the_other_kind_that_is_missing() {
        let mut confirms = Confirms::default();
        assert_eq!(answered(&mut confirms, Answer::Nack, &[(2, 2)]), [(Answer::Nack, 2, false)]);
        // 2 was refused before, so that the client takes 3 and multiple for 1 and 3.
        assert_eq!(answered(&mut confirms, Answer::Ack, &[(1, 1), (3, 3)]), [(Answer::Ack, 3, true)]);
    }

    #[test]
    fn nothing_is_said_about_nothing() {
        assert_eq!(answered(&mut Confirms::default(), Answer::Ack, &[]), []);
    }

    proptest! {
        /// A client that keeps what it has not been told of hears of each message once, with its own outcome.
        #[test]
        fn a_client_learns_each_outcome(
            outcomes in prop::collection::vec((any::<bool>(), 0..8u8), 1..60),
        ) {
            let mut confirms = Confirms::default();
            let mut waiting: BTreeMap<u64, bool> = (1..).zip(outcomes.iter().map(|(is_ack, _)| *is_ack)).collect();
            // The second number is the batch that an outcome comes in.
            for batch in 0..8 {
                for (answer, wanted) in [(Answer::Nack, false), (Answer::Ack, true)] {
                    let numbers = (1..).zip(&outcomes).filter(|(_, outcome)| **outcome == (wanted, batch));
                    let ranges = ranges(numbers.map(|(number, _)| number));
                    for (said, number, multiple) in answered(&mut confirms, answer, &ranges) {
                        prop_assert_eq!(said, answer);
                        let told: Vec<u64> = if multiple {
                            waiting.range(..=number).map(|(number, _)| *number).collect()
                        } else {
                            vec![number]
                        };
                        prop_assert!(told.contains(&number), "it was told before");
                        for number in told {
                            prop_assert_eq!(waiting.remove(&number), Some(wanted));
                        }
                    }
                }
            }
            prop_assert!(waiting.is_empty(), "{waiting:?}");
            prop_assert!(!confirms.has_gap());
        }
    }

    fn ranges(numbers: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
        numbers.fold(Vec::new(), |mut ranges, number| {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
            ranges
        })
    }
}
