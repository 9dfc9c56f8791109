//! A queue with a retry schedule against a map of states: whatever is delivered, given back, lost, killed and waited for, both
//! agree on what is delivered, how often it was, and what waits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod house;
#[path = "house/killing.rs"]
mod killing;

use std::collections::BTreeMap;
use std::path::Path;

use house::{House, engine};
use killing::copy_of;
use penstock_engine::{
    Attributes, BackOff, Payload, Publication, QueueId, RetrySchedule, RetryType, Sequence, SequenceRange, Settle,
    Subscription, SubscriptionOptions,
};
use proptest::prelude::*;

const QUEUE: QueueId = QueueId(3);
const HIGHEST: u8 = 2;
/// Far in the future, so that the thread that releases messages in the background does nothing by itself.
const YEAR_3000: u64 = 32_503_680_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Until this time.
    Waiting(u64),
    Held,
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8),
    Take(u32),
    Settle(usize, Settle),
    /// The consumer is gone, and another one comes.
    Lose,
    Pass(u64),
    Kill,
    Schedule(Option<RetrySchedule>),
}

fn schedules() -> impl Strategy<Value = RetrySchedule> {
    let of = prop_oneof![Just(RetryType::All), Just(RetryType::Failed), Just(RetryType::Returned)];
    let linear = (0..60_u64, 0..150_u64).prop_map(|(min_ms, max_ms)| BackOff::Linear { min_ms, max_ms });
    let steps = prop::collection::vec(prop_oneof![Just(0), 1..120_u64], 1..4).prop_map(BackOff::Steps);
    (of, prop_oneof![linear, steps]).prop_map(|(of, back_off)| RetrySchedule { of, back_off })
}

fn all_steps() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![Just(Settle::Ack), Just(Settle::Requeue), Just(Settle::RequeueFailed)];
    let step = prop_oneof![
        5 => (0..=HIGHEST).prop_map(Step::Publish),
        5 => (1..4_u32).prop_map(Step::Take),
        8 => (0..64_usize, how).prop_map(|(at, how)| Step::Settle(at, how)),
        1 => Just(Step::Lose),
        5 => (1..80_u64).prop_map(Step::Pass),
        1 => Just(Step::Kill),
        1 => prop::option::of(schedules()).prop_map(Step::Schedule),
    ];
    prop::collection::vec(step, 0..60)
}

/// Messages by the order of delivery: those of a higher priority first, then by their numbers.
type Key = (u8, u64);

#[derive(Clone, Copy, Debug)]
struct Message {
    sequence: Sequence,
    state: State,
    count: u32,
}

struct World {
    directory: tempfile::TempDir,
    house: House,
    consumer: Subscription,
    schedule: Option<RetrySchedule>,
    counts_failures: bool,
    now_ms: u64,
    messages: BTreeMap<Key, Message>,
    published: u64,
    /// By priority.
    next: [u64; HIGHEST as usize + 1],
}

fn open(directory: &Path, counts_failures: bool) -> House {
    let engine = engine();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.retain_with_lanes(&[QUEUE], &[(QUEUE, HIGHEST)]).unwrap();
    shard.prioritize_queues([(QUEUE, HIGHEST)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();
    shard.count_failures([(QUEUE, counts_failures)]).unwrap();
    House { engine, shard }
}

fn subscribe(house: &House) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    house.shard.subscribe(QUEUE, options).unwrap()
}

impl World {
    fn new(counts_failures: bool) -> World {
        let directory = tempfile::tempdir().unwrap();
        let house = open(directory.path(), counts_failures);
        let consumer = subscribe(&house);
        let mut world = World {
            directory,
            house,
            consumer,
            schedule: None,
            counts_failures,
            now_ms: YEAR_3000,
            messages: BTreeMap::new(),
            published: 0,
            next: [1; 3],
        };
        world.pass();
        world
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish(priority) => self.publish(priority),
            Step::Take(count_max) => self.take(count_max),
            Step::Settle(at, how) => {
                let held: Vec<Key> = self.all(State::Held);
                if let Some(key) = (!held.is_empty()).then(|| held[at % held.len()]) {
                    let range = SequenceRange::of(self.messages[&key].sequence);
                    assert_eq!(self.consumer.settle(&[range], how).unwrap(), 1);
                    self.settled(key, how);
                }
            }
            Step::Lose => {
                self.consumer = subscribe(&self.house);
                self.all(State::Held).into_iter().for_each(|key| self.settled(key, Settle::RequeueFailed));
            }
            Step::Pass(ms) => {
                self.now_ms += ms;
                self.pass();
            }
            Step::Kill => self.kill(),
            Step::Schedule(schedule) => {
                self.schedule = schedule;
                self.house.shard.schedule_retries([(QUEUE, self.schedule.clone())]).unwrap();
            }
        }
    }

    fn publish(&mut self, priority: u8) {
        let attributes = Attributes { priority: Some(priority), ..Attributes::default() };
        self.published += 1;
        let body = self.published.to_string();
        let payload = Payload::new(b"", b"s", b"", body.as_bytes()).unwrap().with_attributes(&attributes);
        let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false };
        self.house.shard.publish(&[one], None, YEAR_3000, &mut Vec::new()).unwrap();
        let next = &mut self.next[usize::from(priority)];
        let message = Message { sequence: Sequence(*next).in_lane(priority.into()), state: State::Ready, count: 0 };
        *next += 1;
        self.messages.insert((HIGHEST - priority, self.published), message);
    }

    fn take(&mut self, count_max: u32) {
        let mut filled = Vec::new();
        self.consumer.fill(count_max, &mut filled).unwrap();
        let mut found = Vec::new();
        for run in &filled {
            for picked in &run.picked {
                let body = run.segment.message(picked.offset).unwrap().body.to_vec();
                self.consumer.sent(&[(picked.taken.sequence, body.len() as u32)]).unwrap();
                let number = String::from_utf8(body).unwrap().parse::<u64>().unwrap();
                found.push((number, picked.taken.delivery_count));
            }
        }
        let mut expected = self.all(State::Ready);
        expected.truncate(count_max as usize);
        let with_counts: Vec<_> = expected.iter().map(|key| (key.1, self.messages[key].count)).collect();
        assert_eq!(found, with_counts);
        expected.into_iter().for_each(|key| self.messages.get_mut(&key).unwrap().state = State::Held);
    }

    /// A schedule's purpose, in three lines.
    fn settled(&mut self, key: Key, how: Settle) {
        let Message { state, count, .. } = self.messages.get_mut(&key).unwrap();
        if how == Settle::Ack {
            self.messages.remove(&key);
            return;
        }
        *count += u32::from(how == Settle::RequeueFailed || !self.counts_failures);
        let delivered = (*count).max(1);
        let delay_ms = match &self.schedule {
            Some(RetrySchedule { of: RetryType::Failed, .. }) if how == Settle::Requeue => 0,
            Some(RetrySchedule { of: RetryType::Returned, .. }) if how == Settle::RequeueFailed => 0,
            Some(RetrySchedule { back_off: BackOff::Linear { min_ms, max_ms }, .. }) => {
                (min_ms * u64::from(delivered)).min(*max_ms)
            }
            Some(RetrySchedule { back_off: BackOff::Steps(steps), .. }) => {
                steps[(delivered as usize).min(steps.len()) - 1]
            }
            None => 0,
        };
        *state = if delay_ms == 0 { State::Ready } else { State::Waiting(self.now_ms + delay_ms) };
    }

    fn pass(&mut self) {
        self.house.shard.expire_due(self.now_ms).unwrap();
        for message in self.messages.values_mut() {
            if matches!(message.state, State::Waiting(due_ms) if due_ms <= self.now_ms) {
                message.state = State::Ready;
            }
        }
    }

    /// The process ends without a stop: what the consumer had is ready, and was not counted.
    fn kill(&mut self) {
        let directory = copy_of(self.directory.path());
        let house = open(directory.path(), self.counts_failures);
        self.consumer = subscribe(&house);
        std::mem::replace(&mut self.house, house).close();
        self.directory = directory;
        self.house.shard.schedule_retries([(QUEUE, self.schedule.clone())]).unwrap();
        self.all(State::Held).into_iter().for_each(|key| self.messages.get_mut(&key).unwrap().state = State::Ready);
        self.pass();
    }

    fn all(&self, state: State) -> Vec<Key> {
        self.messages.iter().filter(|(_, message)| message.state == state).map(|(&key, _)| key).collect()
    }

    fn check(&self) {
        let counts = self.house.shard.queue_counts(&[QUEUE]).unwrap()[0];
        let count = |is: fn(&State) -> bool| self.messages.values().filter(|message| is(&message.state)).count() as u64;
        let waiting = count(|state| matches!(state, State::Waiting(_)));
        assert_eq!(counts.delayed_count, waiting);
        assert_eq!(counts.ready_count, waiting + count(|state| *state == State::Ready));
        assert_eq!(counts.unacked_count, count(|state| *state == State::Held));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn messages_wait_as_long_as_the_model_says(steps in all_steps(), counts_failures in any::<bool>()) {
        let mut world = World::new(counts_failures);
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}
