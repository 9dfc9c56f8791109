//! Queues and an exchange that recognize repetitions, against lists of the ids that they have seen: whatever is published,
//! resized, restarted and killed, both agree.
#![allow(clippy::unwrap_used)]

#[path = "house/headers.rs"]
mod headers;
mod house;
#[path = "house/killing.rs"]
mod killing;

use std::path::Path;

use headers::table_of;
use house::{House, engine};
use killing::copy_of;
use penstock_engine::{Deduplication, Destination, ExchangeKind, Fate, Level, Payload, Publication, QueueId};
use proptest::prelude::*;

/// The first two recognize repetitions, each by a header of its name.
const QUEUES: [(QueueId, &str); 3] = [(QueueId(1), "a"), (QueueId(2), "b"), (QueueId(3), "plain")];
const TTL_MS: [Option<u64>; 3] = [None, Some(20), None];
/// The windows of both queues, and that of the exchange.
const HEADERS: [&str; 3] = ["a", "b", "exchange"];

#[derive(Clone, Debug)]
enum Step {
    /// To the exchange or to the first queue: ids by header, a time to live, the time that has passed, the size of the body.
    Publish { to_exchange: bool, ids: [Option<u8>; 3], ttl_ms: Option<u64>, passed_ms: u64, size: usize },
    /// The size of a window.
    Resize(usize, usize),
    /// A queue stops looking for repetitions, and begins again.
    Stop(usize),
    /// With a clean stop, or by a kill.
    Restart(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || prop::option::weighted(0.8, 0..9_u8);
    let ttl = prop::option::weighted(0.3, 0..30_u64);
    let publish = (any::<bool>(), [id(), id(), id()], ttl, 0..9_u64, prop_oneof![9 => Just(0), 1 => Just(30_000)]);
    let step = prop_oneof![
        20 => publish.prop_map(|(to_exchange, ids, ttl_ms, passed_ms, size)| Step::Publish { to_exchange, ids, ttl_ms, passed_ms, size }),
        1 => (0..3_usize, 1..7_usize).prop_map(|(window, size)| Step::Resize(window, size)),
        1 => (0..2_usize).prop_map(Step::Stop),
        2 => any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

struct Pair {
    directories: Vec<tempfile::TempDir>,
    house: Option<House>,
    now_ms: u64,
    sizes: [usize; 3],
    /// The ids that each window has, with their expiries, oldest first.
    seen: [Vec<(u8, Option<u64>)>; 3],
    /// The messages of each queue.
    counts: [u64; 3],
}

fn settings(window: usize, size_max: usize) -> Deduplication {
    Deduplication { header: HEADERS[window].as_bytes().into(), size_max, ttl_ms: TTL_MS[window] }
}

fn open(directory: &Path, sizes: [usize; 3]) -> House {
    let engine = engine();
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    shard.put_exchange("all", ExchangeKind::Fanout, None).unwrap();
    shard.deduplicate_exchange("all", Some(&settings(2, sizes[2]))).unwrap();
    for (window, (id, name)) in QUEUES.into_iter().enumerate() {
        shard.put_queue(id, name, false, None).unwrap();
        shard.add_route("all", "", None, Destination::Queue(name)).unwrap();
        let watched = (window < 2).then(|| settings(window, sizes[window]));
        shard.deduplicate_queues([(id, watched)]).unwrap();
    }
    shard.complete();
    House { engine, shard }
}

impl Pair {
    fn new() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let sizes = [4, 3, 5];
        let house = Some(open(directory.path(), sizes));
        Pair { directories: vec![directory], house, now_ms: 1_000, sizes, seen: Default::default(), counts: [0; 3] }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Publish { to_exchange, ids, ttl_ms, passed_ms, size } => {
                self.now_ms += passed_ms;
                self.publish(to_exchange, ids, ttl_ms, size);
                self.expect(to_exchange, ids, ttl_ms);
            }
            Step::Resize(window, size) => {
                self.sizes[window] = size;
                self.forget_oldest(window);
                let shard = &self.house.as_ref().unwrap().shard;
                match QUEUES.get(window).filter(|_| window < 2) {
                    Some((id, _)) => shard.deduplicate_queues([(*id, Some(settings(window, size)))]).unwrap(),
                    None => shard.deduplicate_exchange("all", Some(&settings(window, size))).unwrap(),
                }
            }
            Step::Stop(window) => {
                self.seen[window].clear();
                let (shard, id) = (&self.house.as_ref().unwrap().shard, QUEUES[window].0);
                shard.deduplicate_queues([(id, None)]).unwrap();
                shard.deduplicate_queues([(id, Some(settings(window, self.sizes[window])))]).unwrap();
            }
            Step::Restart(is_clean) => self.restart(is_clean),
        }
    }

    fn publish(&self, to_exchange: bool, ids: [Option<u8>; 3], ttl_ms: Option<u64>, size: usize) {
        let texts = ids.map(|id| id.map(|id| id.to_string()));
        let ttl = ttl_ms.map(|ttl| ttl.to_string());
        let named = HEADERS.into_iter().zip(&texts).filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let all: Vec<_> = named.chain(ttl.as_deref().map(|ttl| ("x-cache-ttl", ttl))).collect();
        let (table, body) = (table_of(&all), vec![7; size]);
        let (exchange, key): (&[u8], &[u8]) = if to_exchange { (b"all", b"") } else { (b"", b"a") };
        let payload = Payload::new(exchange, key, b"", &body).unwrap();
        let one = Publication { payload, exchange, key, headers: Some(&table), persistent: false, mandatory: true };
        let mut fates = Vec::new();
        self.house.as_ref().unwrap().shard.publish(&[one], None, self.now_ms, &mut fates).unwrap();
        assert_eq!(fates, [Fate::Stored(Level::Os)], "a repetition is confirmed");
    }

    fn expect(&mut self, to_exchange: bool, ids: [Option<u8>; 3], ttl_ms: Option<u64>) {
        if to_exchange && self.has_seen(2, ids[2]) {
            return;
        }
        let queues = if to_exchange { 0..3 } else { 0..1 };
        for queue in queues {
            if queue == 2 || !self.has_seen(queue, ids[queue]) {
                self.counts[queue] += 1;
                if queue < 2 {
                    self.see(queue, ids[queue], ttl_ms);
                }
            }
        }
        if to_exchange {
            self.see(2, ids[2], ttl_ms);
        }
    }

    fn has_seen(&self, window: usize, id: Option<u8>) -> bool {
        let is_valid = |expires: Option<u64>| expires.is_none_or(|at_ms| at_ms > self.now_ms);
        self.seen[window].iter().any(|&(seen, expires)| Some(seen) == id && is_valid(expires))
    }

    fn see(&mut self, window: usize, id: Option<u8>, ttl_ms: Option<u64>) {
        let Some(id) = id else { return };
        let ttl_ms = ttl_ms.or(TTL_MS[window]);
        self.seen[window].retain(|(seen, _)| *seen != id);
        self.seen[window].push((id, ttl_ms.map(|ttl| self.now_ms + ttl)));
        self.forget_oldest(window);
    }

    fn forget_oldest(&mut self, window: usize) {
        let too_many = self.seen[window].len().saturating_sub(self.sizes[window]);
        self.seen[window].drain(..too_many);
    }

    fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.house.take().unwrap().close();
            self.house = Some(open(self.directories.last().unwrap().path(), self.sizes));
        } else {
            let copy = copy_of(self.directories.last().unwrap().path());
            self.house = Some(open(copy.path(), self.sizes));
            self.directories.push(copy);
        }
    }

    fn check(&self) {
        let found = self.house.as_ref().unwrap().shard.queue_counts(&QUEUES.map(|(id, _)| id)).unwrap();
        assert_eq!(found.iter().map(|counts| counts.ready_count).collect::<Vec<_>>(), self.counts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn windows_are_what_lists_of_ids_are_also_after_restarts_and_kills(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
    }
}
