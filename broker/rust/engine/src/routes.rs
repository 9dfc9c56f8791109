//! The queues that the messages of a round reach, found in one table and without the shard's lock.
//!
//! The table is the present one when the round begins: changes that were answered by then are in it, later ones are as
//! if they came after the round. One later change counts, the deletion of a queue: storing the round finds it and routes
//! the whole round again, in the table of that moment, as if the deletion had come first. So a message goes to no
//! deleted queue, and one that the deletion leaves without a queue has the fate, the alternate exchange or the new queue
//! of that name that it would have had.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};

use penstock_log::{ENVELOPE_RECORDS_MAX, ENVELOPE_TARGETS_MAX, Producer};
use penstock_queue::{Matched, QueueId, Routable, Routing};
use penstock_wire::amqp::routing_headers::RoutingHeaders;
use penstock_wire::is_same;

use crate::publication::{PassedOn, Publication};

/// The most messages stored in one hold of the lock, so that others of the vhost do not wait longer.
pub const MESSAGES_AT_ONCE: usize = 1024;

/// So many bytes of keys end a hold, so that it has no more bytes without payloads than an envelope.
pub(crate) const KEY_BYTES_AT_ONCE: usize = 2 << 20;

/// How much one hold of the lock stores: at most so many messages, and none after the one that reaches so many targets.
/// Nothing is above the limits of an envelope, which are those of a hold, but a message for more queues than an envelope
/// has; it is alone in its hold.
#[derive(Clone, Copy)]
pub(crate) struct AtOnce {
    pub messages: usize,
    targets: usize,
}

impl AtOnce {
    pub const USUAL: AtOnce = AtOnce { messages: MESSAGES_AT_ONCE, targets: MESSAGES_AT_ONCE };
    /// As much as an envelope has.
    pub const WHOLE: AtOnce = AtOnce { messages: ENVELOPE_RECORDS_MAX, targets: ENVELOPE_TARGETS_MAX };
}

/// By so much numbers that are drawn for random exchanges differ: all 64 bits change soon.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A thread keeps lists of at most this many queues for its next round.
const KEPT_MAX: usize = 16 * MESSAGES_AT_ONCE;

thread_local! {
    static KEPT: RefCell<Routes> = RefCell::default();
}

/// The queues of one message. Its fields are of one size: it is copied for each message, and a copy waits for fields of others.
#[derive(Clone, Copy)]
struct FoundRoute {
    begin: u32,
    end: u32,
    /// How many of them are histories of exchanges.
    history_count: u32,
}

impl FoundRoute {
    fn new(begin: usize, end: usize, history_count: usize) -> FoundRoute {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        FoundRoute { begin: small(begin), end: small(end), history_count: small(history_count) }
    }

    fn count(&self) -> u32 {
        self.end.saturating_sub(self.begin)
    }
}

/// Invariant: each entry in `found` is a part of `queues`.
#[derive(Default)]
pub(crate) struct Routes {
    /// How many queues had been removed from the table; of messages that were passed on, more than ever.
    pub removals: u64,
    matched: Matched,
    /// The last number that was drawn for random exchanges. It begins anywhere.
    draw: Option<u64>,
    queues: Vec<QueueId>,
    /// Of each message; `None` when there is no such exchange.
    found: Vec<Option<FoundRoute>>,
}

impl Routes {
    /// The routes of the first messages, as many as fit one hold of the lock: at least one.
    pub fn of(table: &Routing, batch: &[Publication<'_>], at_once: AtOnce) -> Routes {
        let mut routes = KEPT.take();
        routes.find(table, batch, at_once);
        routes
    }

    /// The routes of messages that were passed on to one log, adjacent by message, and the indexes of these messages.
    pub fn of_passed(passed: &[PassedOn]) -> (Routes, Vec<usize>) {
        let mut routes = Routes { removals: u64::MAX, ..Routes::default() };
        let mut places = Vec::with_capacity(passed.len());
        for message in passed.chunk_by(|one, other| one.place == other.place) {
            let begin = routes.queues.len();
            routes.queues.extend(message.iter().map(|one| one.queue));
            routes.found.push(Some(FoundRoute::new(begin, routes.queues.len(), 0)));
            places.extend(message.first().map(|one| one.place));
        }
        (routes, places)
    }

    /// Finds them again in another table.
    pub fn find(&mut self, table: &Routing, batch: &[Publication<'_>], at_once: AtOnce) {
        self.removals = table.removals();
        self.queues.clear();
        self.found.clear();
        let (mut targets, mut key_bytes) = (0, 0);
        let mut last: Option<&Publication<'_>> = None;
        for publication in batch.iter().take(at_once.messages) {
            let same = last.filter(|last| is_same_route(last, publication)).and(self.found.last().copied());
            let found = same.unwrap_or_else(|| self.find_one(table, publication));
            last = (!self.matched.is_changeable).then_some(publication);
            targets += found.map_or(0, |found| found.count() as usize);
            key_bytes += publication.payload.key().map_or(0, <[u8]>::len);
            if targets >= at_once.targets || key_bytes >= KEY_BYTES_AT_ONCE {
                if targets <= ENVELOPE_TARGETS_MAX || self.found.is_empty() {
                    self.found.push(found);
                }
                break;
            }
            self.found.push(found);
        }
    }

    /// How many messages were routed.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// The queues of one of them, ascending; `None` when its exchange does not exist.
    pub fn queues(&self, place: usize) -> Option<&[QueueId]> {
        let FoundRoute { begin, end, .. } = self.found.get(place).copied().flatten()?;
        self.queues.get(begin as usize..end as usize)
    }

    /// Whether one of them reaches a queue that consumers can have, and not only histories of exchanges.
    pub fn reaches_queue(&self, place: usize) -> bool {
        self.found.get(place).copied().flatten().is_some_and(|found| found.count() > found.history_count)
    }

    /// Whether one of them reaches histories of exchanges, and nothing else.
    pub fn reaches_history_alone(&self, place: usize) -> bool {
        let found = self.found.get(place).copied().flatten();
        found.is_some_and(|found| found.history_count > 0 && found.count() == found.history_count)
    }

    /// Whether the last of them that was found comes through an exchange that delays messages.
    pub fn is_delayed(&self) -> bool {
        self.matched.is_delayed
    }

    /// All queues that any of the messages reach.
    pub fn reached(&self) -> &[QueueId] {
        &self.queues
    }

    /// A number for random exchanges: another one for each message, and for a message that its producer sends again the
    /// same, so that it goes where it went before.
    fn draw(&mut self, producer: Option<Producer>) -> u64 {
        if let Some(producer) = producer {
            return producer.id.get().rotate_left(32) ^ producer.sequence.wrapping_mul(STEP);
        }
        let draw = self.draw.unwrap_or_else(|| RandomState::new().build_hasher().finish()).wrapping_add(STEP);
        self.draw = Some(draw);
        draw
    }

    /// Keeps the buffers for the thread's next round.
    pub fn keep(self) {
        if self.queues.capacity() <= KEPT_MAX && self.matched.queues.capacity() <= KEPT_MAX {
            KEPT.set(self);
        }
    }

    fn find_one(&mut self, table: &Routing, publication: &Publication<'_>) -> Option<FoundRoute> {
        let Publication { payload, exchange, key, headers, .. } = *publication;
        let more_keys: Vec<&[u8]> = match headers {
            Some(table) if payload.has_more_keys() => RoutingHeaders::of(table).keys().collect(),
            _ => Vec::new(),
        };
        let (own_key, properties, draw) = (payload.key(), payload.properties(), self.draw(payload.producer()));
        let message = Routable { key, more_keys: &more_keys, own_key, headers, properties, draw };
        table.route_message(exchange, &message, &mut self.matched).ok()?;
        let begin = self.queues.len();
        self.queues.extend_from_slice(&self.matched.queues);
        Some(FoundRoute::new(begin, self.queues.len(), self.matched.history_count()))
    }
}

/// Whether nothing that routing reads differs. Publishers repeat themselves.
fn is_same_route(one: &Publication<'_>, other: &Publication<'_>) -> bool {
    let is_plain = |publication: &Publication<'_>| publication.headers.is_none() && publication.payload.key().is_none();
    is_plain(one) && is_plain(other) && is_same(one.exchange, other.exchange) && is_same(one.key, other.key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use penstock_log::{ENVELOPE_HEADS_BYTES_MAX, EnvelopeSizes, Payload};
    use penstock_queue::{Destination, ExchangeKind};

    use super::*;

    /// A table with fanout exchanges, each named by how many of the queues it has.
    fn table(wide: &[usize]) -> Routing {
        let mut table = Routing::default();
        let name = |number: usize| format!("q{number}");
        for number in 0..wide.iter().copied().max().unwrap_or(0) {
            table.put_queue(&name(number), QueueId(number as u64 + 1));
        }
        for count in wide {
            let exchange = count.to_string();
            table.put_exchange(&exchange, ExchangeKind::Fanout, None);
            for number in 0..*count {
                table.add_route(&exchange, "", None, Destination::Queue(&name(number))).unwrap();
            }
        }
        table
    }

    fn publication<'a>(exchange: &'a str, key: Option<&'a [u8]>) -> Publication<'a> {
        let mut payload = Payload::new(exchange.as_bytes(), b"", b"", b"body").unwrap();
        if let Some(key) = key {
            payload = payload.with_key(key).unwrap();
        }
        Publication {
            payload,
            exchange: exchange.as_bytes(),
            key: b"",
            headers: None,
            persistent: false,
            mandatory: false,
        }
    }

    /// How many messages and targets the holds of a batch have.
    fn holds(table: &Routing, batch: &[Publication<'_>], at_once: AtOnce) -> Vec<(usize, usize)> {
        let (mut rest, mut found) = (batch, Vec::new());
        while !rest.is_empty() {
            let routes = Routes::of(table, rest, at_once);
            let targets = (0..routes.count()).map(|place| routes.queues(place).map_or(0, <[QueueId]>::len));
            found.push((routes.count(), targets.sum()));
            rest = &rest[routes.count()..];
        }
        found
    }

    #[test]
    fn a_hold_ends_with_the_message_that_reaches_its_targets() {
        let table = table(&[1, 300, 1000]);
        let [narrow, wide, wider] = ["1", "300", "1000"].map(|exchange| publication(exchange, None));

        assert_eq!(holds(&table, &[narrow; 2500], AtOnce::USUAL), [(1024, 1024), (1024, 1024), (452, 452)]);
        assert_eq!(holds(&table, &[wide; 6], AtOnce::USUAL), [(4, 1200), (2, 600)]);
        assert_eq!(holds(&table, &[narrow, narrow, wider, wider], AtOnce::USUAL), [(4, 2002)]);
    }

    #[test]
    fn a_message_with_which_a_hold_had_more_targets_than_an_envelope_waits_for_the_next_one() {
        let table = table(&[1000, ENVELOPE_TARGETS_MAX, ENVELOPE_TARGETS_MAX + 1]);
        let [narrow, widest, too_wide] = ["1000", "16384", "16385"].map(|exchange| publication(exchange, None));

        assert_eq!(holds(&table, &[narrow, widest, narrow], AtOnce::USUAL), [(1, 1000), (1, 16_384), (1, 1000)]);
        assert_eq!(holds(&table, &[narrow, too_wide, narrow], AtOnce::USUAL), [(1, 1000), (1, 16_385), (1, 1000)]);
    }

    /// Keys are not part of the payload, and may have 64 KiB.
    #[test]
    fn a_hold_has_no_more_bytes_without_payloads_than_an_envelope() {
        let table = table(&[3]);
        let key = [7; u16::MAX as usize];
        let keyed = publication("3", Some(&key));
        for at_once in [AtOnce::USUAL, AtOnce::WHOLE] {
            let holds = holds(&table, &[keyed; 100], at_once);
            assert_eq!(holds[0].0, KEY_BYTES_AT_ONCE.div_ceil(key.len()));
            for (count, _) in holds {
                let mut sizes = EnvelopeSizes::default();
                (0..count).for_each(|_| sizes.add_message(&keyed.payload, 3));
                assert!(sizes.heads_bytes() <= ENVELOPE_HEADS_BYTES_MAX);
            }
        }
    }
}
