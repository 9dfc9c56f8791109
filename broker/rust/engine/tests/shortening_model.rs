//! A queue that drops its oldest messages against a list of messages with their states: whatever is published, consumed,
//! requeued, restarted and killed, and however the limit changes, both agree.
#![allow(clippy::unwrap_used)]

mod house;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use house::{House, engine, said};
use penstock_engine::{
    Attributes, LengthLimit, Overflow, Payload, Publication, QueueId, SequenceRange, Settle, Subscription,
    SubscriptionOptions,
};
use proptest::prelude::*;

const QUEUE: QueueId = QueueId(3);

#[derive(Clone, Debug)]
enum Step {
    /// Messages that come together: the priority and the size of the body of each.
    Publish(Vec<(u8, usize)>),
    /// One of two consumers takes so many.
    Take(usize, u32),
    /// A consumer settles all that it has, or leaves.
    Settle(usize, Settle),
    Leave(usize),
    Limit(u64, u64),
    Purge,
    /// With a clean stop, or by a kill.
    Restart(bool),
}

fn limits() -> impl Strategy<Value = (u64, u64)> {
    let messages = prop_oneof![1 => Just(u64::MAX), 4 => 0..12_u64];
    let bytes = prop_oneof![2 => Just(u64::MAX), 3 => 0..400_u64];
    (messages, bytes)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let message = || (prop_oneof![3 => Just(0), 2 => 0..4_u8], prop_oneof![4 => 0..60_usize, 1 => 100..500_usize]);
    let how = prop_oneof![2 => Just(Settle::Ack), 1 => Just(Settle::Reject), 3 => Just(Settle::Requeue)];
    let step = prop_oneof![
        8 => prop::collection::vec(message(), 1..20).prop_map(Step::Publish),
        6 => (0..2_usize, 1..8_u32).prop_map(|(consumer, count)| Step::Take(consumer, count)),
        5 => (0..2_usize, how).prop_map(|(consumer, how)| Step::Settle(consumer, how)),
        1 => (0..2_usize).prop_map(Step::Leave),
        2 => limits().prop_map(|(messages, bytes)| Step::Limit(messages, bytes)),
        1 => Just(Step::Purge),
        3 => any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Held(usize),
    Gone,
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    lane: u8,
    place: Place,
}

struct Pair {
    directories: Vec<tempfile::TempDir>,
    house: Option<House>,
    consumers: [Option<Subscription>; 2],
    messages: Vec<Message>,
    limit: (u64, u64),
    highest: u8,
    /// Dropped since the start of the engine.
    dropped: u64,
}

fn open(directory: &Path, highest: u8, limit: (u64, u64)) -> House {
    let engine = engine();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.prioritize_queues([(QUEUE, highest)].into_iter().filter(|(_, highest)| *highest > 0)).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    let house = House { engine, shard };
    set_limit(&house, limit);
    house
}

fn set_limit(house: &House, (messages_max, bytes_max): (u64, u64)) {
    let limit = LengthLimit { messages_max, bytes_max, overflow: Overflow::DropHead };
    house.shard.limit_lengths([(QUEUE, Some(limit))]).unwrap();
}

impl Pair {
    fn new(highest: u8, limit: (u64, u64)) -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let house = Some(open(directory.path(), highest, limit));
        let (directories, consumers) = (vec![directory], [None, None]);
        Pair { directories, house, consumers, messages: Vec::new(), limit, highest, dropped: 0 }
    }

    fn house(&self) -> &House {
        self.house.as_ref().unwrap()
    }

    /// The ready messages, the head of the queue first.
    fn ready(&self) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.messages.len()).filter(|&at| self.messages[at].place == Place::Ready).collect();
        found.sort_by_key(|&at| std::cmp::Reverse(self.messages[at].lane));
        found
    }

    fn shorten(&mut self) {
        let (messages_max, bytes_max) = self.limit;
        let ready = self.ready();
        let mut count = ready.len() as u64;
        let mut bytes: u64 = ready.iter().map(|&at| self.messages[at].body.len() as u64).sum();
        for at in ready {
            if count <= messages_max && bytes <= bytes_max {
                return;
            }
            count -= 1;
            bytes -= self.messages[at].body.len() as u64;
            self.messages[at].place = Place::Gone;
            self.dropped += 1;
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish(sent) => self.publish(&sent),
            Step::Take(consumer, count) => self.take(consumer, count),
            Step::Settle(consumer, how) => {
                if let Some(subscription) = &self.consumers[consumer] {
                    subscription.settle(&[SequenceRange::ALL], how).unwrap();
                    self.leave(consumer, if how == Settle::Requeue { Place::Ready } else { Place::Gone });
                }
            }
            Step::Leave(consumer) => {
                self.consumers[consumer] = None;
                self.leave(consumer, Place::Ready);
            }
            Step::Limit(messages_max, bytes_max) => {
                self.limit = (messages_max, bytes_max);
                set_limit(self.house(), self.limit);
            }
            Step::Purge => {
                self.house().shard.purge_queue(QUEUE).unwrap();
                self.ready().into_iter().for_each(|at| self.messages[at].place = Place::Gone);
            }
            Step::Restart(is_clean) => self.restart(is_clean),
        }
        // A publisher has shortened it already; what came back goes in the next turn of the thread of expiries.
        self.house().shard.expire_due(1).unwrap();
        self.shorten();
    }

    fn leave(&mut self, consumer: usize, to: Place) {
        let held = self.messages.iter_mut().filter(|message| message.place == Place::Held(consumer));
        held.for_each(|message| message.place = to);
    }

    fn publish(&mut self, sent: &[(u8, usize)]) {
        let from = self.messages.len();
        let bodies = (from..).zip(sent).map(|(number, (_, size))| format!("{number:0size$}"));
        let bodies: Vec<String> = bodies.collect();
        let attributes: Vec<Attributes> = sent
            .iter()
            .map(|(priority, _)| Attributes { priority: Some(*priority), ..Attributes::default() })
            .collect();
        let one = |(body, attributes): (&'_ String, &'_ Attributes)| (body.clone(), attributes.priority.unwrap());
        self.messages.extend(bodies.iter().zip(&attributes).map(one).map(|(body, priority)| Message {
            body,
            lane: priority.min(self.highest),
            place: Place::Ready,
        }));
        let batch: Vec<Publication<'_>> = bodies
            .iter()
            .zip(&attributes)
            .map(|(body, attributes)| {
                let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap().with_attributes(attributes);
                Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false }
            })
            .collect();
        let mut fates = Vec::new();
        self.house().shard.publish(&batch, None, 1, &mut fates).unwrap();
        assert_eq!(fates.len(), batch.len());
        self.shorten();
        let found = self.house().shard.queue_counts(&[QUEUE]).unwrap()[0];
        assert_eq!(found.ready_count, self.ready().len() as u64, "before the publisher is answered");
    }

    fn take(&mut self, consumer: usize, count: u32) {
        let shard = &self.house.as_ref().unwrap().shard;
        let subscription = self.consumers[consumer].get_or_insert_with(|| {
            let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
            shard.subscribe(QUEUE, options).unwrap()
        });
        let mut runs = Vec::new();
        subscription.take_now(count, &mut runs).unwrap();
        let taken = runs.iter().flat_map(|run| run.picked.iter().map(|one| one.taken.sequence));
        let bodies: Vec<String> = runs.iter().flat_map(said).map(|say| say.body).collect();
        let sizes: Vec<_> = taken.zip(&bodies).map(|(sequence, body)| (sequence, body.len() as u32)).collect();
        subscription.sent(&sizes).unwrap();
        let due: Vec<usize> = self.ready().into_iter().take(count as usize).collect();
        assert_eq!(bodies, due.iter().map(|&at| self.messages[at].body.clone()).collect::<Vec<_>>());
        due.into_iter().for_each(|at| self.messages[at].place = Place::Held(consumer));
    }

    fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.consumers = [None, None];
            self.leave(0, Place::Ready);
            self.leave(1, Place::Ready);
            self.house().shard.expire_due(1).unwrap();
            self.shorten();
            self.house.take().unwrap().close();
            self.house = Some(open(self.directories.last().unwrap().path(), self.highest, self.limit));
        } else {
            // The consumers are alive: nothing is written for them.
            let copy = copy_of(self.directories.last().unwrap().path());
            self.consumers = [None, None];
            self.leave(0, Place::Ready);
            self.leave(1, Place::Ready);
            self.house = Some(open(copy.path(), self.highest, self.limit));
            self.directories.push(copy);
        }
        self.dropped = 0;
    }

    fn check(&self) {
        let found = self.house().shard.queue_counts(&[QUEUE]).unwrap()[0];
        let of = |is_in: &dyn Fn(Place) -> bool| {
            let some = self.messages.iter().filter(|message| is_in(message.place));
            some.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.body.len() as u64))
        };
        assert_eq!((found.ready_count, found.ready_bytes), of(&|place| place == Place::Ready));
        assert_eq!((found.unacked_count, found.unacked_bytes), of(&|place| matches!(place, Place::Held(_))));
        assert_eq!(found.settled_count, of(&|place| place == Place::Gone).0);
        let counted = self.house().shard.counters().all().find(|(name, _)| *name == "overflow_dropped_total").unwrap();
        assert_eq!(counted.1, self.dropped);
    }
}

/// Copies the directory as a kill would leave it. The background folds and rewrites segments meanwhile: a copy during which a
/// file changed is no state that ever was, and is made again.
fn copy_of(from: &Path) -> tempfile::TempDir {
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = files(from);
        let is_copied = before.keys().all(|name| std::fs::copy(from.join(name), copy.path().join(name)).is_ok());
        if is_copied && files(from) == before {
            return copy;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The files of a log, with their lengths and the times of their last changes.
fn files(directory: &Path) -> BTreeMap<OsString, (u64, SystemTime)> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let found = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.file_name(), (metadata.len(), metadata.modified().unwrap())))
    });
    found.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_with_a_limit_does_what_a_list_does(
        highest in prop_oneof![2 => Just(0_u8), 1 => Just(3)],
        limit in limits(),
        steps in steps(),
    ) {
        let mut pair = Pair::new(highest, limit);
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
