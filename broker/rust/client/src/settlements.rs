//! Settlements collected until they are worth a request: sequences by outcome, as ranges. Pure: the time is passed in.

use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_wire::grpc::encode_settlement;

use crate::ranges::RangeSet;

/// At most this many settled messages wait for a request.
const COUNT_SENT_MAX: u64 = 1_024;
/// Fewer are sent when the last request is this old.
const INTERVAL: Duration = Duration::from_millis(1);
/// Ack, reject and requeue are 1 to 3.
const OUTCOMES: usize = 3;

#[derive(Debug, Default)]
pub(crate) struct Settlements {
    gathered: [RangeSet; OUTCOMES],
    count: u64,
    /// This many settled messages are sent at once.
    count_sent: u64,
    last_sent: Option<Instant>,
    is_flushed: bool,
    /// The stream checks again by itself, when the last request is `INTERVAL` old.
    is_timed: bool,
}

/// When the collected settlements are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Never,
    Now,
    /// Or there is nothing, but settlements added until then need not wake the stream.
    At(Instant),
}

impl Settlements {
    pub(crate) fn new(prefetch: u32) -> Self {
        let mut settlements = Self::default();
        settlements.expect(prefetch);
        settlements
    }

    /// At most `prefetch` messages are unacked: a quarter of them is sent at once, so that the broker never runs out
    /// of messages it may deliver, and a larger prefetch costs fewer requests.
    pub(crate) fn expect(&mut self, prefetch: u32) {
        self.count_sent = u64::from(prefetch / 4).clamp(1, COUNT_SENT_MAX);
    }

    /// Adds a range; returns whether the request stream should check again. An unknown outcome or a backward range adds
    /// nothing.
    #[inline]
    pub(crate) fn add(&mut self, first: u64, last: u64, outcome: u32) -> bool {
        let set = (outcome as usize).checked_sub(1).and_then(|index| self.gathered.get_mut(index));
        let Some(set) = set.filter(|_| first <= last) else { return false };
        let before = self.count;
        self.count = self.count.saturating_add(set.insert(first, last));
        let is_first = before == 0 && self.count > 0 && !self.is_timed;
        is_first || (before < self.count_sent && self.count >= self.count_sent)
    }

    /// Makes everything due, however little it is.
    pub(crate) fn flush(&mut self) {
        self.is_flushed = true;
    }

    pub(crate) fn due(&mut self, now: Instant) -> Due {
        let is_urgent = self.count >= self.count_sent || (self.is_flushed && self.count > 0);
        let waits_until = self.last_sent.map(|sent| sent + INTERVAL).filter(|until| now < *until && !is_urgent);
        self.is_timed = waits_until.is_some();
        match waits_until {
            Some(until) => Due::At(until),
            None if self.count == 0 => Due::Never,
            None => Due::Now,
        }
    }

    /// The request for one outcome; call it until it returns `None`.
    pub(crate) fn next_request(&mut self, now: Instant) -> Option<Bytes> {
        let (outcome, set) = (1u32..).zip(&mut self.gathered).find(|(_, set)| !set.is_empty())?;
        let mut request = Vec::with_capacity(16 + 24 * set.ranges().len());
        encode_settlement(&mut request, outcome, set.ranges().iter().copied());
        set.clear();
        if self.gathered.iter().all(RangeSet::is_empty) {
            self.count = 0;
            self.is_flushed = false;
            self.last_sent = Some(now);
        }
        Some(request.into())
    }

    /// Clears after the connection broke: the broker has requeued unacked messages.
    pub(crate) fn clear(&mut self) {
        *self = Self { count_sent: self.count_sent, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use penstock_wire::grpc::{ConsumeFrame, parse_consume_request};

    use super::*;

    fn read(request: &[u8]) -> (u32, Vec<(u64, u64)>) {
        let ConsumeFrame::Settlement(view) = parse_consume_request(request).unwrap() else { panic!("no settlement") };
        (view.outcome, view.ranges().collect())
    }

    #[test]
    fn a_lone_settlement_is_due_at_once() {
        let mut settlements = Settlements::new(1_000);

        assert!(settlements.add(7, 7, 1));

        assert_eq!(settlements.due(Instant::now()), Due::Now);
    }

    #[test]
    fn after_a_request_settlements_wait_for_a_quarter_of_the_prefetch_or_a_millisecond() {
        let (mut settlements, now) = (Settlements::new(256), Instant::now());
        settlements.add(1, 1, 1);
        settlements.next_request(now).unwrap();

        assert_eq!(settlements.due(now), Due::At(now + INTERVAL));
        assert!(!settlements.add(2, 2, 1));
        assert_eq!(settlements.due(now), Due::At(now + INTERVAL));
        assert_eq!(settlements.due(now + INTERVAL), Due::Now);
        assert!(!settlements.add(3, 64, 1));
        assert!(settlements.add(65, 65, 1));
        assert_eq!(settlements.due(now), Due::Now);
        assert_eq!(read(&settlements.next_request(now).unwrap()), (1, vec![(2, 65)]));
    }

    #[test]
    fn once_the_stream_found_nothing_for_a_millisecond_the_next_settlement_wakes_it() {
        let (mut settlements, now) = (Settlements::new(1_000), Instant::now());
        settlements.add(1, 1, 1);
        settlements.next_request(now).unwrap();

        assert_eq!(settlements.due(now + INTERVAL), Due::Never);
        assert!(settlements.add(2, 2, 1));
        assert_eq!(settlements.due(now + INTERVAL), Due::Now);
    }

    #[test]
    fn with_a_prefetch_of_one_every_settlement_goes_at_once() {
        let (mut settlements, now) = (Settlements::new(1), Instant::now());
        settlements.add(1, 1, 1);
        settlements.next_request(now).unwrap();
        assert_eq!(settlements.due(now), Due::At(now + INTERVAL));

        assert!(settlements.add(2, 2, 1));

        assert_eq!(settlements.due(now), Due::Now);
    }

    #[test]
    fn each_outcome_is_a_request_of_its_own() {
        let (mut settlements, now) = (Settlements::new(12), Instant::now());
        settlements.add(5, 5, 3);
        settlements.add(1, 2, 1);
        settlements.add(4, 4, 1);

        assert_eq!(read(&settlements.next_request(now).unwrap()), (1, vec![(1, 2), (4, 4)]));
        assert_eq!(settlements.due(now), Due::Now);
        assert_eq!(read(&settlements.next_request(now).unwrap()), (3, vec![(5, 5)]));
        assert_eq!(settlements.due(now), Due::At(now + INTERVAL));
        assert!(settlements.next_request(now).is_none());
    }

    #[test]
    fn a_flush_does_not_wait() {
        let (mut settlements, now) = (Settlements::new(1_000), Instant::now());
        settlements.add(1, 1, 1);
        settlements.next_request(now).unwrap();
        settlements.add(2, 2, 2);

        settlements.flush();

        assert_eq!(settlements.due(now), Due::Now);
    }

    #[test]
    fn an_unknown_outcome_adds_nothing() {
        let mut settlements = Settlements::new(1_000);

        assert!(!settlements.add(1, 1, 0));
        assert!(!settlements.add(1, 1, 4));
        assert!(!settlements.add(2, 1, 1));
        assert_eq!(settlements.due(Instant::now()), Due::Never);
    }
}
