//! The batches of a publish stream without an outcome. A message keeps its number for ever; on each connection it also
//! has a place in the stream, which the broker uses in its answers. After a connection broke, unresolved messages go
//! back to the front in order, without the answered ones. Pure: it knows no socket.
//!
//! After a message of a named producer was refused, nothing with a higher sequence is sent before it is sent again: a
//! restarted broker knows of no refusal, would store higher ones, and then take the refused one for a duplicate.

use std::collections::VecDeque;

use bytes::Bytes;
use penstock_wire::Name;
use penstock_wire::grpc::{BatchEncoder, MessageNames, PublishFrame, parse_publish};

use crate::ranges::RangeSet;

/// One encoded request: the messages `first` to `first + count - 1`.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    first: u64,
    count: u64,
    /// The producer's sequence of the first message; 0 without one.
    sequence: u64,
    bytes: Bytes,
    resolved: RangeSet,
    resolved_count: u64,
}

#[derive(Debug)]
struct Sent {
    /// The place of the batch's first message in the stream.
    place: u64,
    batch: Batch,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    waiting: VecDeque<Batch>,
    sent: VecDeque<Sent>,
    /// The place of the next message sent on this connection; the first is 1.
    next_place: u64,
    /// The lowest sequence that was refused and not sent again.
    refused: Option<u64>,
    /// To be sent first on the next connection.
    filler: Option<Batch>,
}

/// The number of a filler: a message without a queue, which takes the sequence of one that was refused.
pub(crate) const FILLER: u64 = 0;

/// The next action of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Send(Bytes),
    /// The messages `first` to `last` come after this refused sequence: they are not sent, and have that as their
    /// outcome.
    Behind {
        first: u64,
        last: u64,
        refused: u64,
    },
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self { waiting: VecDeque::new(), sent: VecDeque::new(), next_place: 1, refused: None, filler: None }
    }

    /// Adds a batch after the waiting ones.
    pub(crate) fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// The next request to send.
    pub(crate) fn next(&mut self) -> Option<Next> {
        let batch = self.waiting.pop_front()?;
        let last = batch.first + batch.count - 1;
        if let Some(refused) = self.refused.filter(|_| batch.sequence > 0) {
            if batch.sequence > refused {
                return Some(Next::Behind { first: batch.first, last, refused });
            }
            self.refused = Some(refused).filter(|_| batch.sequence_of(last) < refused);
        }
        let bytes = batch.bytes.clone();
        let place = self.next_place;
        self.next_place += batch.count;
        self.sent.push_back(Sent { place, batch });
        Some(Next::Send(bytes))
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Handles the broker's answer to the places `first` to `last`, a refusal or not: calls `resolved` with the numbers
    /// among them that had no outcome yet.
    pub(crate) fn resolve(&mut self, (first, last): (u64, u64), is_refusal: bool, mut resolved: impl FnMut(u64, u64)) {
        let Self { refused, .. } = self;
        let from = self.sent.partition_point(|sent| sent.place + sent.batch.count <= first);
        for sent in self.sent.range_mut(from..) {
            if sent.place > last {
                break;
            }
            let batch = &mut sent.batch;
            let (batch_first, batch_sequence) = (batch.first, batch.sequence);
            let start = batch.first + first.saturating_sub(sent.place);
            let end = batch.first + (last - sent.place).min(batch.count - 1);
            batch.resolve(start, end, &mut |first, last| {
                if is_refusal && batch_sequence > 0 {
                    let sequence = batch_sequence.saturating_add(first - batch_first);
                    *refused = Some(refused.map_or(sequence, |before| before.min(sequence)));
                }
                resolved(first, last);
            });
        }
        while self.sent.front().is_some_and(|sent| sent.batch.is_resolved()) {
            self.sent.pop_front();
        }
    }

    /// Starts a new connection: everything without an outcome is sent on it, in order.
    pub(crate) fn restart(&mut self) {
        self.next_place = 1;
        let mut again = VecDeque::new();
        for sent in self.sent.drain(..).filter(|sent| !sent.batch.is_resolved()) {
            sent.batch.unresolved_into(&mut again);
        }
        again.append(&mut self.waiting);
        if let Some(filler) = self.filler.take() {
            again.push_front(filler);
        }
        self.waiting = again;
    }

    /// Has a filler with this sequence sent first on the next connection.
    pub(crate) fn fill(&mut self, sequence: u64) {
        let mut encoder = BatchEncoder::begin(Vec::new(), "", "", false);
        encoder.put_producer_sequence(sequence);
        encoder.push(b"", None);
        self.filler = Some(Batch::new((FILLER, 1), sequence, encoder.finish().into()));
    }

    /// Drops everything; calls `unresolved` with the numbers that had no outcome, in order.
    pub(crate) fn abandon(&mut self, mut unresolved: impl FnMut(u64, u64)) {
        self.restart();
        for batch in self.waiting.drain(..).filter(|batch| batch.first != FILLER) {
            unresolved(batch.first, batch.first + batch.count - 1);
        }
    }
}

impl Batch {
    /// `sequence` is the first one's, or 0.
    pub(crate) fn new((first, count): (u64, u64), sequence: u64, bytes: Bytes) -> Self {
        Self { first, count, sequence, bytes, resolved: RangeSet::default(), resolved_count: 0 }
    }

    fn sequence_of(&self, number: u64) -> u64 {
        if self.sequence == 0 { 0 } else { self.sequence.saturating_add(number - self.first) }
    }

    fn is_resolved(&self) -> bool {
        self.resolved_count == self.count
    }

    fn resolve(&mut self, start: u64, end: u64, resolved: &mut impl FnMut(u64, u64)) {
        if self.resolved.is_empty() {
            resolved(start, end);
        } else {
            self.resolved.missing(start, end).iter().for_each(|&(first, last)| resolved(first, last));
        }
        self.resolved_count += self.resolved.insert(start, end);
        if self.is_resolved() {
            self.bytes = Bytes::new();
        }
    }

    /// The unresolved messages as batches of their own: one for each run of numbers.
    fn unresolved_into(self, out: &mut VecDeque<Batch>) {
        if self.resolved.is_empty() {
            out.push_back(self);
            return;
        }
        for (first, last) in self.resolved.missing(self.first, self.first + self.count - 1) {
            let count = last - first + 1;
            let bytes = excerpt(&self.bytes, first - self.first, count);
            out.push_back(Batch::new((first, count), self.sequence_of(first), bytes));
        }
    }
}

fn text(name: Name<'_>) -> &str {
    std::str::from_utf8(name.as_bytes()).unwrap_or_default()
}

/// A batch of `count` messages of an encoded batch, from the `skip`th on.
fn excerpt(bytes: &[u8], skip: u64, count: u64) -> Bytes {
    let Ok(PublishFrame::Batch(batch)) = parse_publish(bytes) else { return Bytes::new() };
    let mut encoder = BatchEncoder::begin(Vec::new(), text(batch.exchange), text(batch.routing_key), batch.mandatory);
    if batch.producer_sequence > 0 {
        encoder.put_producer_sequence(batch.producer_sequence + skip);
    }
    for message in batch.messages().flatten().skip(skip as usize).take(count as usize) {
        let exchange = (message.exchange != batch.exchange).then(|| text(message.exchange));
        let routing_key = (message.routing_key != batch.routing_key).then(|| text(message.routing_key));
        let names = MessageNames { exchange, routing_key, properties: message.properties, key: message.key };
        encoder.push_message(message.body, &names);
    }
    encoder.finish().into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A batch whose bodies and keys are their numbers, and whose sequences are ten times that of the first, and on.
    fn batch(first: u64, count: u64) -> Bytes {
        let mut encoder = BatchEncoder::begin(Vec::new(), "e", "k", true);
        encoder.put_producer_sequence(10 * first);
        for number in (first..first + count).map(u64::to_le_bytes) {
            encoder.push_message(&number, &MessageNames { key: Some(&number), ..MessageNames::default() });
        }
        encoder.finish().into()
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        let PublishFrame::Batch(view) = parse_publish(bytes).unwrap() else { panic!("not a batch") };
        assert!(view.exchange.as_bytes() == b"e" && view.routing_key.as_bytes() == b"k" && view.mandatory);
        let messages: Vec<_> = view.messages().map(Result::unwrap).collect();
        assert!(messages.iter().all(|message| message.key == Some(message.body)));
        messages.iter().map(|message| u64::from_le_bytes(message.body.try_into().unwrap())).collect()
    }

    #[test]
    fn an_excerpt_begins_with_the_sequence_of_its_first_message() {
        let rest = excerpt(&batch(7, 5), 2, 3);

        assert_eq!(numbers(&rest), [9, 10, 11]);
        let PublishFrame::Batch(view) = parse_publish(&rest).unwrap() else { panic!("not a batch") };
        assert_eq!(view.producer_sequence, 72);
    }

    fn sent(next: Option<Next>) -> Vec<u64> {
        next.map_or_else(Vec::new, |next| match next {
            Next::Send(bytes) => numbers(&bytes),
            behind => panic!("{behind:?}"),
        })
    }

    /// Three messages of one sequence each.
    fn three() -> InFlight {
        let mut in_flight = InFlight::new();
        (1..=3).for_each(|number| in_flight.push(Batch::new((number, 1), 10 * number, batch(number, 1))));
        in_flight
    }

    #[test]
    fn nothing_passes_a_refused_message_before_it_is_sent_again() {
        let mut in_flight = three();
        (1..=2).for_each(|number| assert_eq!(sent(in_flight.next()), [number]));
        in_flight.resolve((1, 1), true, |_, _| {});

        in_flight.restart();

        for number in 2..=3 {
            let behind = Next::Behind { first: number, last: number, refused: 10 };
            assert_eq!(in_flight.next(), Some(behind));
        }
        in_flight.push(Batch::new((4, 1), 10, batch(4, 1)));
        in_flight.push(Batch::new((5, 1), 20, batch(5, 1)));
        assert_eq!(sent(in_flight.next()), [4]);
        assert_eq!(sent(in_flight.next()), [5]);
    }

    #[test]
    fn a_refused_message_holds_back_nobody_without_a_sequence() {
        let mut in_flight = InFlight::new();
        (1..=2).for_each(|number| in_flight.push(Batch::new((number, 1), 0, batch(number, 1))));
        assert_eq!(sent(in_flight.next()), [1]);

        in_flight.resolve((1, 1), true, |_, _| {});

        assert_eq!(sent(in_flight.next()), [2]);
    }

    #[test]
    fn a_filler_comes_first_until_it_is_confirmed() {
        let mut in_flight = three();
        (1..=3).for_each(|number| assert_eq!(sent(in_flight.next()), [number]));
        in_flight.resolve((2, 2), false, |_, _| {});
        in_flight.fill(20);

        for _ in 0..2 {
            in_flight.restart();
            let Some(Next::Send(filler)) = in_flight.next() else { panic!("no filler") };
            let PublishFrame::Batch(view) = parse_publish(&filler).unwrap() else { panic!("not a batch") };
            assert_eq!((view.producer_sequence, view.message_count, view.mandatory), (20, 1, false));
            assert_eq!((sent(in_flight.next()), sent(in_flight.next())), (vec![1], vec![3]));
        }
        let mut found = Vec::new();
        in_flight.resolve((1, 2), false, |first, last| found.push((first, last)));
        assert_eq!(found, [(FILLER, FILLER), (1, 1)]);

        in_flight.restart();
        assert_eq!((sent(in_flight.next()), in_flight.next()), (vec![3], None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u64),
        Send,
        Resolve(prop::sample::Index, u64),
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..6u64).prop_map(Step::Push),
            3 => Just(Step::Send),
            3 => (any::<prop::sample::Index>(), 0..8u64).prop_map(|(at, more)| Step::Resolve(at, more)),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn every_message_is_answered_once_and_sent_in_order(steps in proptest::collection::vec(step(), 0..60)) {
            let mut in_flight = InFlight::new();
            let (mut next, mut unanswered) = (1u64, BTreeSet::new());
            let mut stream: Vec<u64> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(count) => {
                        in_flight.push(Batch::new((next, count), 10 * next, batch(next, count)));
                        unanswered.extend(next..next + count);
                        next += count;
                    }
                    Step::Send => stream.extend(sent(in_flight.next())),
                    Step::Resolve(_, _) if stream.is_empty() => {}
                    Step::Resolve(at, more) => {
                        let first = at.index(stream.len());
                        let answered = &stream[first..(first + more as usize + 1).min(stream.len())];
                        let expected: Vec<u64> = answered.iter().copied().filter(|n| unanswered.remove(n)).collect();
                        let mut found = Vec::new();
                        let places = (first as u64 + 1, first as u64 + 1 + more);
                        in_flight.resolve(places, false, |a, b| found.extend(a..=b));
                        prop_assert_eq!(found, expected);
                    }
                    Step::Restart => {
                        in_flight.restart();
                        stream.clear();
                    }
                }
                prop_assert!(stream.is_sorted());
            }
            let mut left = Vec::new();
            in_flight.abandon(|a, b| left.extend(a..=b));
            prop_assert_eq!(left, unanswered.into_iter().collect::<Vec<_>>());
        }
    }
}
