//! No ready message stays while a consumer waits that would take it, whatever the other consumers do. Some of them share a
//! credit, of two queues.
//!
//! A consumer is modelled as the task that serves it: it takes while its client's window has space, and listens for its
//! waker once there is nothing to take. One whose window is full does neither. Some have a waker of their own, others are
//! on one ready list. Nothing depends on threads or clocks.
#![allow(clippy::unwrap_used)]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use penstock_engine::{
    Credit, Engine, EngineOptions, Payload, Publication, QueueId, ReadyList, Sequence, SequenceRange, Settle, Shard,
    Signal, Subscription, SubscriptionOptions,
};
use proptest::prelude::*;

const QUEUES: [(QueueId, &str); 2] = [(QueueId(1), "jobs"), (QueueId(2), "more")];

/// The most messages of a response.
const FILL_MAX: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Publish(usize, u8),
    Join(Options),
    Leave(usize),
    Flow(usize, u32),
    /// The client can take so many more responses.
    Read(usize, u8),
    SettleAll(usize, Settle),
    Pause(usize, bool),
    /// Of the shared credit.
    Limit(u32),
    PauseAll(bool),
}

#[derive(Clone, Copy, Debug)]
struct Options {
    queue: usize,
    prefetch: u32,
    is_listed: bool,
    shares: bool,
}

fn options() -> impl Strategy<Value = Options> {
    let prefetch = prop_oneof![Just(0u32), Just(1), Just(3), Just(1000)];
    let options = (0usize..2, prefetch, any::<bool>(), any::<bool>());
    options.prop_map(|(queue, prefetch, is_listed, shares)| Options { queue, prefetch, is_listed, shares })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = || 0usize..5;
    let prefetch = || prop_oneof![Just(0u32), Just(1), Just(3), Just(1000)];
    let how = prop_oneof![3 => Just(Settle::Ack), 1 => Just(Settle::Requeue)];
    let step = prop_oneof![
        6 => (0usize..2, 1u8..6).prop_map(|(queue, count)| Step::Publish(queue, count)),
        3 => options().prop_map(Step::Join),
        1 => who().prop_map(Step::Leave),
        3 => (who(), prefetch()).prop_map(|(who, prefetch)| Step::Flow(who, prefetch)),
        4 => (who(), 1u8..3).prop_map(|(who, responses)| Step::Read(who, responses)),
        3 => (who(), how).prop_map(|(who, how)| Step::SettleAll(who, how)),
        2 => (who(), any::<bool>()).prop_map(|(who, is_paused)| Step::Pause(who, is_paused)),
        1 => (0u32..6).prop_map(Step::Limit),
        2 => any::<bool>().prop_map(Step::PauseAll),
    ];
    prop::collection::vec(step, 1..60)
}

struct Consumer {
    subscription: Subscription,
    /// Its number on the ready list, if it is there.
    token: Option<u64>,
    /// The list named it.
    is_named: bool,
    options: Options,
    prefetch: u32,
    is_paused: bool,
    /// Responses that its client can take.
    room: u8,
    /// It found nothing and listens.
    listens: bool,
}

impl Consumer {
    fn hears(&mut self) -> bool {
        if self.token.is_some() {
            return std::mem::take(&mut self.is_named);
        }
        let heard = pin!(self.subscription.signal().heard());
        heard.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    /// One run of its task; false when it sleeps.
    fn run(&mut self) -> bool {
        let sleeps = if self.listens { !self.hears() } else { self.room == 0 };
        if sleeps {
            return false;
        }
        self.listens = false;
        while self.room > 0 {
            let mut filled = Vec::new();
            self.subscription.fill(FILL_MAX, &mut filled).unwrap();
            if filled.is_empty() {
                self.listens = true;
                break;
            }
            let taken = filled.iter().flat_map(|filled| &filled.picked);
            let sizes: Vec<(Sequence, u32)> = taken.map(|picked| (picked.taken.sequence, 1)).collect();
            self.subscription.sent(&sizes).unwrap();
            self.room -= 1;
        }
        true
    }

    fn has_credit(&self) -> bool {
        !self.is_paused && self.subscription.unacked_count() < self.prefetch
    }
}

struct House {
    shard: Arc<Shard>,
    consumers: Vec<Consumer>,
    list: Arc<ReadyList>,
    joined_count: u64,
    credit: Arc<Credit>,
    limit: u32,
    is_paused: bool,
}

impl House {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Publish(queue, count) => self.publish(queue, count),
            Step::Join(options) => self.join(options),
            Step::Leave(who) => {
                if let Some(who) = who.checked_rem(self.consumers.len()) {
                    self.consumers.remove(who);
                }
            }
            Step::Flow(who, prefetch) => {
                if let Some(consumer) = self.consumer(who) {
                    consumer.subscription.set_prefetch(prefetch).unwrap();
                    consumer.prefetch = prefetch;
                }
            }
            Step::Read(who, responses) => {
                if let Some(consumer) = self.consumer(who) {
                    consumer.room += responses;
                }
            }
            Step::SettleAll(who, how) => {
                if let Some(consumer) = self.consumer(who) {
                    let all = SequenceRange::new(Sequence(0), Sequence(u64::MAX)).unwrap();
                    consumer.subscription.settle(&[all], how).unwrap();
                    // The settlement reached its task, which looks for more by itself.
                    consumer.listens = false;
                }
            }
            Step::Pause(who, is_paused) => {
                if let Some(consumer) = self.consumer(who) {
                    consumer.is_paused = is_paused;
                    let subscription = &consumer.subscription;
                    if is_paused { subscription.pause() } else { subscription.resume() }.unwrap();
                }
            }
            Step::PauseAll(is_paused) => {
                self.is_paused = is_paused;
                if is_paused { self.credit.pause() } else { self.credit.resume() }
            }
            Step::Limit(limit) => {
                self.limit = limit;
                self.credit.set_limit(limit);
            }
        }
    }

    fn join(&mut self, options: Options) {
        self.joined_count += 1;
        let token = options.is_listed.then_some(self.joined_count);
        let signal = token.map_or_else(Arc::<Signal>::default, |token| self.list.signal(token));
        let (queue, prefetch) = (QUEUES[options.queue].0, options.prefetch);
        let settings = SubscriptionOptions { prefetch, auto_ack: false, exclusive: false, pull: false };
        let credit = options.shares.then_some(&self.credit);
        let subscription = self.shard.subscribe_with(queue, settings, signal, credit).unwrap();
        let (is_named, is_paused, listens) = (false, false, false);
        let consumer = Consumer { subscription, token, is_named, options, prefetch, is_paused, room: 1, listens };
        self.consumers.push(consumer);
    }

    fn consumer(&mut self, who: usize) -> Option<&mut Consumer> {
        let who = who.checked_rem(self.consumers.len())?;
        self.consumers.get_mut(who)
    }

    fn publish(&self, queue: usize, count: u8) {
        let key = QUEUES[queue].1.as_bytes();
        let payload = || Payload::new(b"", key, b"", b"x").unwrap();
        let publication = |_| Publication {
            payload: payload(),
            exchange: b"",
            key,
            headers: None,
            persistent: false,
            mandatory: false,
        };
        let batch: Vec<Publication<'_>> = (0..count).map(publication).collect();
        self.shard.publish(&batch, None, 1, &mut Vec::new()).unwrap();
    }

    fn settle_down(&mut self) {
        loop {
            let mut named = Vec::new();
            self.list.take(&mut named);
            let is_named = |consumer: &&mut Consumer| consumer.token.is_some_and(|token| named.contains(&token));
            self.consumers.iter_mut().filter(is_named).for_each(|consumer| consumer.is_named = true);
            if !self.consumers.iter_mut().map(Consumer::run).fold(false, |any, ran| any | ran) {
                return;
            }
        }
    }

    fn check(&self) {
        let sharing = self.consumers.iter().filter(|consumer| consumer.options.shares);
        let held_count: u64 = sharing.map(|consumer| u64::from(consumer.subscription.unacked_count())).sum();
        assert_eq!(self.credit.held_count(), held_count);
        let is_idle = |consumer: &Consumer| {
            let is_refused = consumer.options.shares && (self.is_paused || held_count >= u64::from(self.limit));
            consumer.listens && consumer.has_credit() && !is_refused
        };
        for (queue, (id, _)) in QUEUES.into_iter().enumerate() {
            let ready_count = self.shard.queue_counts(&[id]).unwrap()[0].ready_count;
            let idle = self.consumers.iter().position(|consumer| consumer.options.queue == queue && is_idle(consumer));
            assert!(ready_count == 0 || idle.is_none(), "{ready_count} ready beside consumer {idle:?}, which waits");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_ready_message_stays_beside_a_consumer_that_waits(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::new(EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 64 << 20,
            producer_memory: Duration::ZERO,
 producers_of_user_max: 4096,
        }).unwrap();
        let shard = engine.open_shard("/", directory.path(), false).unwrap();
        QUEUES.into_iter().for_each(|(id, name)| shard.put_queue(id, name, false, None).unwrap());
        let mut house = House {
            shard,
            consumers: Vec::new(),
            list: Arc::default(),
            joined_count: 0,
            credit: Arc::new(Credit::new(4)),
            limit: 4,
            is_paused: false,
        };
        for step in steps {
            house.apply(step);
            house.settle_down();
            house.check();
        }
        house.consumers.clear();
        engine.close().unwrap();
    }
}
