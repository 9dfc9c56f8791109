//! Leases against a list of messages with their states: whatever is published, reserved, acknowledged, released,
//! consumed, purged and restarted, both agree.
#![allow(clippy::unwrap_used)]

mod house;

use std::collections::BTreeMap;

use house::{House, STREAM, open_queue, publish, said};
use penstock_engine::{EngineError, LeaseLimits, LeasePart, Sequence, SequenceRange, Settle, SubscriptionOptions};
use proptest::prelude::*;

const OWNERS: [&str; 2] = ["one", "two"];
const YEAR_3000: u64 = 32_503_680_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// So many messages of a size.
    Publish(usize, usize),
    /// The number relative to the next one; the most messages and bytes, 0 for no limit.
    Reserve(usize, i64, u64, u64),
    /// Up to a number relative to the last one.
    Ack(usize, i64),
    /// From a number relative to the last one.
    Release(usize, i64),
    /// One of so many parts of the lease this far below the last one.
    Read(usize, u64, u32),
    /// A consumer takes so many, and settles or returns them.
    Consume(u32, Way),
    Purge,
    Restart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Settles,
    Leaves,
    /// They wait for a time, which passes.
    ReturnsLater,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let owner = || 0..OWNERS.len();
    let near = || prop_oneof![6 => Just(0_i64), 1 => -2..3_i64];
    let way = || prop_oneof![Just(Way::Settles), Just(Way::Leaves), Just(Way::ReturnsLater)];
    let limit = || prop_oneof![1 => Just(0_u64), 3 => 1..20_u64];
    let step = prop_oneof![
        6 => (1..30_usize, prop_oneof![0..20_usize, 1000..3000_usize]).prop_map(|(count, size)| Step::Publish(count, size)),
        8 => (owner(), near(), limit(), prop_oneof![2 => Just(0_u64), 1 => 1..4000_u64])
            .prop_map(|(owner, by, messages, bytes)| Step::Reserve(owner, by, messages, bytes)),
        4 => (owner(), near()).prop_map(|(owner, by)| Step::Ack(owner, by)),
        2 => (owner(), -3..2_i64).prop_map(|(owner, by)| Step::Release(owner, by)),
        6 => (owner(), 0..3_u64, 1..4_u32).prop_map(|(owner, below, parts)| Step::Read(owner, below, parts)),
        3 => (1..20_u32, way()).prop_map(|(count, way)| Step::Consume(count, way)),
        1 => Just(Step::Purge),
        2 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Leased(usize, u64),
    Settled,
}

#[derive(Debug)]
struct Message {
    body: String,
    place: Place,
    delivery_count: u32,
}

#[derive(Debug, Default)]
struct Model {
    messages: Vec<Message>,
    acked: [u64; OWNERS.len()],
    last: [u64; OWNERS.len()],
    has_restarted: bool,
    /// Messages of a lease from before a start were released: each counts with its share of the lease's bytes.
    has_shares: bool,
}

impl Model {
    fn at(&self, place: Place) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.place == place)
    }

    fn is_there(&self, owner: usize, number: u64) -> bool {
        self.acked[owner] < number && number <= self.last[owner]
    }

    /// Bodies of a lease.
    fn lease(&self, owner: usize, number: u64) -> Vec<&str> {
        self.at(Place::Leased(owner, number)).map(|message| message.body.as_str()).collect()
    }

    fn reserve(&mut self, owner: usize, number: u64, limits: LeaseLimits) {
        let (mut count, mut bytes) = (0, 0);
        for message in self.messages.iter_mut().filter(|message| message.place == Place::Ready) {
            if limits.messages_max > 0 && count >= limits.messages_max
                || limits.bytes_max > 0 && bytes >= limits.bytes_max
            {
                break;
            }
            message.place = Place::Leased(owner, number);
            count += 1;
            bytes += message.body.len() as u64;
        }
        if count > 0 {
            self.last[owner] = number;
        }
    }

    fn leave(&mut self, owner: usize, numbers: impl Fn(u64) -> bool, place: Place) -> u64 {
        let mut count = 0;
        for message in &mut self.messages {
            if matches!(message.place, Place::Leased(holder, number) if holder == owner && numbers(number)) {
                message.place = place;
                message.delivery_count += u32::from(place == Place::Ready);
                count += 1;
            }
        }
        count
    }
}

struct Pair {
    directory: tempfile::TempDir,
    house: Option<House>,
    model: Model,
    now_ms: u64,
}

impl Pair {
    fn new() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let house = Some(open_queue(directory.path()));
        Pair { directory, house, model: Model::default(), now_ms: YEAR_3000 }
    }

    fn house(&self) -> &House {
        self.house.as_ref().unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish(count, size) => {
                let from = self.model.messages.len();
                let bodies: Vec<String> = (from..from + count).map(|number| format!("{number:0size$}")).collect();
                publish(self.house(), &bodies.iter().map(String::as_str).collect::<Vec<_>>());
                let message = |body| Message { body, place: Place::Ready, delivery_count: 0 };
                self.model.messages.extend(bodies.into_iter().map(message));
            }
            Step::Reserve(owner, by, messages_max, bytes_max) => {
                self.reserve(owner, by, LeaseLimits { messages_max, bytes_max });
            }
            Step::Ack(owner, by) => {
                let up_to = self.model.last[owner].saturating_add_signed(by);
                let acked = self.house().shard.ack_leases(STREAM, OWNERS[owner], up_to);
                assert_eq!(acked.is_ok(), up_to <= self.model.last[owner], "{acked:?}");
                if let Ok(count) = acked {
                    assert_eq!(count, self.model.leave(owner, |number| number <= up_to, Place::Settled));
                    self.model.acked[owner] = self.model.acked[owner].max(up_to);
                }
            }
            Step::Release(owner, by) => self.release(owner, by),
            Step::Read(owner, below, parts) => self.read(owner, below, parts),
            Step::Consume(count, way) => self.consume(count, way),
            Step::Purge => {
                let purged = self.house().shard.purge_queue(STREAM).unwrap();
                assert_eq!(purged, self.model.at(Place::Ready).count() as u64);
                let ready = self.model.messages.iter_mut().filter(|message| message.place == Place::Ready);
                ready.for_each(|message| message.place = Place::Settled);
            }
            Step::Restart => {
                self.house.take().unwrap().close();
                self.house = Some(open_queue(self.directory.path()));
                self.house().shard.expire_due(self.now_ms).unwrap();
                self.model.has_restarted = true;
            }
        }
    }

    fn reserve(&mut self, owner: usize, by: i64, limits: LeaseLimits) {
        let number = (self.model.last[owner] + 1).saturating_add_signed(by);
        let reserved = self.house().shard.reserve_lease(STREAM, OWNERS[owner], number, limits, 1);
        let is_there = self.model.is_there(owner, number);
        if !is_there && number != self.model.last[owner] + 1 {
            assert!(matches!(reserved, Err(EngineError::LeaseNumber { .. })), "{reserved:?}");
            return;
        }
        if !is_there {
            self.model.reserve(owner, number, limits);
        }
        let lease = self.model.lease(owner, number);
        let bytes: usize = lease.iter().map(|body| body.len()).sum();
        let reserved = reserved.unwrap();
        assert_eq!(reserved.lease.count, lease.len() as u64);
        assert!(self.model.has_shares || reserved.lease.bytes == bytes as u64);
        assert_eq!(reserved.is_new, !is_there && !lease.is_empty());
    }

    fn release(&mut self, owner: usize, by: i64) {
        let from = self.model.last[owner].saturating_add_signed(by);
        let released = self.house().shard.release_leases(STREAM, OWNERS[owner], from).unwrap();
        assert_eq!(released, self.model.leave(owner, |number| number >= from, Place::Ready));
        self.model.has_shares |= self.model.has_restarted && released > 0;
        if from == 0 {
            self.model.acked[owner] = 0;
        }
        let acked = self.model.acked[owner];
        self.model.last[owner] = self.model.last[owner].min(from.saturating_sub(1)).max(acked);
    }

    fn read(&self, owner: usize, below: u64, parts: u32) {
        let number = self.model.last[owner].saturating_sub(below);
        let mut found = Vec::new();
        for part in 0..parts {
            let wanted = LeasePart { owner: OWNERS[owner], number, part, parts };
            let mut reader = match self.house().shard.read_lease(STREAM, wanted) {
                Err(error) => {
                    assert!(matches!(error, EngineError::NoLease { .. }) && !self.model.is_there(owner, number));
                    return;
                }
                Ok(reader) => reader,
            };
            let mut filled = Vec::new();
            while reader.fill(3, &mut filled).unwrap() {}
            found.extend(filled.iter().flat_map(said).map(|say| say.body));
        }
        assert!(self.model.is_there(owner, number));
        assert_eq!(found, self.model.lease(owner, number));
    }

    fn consume(&mut self, count: u32, way: Way) {
        let options = SubscriptionOptions { prefetch: count, auto_ack: false, exclusive: false, pull: false };
        let consumer = self.house.as_ref().unwrap().shard.subscribe(STREAM, options).unwrap();
        let mut filled = Vec::new();
        consumer.fill(count, &mut filled).unwrap();
        let picked: Vec<_> = filled.iter().flat_map(|filled| filled.picked.iter().map(|one| one.taken)).collect();
        let says: Vec<_> = filled.iter().flat_map(said).collect();
        let sizes: Vec<_> = says.iter().map(|say| (Sequence(say.offset), say.body.len() as u32)).collect();
        consumer.sent(&sizes).unwrap();
        let ready = self.model.messages.iter_mut().filter(|message| message.place == Place::Ready);
        let due: Vec<_> = ready.take(count as usize).collect();
        let got: Vec<_> =
            says.iter().zip(&picked).map(|(say, taken)| (say.body.as_str(), taken.delivery_count)).collect();
        assert_eq!(got, due.iter().map(|message| (message.body.as_str(), message.delivery_count)).collect::<Vec<_>>());
        for message in due {
            message.place = if way == Way::Settles { Place::Settled } else { Place::Ready };
            message.delivery_count += u32::from(way != Way::Settles);
        }
        match way {
            Way::Leaves => {}
            Way::Settles => drop(consumer.settle(&[SequenceRange::ALL], Settle::Ack).unwrap()),
            Way::ReturnsLater => {
                self.now_ms += 1;
                consumer.settle(&[SequenceRange::ALL], Settle::RequeueAt(self.now_ms)).unwrap();
                self.house().shard.expire_due(self.now_ms).unwrap();
            }
        }
    }

    fn check(&self) {
        let counts = self.house().shard.queue_counts(&[STREAM]).unwrap()[0];
        let ready = self.model.at(Place::Ready).count() as u64;
        let leased = self.model.messages.iter().filter(|message| matches!(message.place, Place::Leased(..)));
        assert_eq!((counts.ready_count, counts.unacked_count), (ready, leased.clone().count() as u64));
        let bytes_of = |found: &mut dyn Iterator<Item = &Message>| found.map(|message| message.body.len() as u64).sum();
        let bytes: [u64; 2] = [bytes_of(&mut self.model.at(Place::Ready)), bytes_of(&mut leased.clone())];
        if !self.model.has_shares {
            assert_eq!([counts.ready_bytes, counts.unacked_bytes], bytes);
        } else if counts.ready_count + counts.unacked_count == 0 {
            assert_eq!([counts.ready_bytes, counts.unacked_bytes], [0, 0]);
        }
        let found = self.house().shard.leases(STREAM).unwrap();
        let found: BTreeMap<_, _> = found.iter().map(|owner| (owner.owner.as_str(), owner)).collect();
        for (at, owner) in OWNERS.iter().enumerate() {
            let (acked, last) = (self.model.acked[at], self.model.last[at]);
            let numbers: Vec<u64> =
                found.get(owner).iter().flat_map(|found| found.leases.iter().map(|lease| lease.number)).collect();
            assert_eq!(found.get(owner).map_or(0, |found| found.acked), acked);
            assert_eq!(numbers, (acked + 1..=last).collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_lease_is_a_place_where_messages_are(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
