//! A queue with priorities against a list of messages with their states: whatever is published, consumed, requeued, leased,
//! purged, restarted and killed, both agree.
#![allow(clippy::unwrap_used)]

mod house;
#[path = "house/killing.rs"]
mod killing;

use std::path::Path;

use house::{House, engine, said};
use killing::copy_of;
use penstock_engine::{
    Attributes, LeaseLimits, LeasePart, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, Subscription,
    SubscriptionOptions, Taken,
};
use proptest::prelude::*;

const QUEUE: QueueId = QueueId(3);
/// After the lanes of the other one: nothing of it may move.
const PLAIN: QueueId = QueueId(3 + HIGHEST as u64 + 1);
const HIGHEST: u8 = 9;
const ALL: [SequenceRange; 1] = [SequenceRange::ALL];

#[derive(Clone, Debug)]
enum Step {
    /// The priorities of messages that come together, and the size of their bodies.
    Publish(Vec<u8>, usize),
    /// A consumer takes so many.
    Take(usize, u32),
    /// A consumer settles the first so many of what it has, or all.
    Settle(usize, usize, Settle),
    /// One with automatic acknowledgement takes so many.
    Get(u32),
    /// Reserves so many, acknowledges all leases, or releases them.
    Lease(u64),
    AckLeases,
    ReleaseLeases,
    Purge,
    /// With a clean stop, or by a kill.
    Restart(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![3 => Just(0), 5 => 0..4_u8, 1 => any::<u8>()];
    let how = prop_oneof![3 => Just(Settle::Ack), 1 => Just(Settle::Reject), 3 => Just(Settle::Requeue)];
    let count = || prop_oneof![5 => 1..8_usize, 1 => Just(usize::MAX)];
    let step = prop_oneof![
        8 => (prop::collection::vec(priority, 1..12), prop_oneof![0..20_usize, 1000..3000_usize])
            .prop_map(|(priorities, size)| Step::Publish(priorities, size)),
        8 => (0..2_usize, 1..12_u32).prop_map(|(consumer, count)| Step::Take(consumer, count)),
        8 => (0..2_usize, count(), how).prop_map(|(consumer, count, how)| Step::Settle(consumer, count, how)),
        2 => (1..12_u32).prop_map(Step::Get),
        2 => (1..12_u64).prop_map(Step::Lease),
        1 => Just(Step::AckLeases),
        1 => Just(Step::ReleaseLeases),
        1 => Just(Step::Purge),
        3 => any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Held(usize),
    Leased(u64),
    Settled,
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    lane: u8,
    place: Place,
    delivery_count: u32,
    sequence: Option<Sequence>,
}

struct Pair {
    directories: Vec<tempfile::TempDir>,
    house: Option<House>,
    consumers: [Option<Subscription>; 2],
    messages: Vec<Message>,
    lease: u64,
    acked: u64,
    /// Leases from before a start count with equal shares of their bytes.
    has_shares: bool,
}

fn open(directory: &Path) -> House {
    let engine = engine();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.retain_with_lanes(&[QUEUE, PLAIN], &[(QUEUE, HIGHEST)]).unwrap();
    shard.prioritize_queues([(QUEUE, HIGHEST)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    shard.put_queue(PLAIN, "plain", false, None).unwrap();
    House { engine, shard }
}

fn publish(house: &House, key: &str, messages: &[(u8, String)]) {
    let attributes: Vec<Attributes> = messages
        .iter()
        .map(|(priority, _)| Attributes { priority: Some(*priority), ..Attributes::default() })
        .collect();
    let batch: Vec<Publication<'_>> = messages
        .iter()
        .zip(&attributes)
        .map(|((priority, body), attributes)| {
            let payload = Payload::new(b"", key.as_bytes(), b"", body.as_bytes()).unwrap();
            let payload = if *priority == 0 { payload } else { payload.with_attributes(attributes) };
            let key = key.as_bytes();
            Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false }
        })
        .collect();
    house.shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
}

impl Pair {
    fn new() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let house = Some(open(directory.path()));
        publish(house.as_ref().unwrap(), "plain", &[(7, "plain".to_owned())]);
        let messages = Vec::new();
        Pair {
            directories: vec![directory],
            house,
            consumers: [None, None],
            messages,
            lease: 0,
            acked: 0,
            has_shares: false,
        }
    }

    fn house(&self) -> &House {
        self.house.as_ref().unwrap()
    }

    /// Of the messages in a place the first so many, those of the highest priority first.
    fn first_in(&self, place: Place, count: usize) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.messages.len()).filter(|&at| self.messages[at].place == place).collect();
        found.sort_by_key(|&at| std::cmp::Reverse(self.messages[at].lane));
        found.truncate(count);
        found
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish(priorities, size) => {
                let from = self.messages.len();
                let bodies = (from..).map(|number| format!("{number:0size$}"));
                let sent: Vec<(u8, String)> = priorities.into_iter().zip(bodies).collect();
                publish(self.house(), "s", &sent);
                self.messages.extend(sent.into_iter().map(|(priority, body)| Message {
                    body,
                    lane: priority.min(HIGHEST),
                    place: Place::Ready,
                    delivery_count: 0,
                    sequence: None,
                }));
            }
            Step::Take(consumer, count) => self.take(consumer, count),
            Step::Settle(consumer, count, how) => self.settle(consumer, count, how),
            Step::Get(count) => self.get(count),
            Step::Lease(count) => self.reserve(count),
            Step::AckLeases => {
                let expected = self.leave(|place| matches!(place, Place::Leased(_)), Place::Settled);
                assert_eq!(self.house().shard.ack_leases(QUEUE, "o", self.lease).unwrap(), expected);
                self.acked = self.lease;
            }
            Step::ReleaseLeases => {
                let expected = self.leave(|place| matches!(place, Place::Leased(_)), Place::Ready);
                assert_eq!(self.house().shard.release_leases(QUEUE, "o", 0).unwrap(), expected);
                (self.lease, self.acked) = (0, 0);
            }
            Step::Purge => {
                let purged = self.house().shard.purge_queue(QUEUE).unwrap();
                assert_eq!(purged, self.leave(|place| place == Place::Ready, Place::Settled));
            }
            Step::Restart(is_clean) => self.restart(is_clean),
        }
    }

    /// Moves messages; those that become ready again were delivered once more.
    fn leave(&mut self, is_from: impl Fn(Place) -> bool, to: Place) -> u64 {
        let mut count = 0;
        for message in self.messages.iter_mut().filter(|message| is_from(message.place)) {
            message.place = to;
            message.delivery_count += u32::from(to == Place::Ready);
            count += 1;
        }
        count
    }

    fn take(&mut self, consumer: usize, count: u32) {
        let shard = &self.house.as_ref().unwrap().shard;
        let subscription = self.consumers[consumer].get_or_insert_with(|| {
            let options = SubscriptionOptions { prefetch: 30, auto_ack: false, exclusive: false, pull: false };
            shard.subscribe(QUEUE, options).unwrap()
        });
        let found = filled(subscription, count);
        let due = self.first_in(Place::Ready, found.len());
        self.check_taken(&found, &due);
        due.into_iter().for_each(|at| self.messages[at].place = Place::Held(consumer));
    }

    fn get(&mut self, count: u32) {
        let options = SubscriptionOptions { prefetch: 30, auto_ack: true, exclusive: false, pull: true };
        let subscription = self.house().shard.subscribe(QUEUE, options).unwrap();
        let mut runs = Vec::new();
        let left = subscription.take_now(count, &mut runs).unwrap();
        let found = sent(&subscription, &runs);
        let due = self.first_in(Place::Ready, count as usize);
        self.check_taken(&found, &due);
        due.into_iter().for_each(|at| self.messages[at].place = Place::Settled);
        assert_eq!(left, self.first_in(Place::Ready, usize::MAX).len() as u64);
    }

    fn check_taken(&mut self, found: &[(Taken, String)], due: &[usize]) {
        let got: Vec<_> = found.iter().map(|(taken, body)| (body.as_str(), taken.delivery_count)).collect();
        let expected: Vec<_> = due.iter().map(|&at| &self.messages[at]).collect();
        assert_eq!(got, expected.iter().map(|one| (one.body.as_str(), one.delivery_count)).collect::<Vec<_>>());
        for ((taken, _), &at) in found.iter().zip(due) {
            let message = &mut self.messages[at];
            assert_eq!(taken.sequence.lane(), u16::from(message.lane));
            assert_eq!(*message.sequence.get_or_insert(taken.sequence), taken.sequence, "it keeps its number");
        }
    }

    fn settle(&mut self, consumer: usize, count: usize, how: Settle) {
        let Some(subscription) = &self.consumers[consumer] else { return };
        let some = self.first_in(Place::Held(consumer), count);
        let ranges: Vec<SequenceRange> = if count == usize::MAX {
            ALL.to_vec()
        } else {
            let sequences = some.iter().map(|&at| self.messages[at].sequence.unwrap());
            sequences.map(|sequence| SequenceRange { first: sequence, last: sequence }).collect()
        };
        assert_eq!(subscription.settle(&ranges, how).unwrap(), some.len() as u64);
        for at in some {
            let message = &mut self.messages[at];
            message.place = if how == Settle::Requeue { Place::Ready } else { Place::Settled };
            message.delivery_count += u32::from(how == Settle::Requeue);
        }
    }

    fn reserve(&mut self, count: u64) {
        if self.lease - self.acked >= 60 {
            return;
        }
        let number = self.lease + 1;
        let limits = LeaseLimits { messages_max: count, bytes_max: 0 };
        let reserved = self.house().shard.reserve_lease(QUEUE, "o", number, limits, 1).unwrap();
        let due = self.first_in(Place::Ready, count as usize);
        assert_eq!(reserved.lease.count, due.len() as u64);
        if !due.is_empty() {
            self.lease = number;
        }
        due.into_iter().for_each(|at| self.messages[at].place = Place::Leased(number));
    }

    /// Reads a lease and compares its messages, from the highest priority on, with those of the model.
    fn read_lease(&self, number: u64) {
        let wanted = LeasePart { owner: "o", number, part: 0, parts: 1 };
        let mut reader = self.house().shard.read_lease(QUEUE, wanted).unwrap();
        let mut runs = Vec::new();
        while reader.fill(3, &mut runs).unwrap() {}
        let found: Vec<String> = runs.iter().flat_map(said).map(|say| say.body).collect();
        let mut expected: Vec<&Message> =
            self.messages.iter().filter(|message| message.place == Place::Leased(number)).collect();
        expected.sort_by_key(|message| std::cmp::Reverse(message.lane));
        assert_eq!(found, expected.iter().map(|message| message.body.as_str()).collect::<Vec<_>>());
    }

    fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.consumers = [None, None];
            self.leave(|place| matches!(place, Place::Held(_)), Place::Ready);
            self.house.take().unwrap().close();
            self.house = Some(open(self.directories.last().unwrap().path()));
        } else {
            // The consumers are alive: nothing is written for them.
            for message in self.messages.iter_mut().filter(|message| matches!(message.place, Place::Held(_))) {
                message.place = Place::Ready;
            }
            let copy = copy_of(self.directories.last().unwrap().path());
            self.consumers = [None, None];
            self.house = Some(open(copy.path()));
            self.directories.push(copy);
        }
        self.has_shares |= self.messages.iter().any(|message| matches!(message.place, Place::Leased(_)));
    }

    fn check(&self) {
        let found = self.house().shard.queue_counts(&[QUEUE, PLAIN]).unwrap();
        let of = |is_in: &dyn Fn(Place) -> bool| {
            let some = self.messages.iter().filter(|message| is_in(message.place));
            some.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.body.len() as u64))
        };
        let ready = of(&|place| place == Place::Ready);
        let unacked = of(&|place| matches!(place, Place::Held(_) | Place::Leased(_)));
        assert_eq!((found[0].ready_count, found[0].unacked_count), (ready.0, unacked.0));
        assert_eq!(found[0].published_count, self.messages.len() as u64);
        assert_eq!(found[0].settled_count, of(&|place| place == Place::Settled).0);
        if !self.has_shares {
            assert_eq!((found[0].ready_bytes, found[0].unacked_bytes), (ready.1, unacked.1));
        }
        assert_eq!((found[1].ready_count, found[1].ready_bytes), (1, 5), "the plain queue has its message");
        (self.acked + 1..=self.lease).for_each(|number| self.read_lease(number));
    }
}

fn filled(subscription: &Subscription, count: u32) -> Vec<(Taken, String)> {
    let mut runs = Vec::new();
    subscription.fill(count, &mut runs).unwrap();
    sent(subscription, &runs)
}

fn sent(subscription: &Subscription, runs: &[penstock_engine::Filled]) -> Vec<(Taken, String)> {
    let taken = runs.iter().flat_map(|run| run.picked.iter().map(|one| one.taken));
    let bodies = runs.iter().flat_map(said).map(|say| say.body);
    let found: Vec<(Taken, String)> = taken.zip(bodies).collect();
    let sizes: Vec<_> = found.iter().map(|(taken, body)| (taken.sequence, body.len() as u32)).collect();
    subscription.sent(&sizes).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_with_priorities_does_what_a_sorted_list_does(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
