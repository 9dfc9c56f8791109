//! A shard of a replicated log, whose replica is the test: it says what is committed, and when the term is over.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_engine::{
    Attributes, DeadLetters, Engine, EngineError, EngineOptions, Filled, Led, LengthLimit, Level, Overflow, Payload, Places,
    Position, Progress, Publication, QueueId, QueueLevels, QueueSettings, ReadFrom, ReadSettings, Replication,
    Sequence, SequenceRange, Settle, Shard, StreamSettings, Subscription, SubscriptionOptions,
};
use penstock_log::{Begun, Log, LogOptions};
use tempfile::TempDir;

const QUEUE: QueueId = QueueId(1);
const STREAM: QueueId = QueueId(2);
const DEAD: QueueId = QueueId(9);

/// Counts how often it hears that the log has grown.
#[derive(Debug, Default)]
struct Replica(AtomicUsize);

impl Replication for Replica {
    fn appended(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct House {
    directory: TempDir,
    engine: Engine,
    replica: Arc<Replica>,
    epoch: u64,
}

impl House {
    fn new() -> House {
        let options = EngineOptions {
            segment_bytes_min: 4 << 10,
            segment_bytes_max: 64 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 16,
        };
        let directory = tempfile::tempdir().unwrap();
        House { directory, engine: Engine::new(options).unwrap(), replica: Arc::default(), epoch: 0 }
    }

    fn open(&self) -> Log {
        self.open_at(self.directory.path())
    }

    /// The log of a further shard.
    fn open_further(&self, number: u16) -> Log {
        let directory = self.further(number);
        std::fs::create_dir_all(&directory).unwrap();
        self.open_at(&directory)
    }

    fn further(&self, number: u16) -> PathBuf {
        self.directory.path().join("logs").join(number.to_string())
    }

    fn open_at(&self, directory: &Path) -> Log {
        let options = LogOptions {
            segment_bytes_min: 4 << 10,
            segment_bytes_max: 64 << 10,
            is_bounded: true,
            ..LogOptions::default()
        };
        Log::open(directory, options).unwrap().log
    }

    /// The log and the state that a replica passes to its queues when its epoch has begun.
    fn begun(&self, mut log: Log) -> Led {
        log.follow_epoch(self.epoch, 0, Begun::default()).unwrap();
        log.write().unwrap();
        let state = log.begin_state().unwrap().perform().unwrap();
        assert_eq!(state.position, log.end());
        let stored_at_ms = log.newest_time().unwrap();
        Led { log, state, stored_at_ms, replication: Arc::clone(&self.replica) as Arc<dyn Replication> }
    }

    /// Begins a term over two logs, everything of it committed, with a queue in each.
    fn lead_two(&mut self, first: Log, second: Log) -> [Arc<Shard>; 2] {
        self.epoch += 1 << 32;
        let Ok(shard) = self.engine.lead("/", self.directory.path(), self.begun(first)) else { panic!("it ended") };
        let further = self.engine.lead_further(&shard, 1, &self.further(1), self.begun(second)).unwrap();
        shard.count_shards(2).unwrap();
        shard.place_queues([(STREAM, 1)]).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        shard.put_queue(STREAM, "more", false, None).unwrap();
        shard.complete();
        [&shard, &further].into_iter().for_each(|each| {
            commit(each);
            each.set_delivers(true);
        });
        [shard, further]
    }

    /// Begins a term: the first record of its epoch is not committed yet.
    fn lead(&mut self, log: Log) -> Arc<Shard> {
        self.lead_declared(log, |_| ())
    }

    /// The same, with more declared than one queue.
    fn lead_declared(&mut self, log: Log, declare: impl FnOnce(&Shard)) -> Arc<Shard> {
        self.epoch += 1 << 32;
        let led = self.begun(log);
        let Ok(shard) = self.engine.lead("/", self.directory.path(), led) else { panic!("the engine has ended") };
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        declare(&shard);
        shard.complete();
        shard
    }

    /// The same, with everything committed.
    fn lead_on(&mut self, log: Log) -> Arc<Shard> {
        let shard = self.lead(log);
        commit(&shard);
        shard.set_delivers(true);
        shard
    }
}

fn commit(shard: &Shard) {
    let end = shard.with_log(|log| {
        let end = log.write().unwrap();
        log.set_bound(end).unwrap();
        end
    });
    shard.committed(end.unwrap());
}

fn end(shard: &Shard) -> Log {
    shard.end_term();
    loop {
        if let Some(log) = shard.take_log() {
            return log;
        }
        // A fold is under way.
        std::thread::yield_now();
    }
}

fn try_publish(shard: &Arc<Shard>, queue: &str, body: &str) -> Result<Places, EngineError> {
    let publication = Publication {
        payload: Payload::new(b"", queue.as_bytes(), b"", body.as_bytes()).unwrap(),
        exchange: b"",
        key: queue.as_bytes(),
        headers: None,
        persistent: true,
        mandatory: true,
    };
    shard.publish(&[publication], Some(Level::Disk), 1, &mut Vec::new()).map(|published| published.places(shard))
}

fn publish(shard: &Arc<Shard>, body: &str) -> Places {
    try_publish(shard, "jobs", body).unwrap()
}

fn consumer(shard: &Arc<Shard>) -> Subscription {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    shard.subscribe(QUEUE, options).unwrap()
}

fn bodies(filled: &[Filled]) -> Vec<(String, bool)> {
    let picked = filled.iter().flat_map(|Filled { segment, picked }| picked.iter().map(move |one| (segment, one)));
    picked
        .map(|(segment, one)| {
            let body = segment.message(one.offset).unwrap().body.to_vec();
            (String::from_utf8(body).unwrap(), one.taken.redelivered)
        })
        .collect()
}

fn take(subscription: &Subscription) -> Vec<(String, bool)> {
    let mut filled = Vec::new();
    subscription.fill(100, &mut filled).unwrap();
    bodies(&filled)
}

fn fresh(bodies: &[&str]) -> Vec<(String, bool)> {
    bodies.iter().map(|body| ((*body).to_owned(), false)).collect()
}

fn again(bodies: &[&str]) -> Vec<(String, bool)> {
    bodies.iter().map(|body| ((*body).to_owned(), true)).collect()
}

fn is_rung(subscription: &Subscription) -> bool {
    let heard = std::pin::pin!(subscription.signal().heard());
    heard.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

fn is_not_leading<T>(result: Result<T, EngineError>) -> bool {
    matches!(result, Err(EngineError::NotLeading(_)))
}

#[test]
fn messages_are_confirmed_and_delivered_once_they_are_committed() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&[]));
    assert!(!is_rung(&consumer));

    let places = [publish(&shard, "one"), publish(&shard, "two")];

    assert!(house.replica.0.load(Ordering::SeqCst) >= 2, "the replica hears of what was appended");
    assert!(!places.iter().any(Places::are_synced) && !is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&[]));
    commit(&shard);
    assert!(places.iter().all(Places::are_synced) && is_rung(&consumer));
    publish(&shard, "three");
    assert_eq!(take(&consumer), fresh(&["one", "two"]));
    assert_eq!(take(&consumer), fresh(&[]));
    assert!(!is_rung(&consumer));
    commit(&shard);
    assert!(is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&["three"]));
    assert_eq!(shard.queue_counts(&[QUEUE]).unwrap()[0].unacked_count, 3);
}

#[test]
fn a_pull_gets_committed_messages_only_and_keeps_their_order() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    let pull = shard.subscribe(QUEUE, options).unwrap();
    let get = || {
        let mut filled = Vec::new();
        pull.take_now(10, &mut filled).unwrap();
        bodies(&filled)
    };
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    publish(&shard, "three");

    assert_eq!(get(), fresh(&["one"]));
    assert_eq!(get(), fresh(&[]));
    commit(&shard);
    assert_eq!(get(), fresh(&["two", "three"]));
}

#[test]
fn nothing_is_delivered_before_the_term_has_begun_or_while_it_is_paused() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    let log = end(&shard);

    let shard = house.lead(log);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&[]), "neither the committed one nor the other");
    publish(&shard, "three");
    commit(&shard);
    assert!(!is_rung(&consumer));
    shard.set_delivers(true);

    assert!(is_rung(&consumer));
    let found = take(&consumer);
    assert_eq!(found, [again(&["one", "two"]), fresh(&["three"])].concat());
    shard.set_delivers(false);
    publish(&shard, "four");
    commit(&shard);
    assert!(!is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&[]));
    shard.set_delivers(true);
    assert!(is_rung(&consumer));
    assert_eq!(take(&consumer), fresh(&["four"]));
}

#[test]
fn the_end_of_a_term_cancels_consumers_and_refuses_everything() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let confirmed = publish(&shard, "one");
    commit(&shard);
    let consumer = consumer(&shard);
    assert_eq!(take(&consumer), fresh(&["one"]));
    let unknown = publish(&shard, "two");

    assert!(!shard.is_deposed());
    shard.end_term();

    assert!(consumer.signal().cancelled().unwrap().contains("another broker leads") && shard.is_deposed());
    assert!(confirmed.are_synced() && !unknown.are_synced());
    let end = shard.with_log(|log| log.end()).unwrap();
    assert!(shard.sync_to(end).is_err(), "its outcome is unknown");
    assert!(is_not_leading(try_publish(&shard, "jobs", "three")));
    assert!(is_not_leading(shard.put_queue(QueueId(9), "nine", false, None)));
    let one = SequenceRange::new(Sequence(1), Sequence(1)).unwrap();
    assert!(is_not_leading(consumer.settle(&[one], Settle::Ack)));
    assert_eq!(shard.with_log(|log| log.end()).unwrap(), end, "nothing is appended");
    // Another leader commits other records at these positions.
    shard.committed(Position(end.0 + 1000));
    assert!(!unknown.are_synced());
    assert!(shard.take_log().is_some() && shard.take_log().is_none() && shard.with_log(|_| ()).is_none());
    drop(consumer);
    assert!(shard.is_closed() && house.engine.shard("/").is_none());
}

#[test]
fn unsettled_messages_are_flagged_in_the_next_term_and_cut_ones_are_gone() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let consumer_before = consumer(&shard);
    ["one", "two", "three"].iter().for_each(|body| drop(publish(&shard, body)));
    commit(&shard);
    assert_eq!(take(&consumer_before).len(), 3);
    consumer_before.settle(&[SequenceRange::of(Sequence(2))], Settle::Ack).unwrap();
    commit(&shard);
    publish(&shard, "cut");
    let mut log = end(&shard);
    let bound = log.bound();
    log.truncate_to(bound).unwrap();

    let shard = house.lead_on(log);
    let consumer_after = consumer(&shard);

    assert_eq!(take(&consumer_after), again(&["one", "three"]));
    publish(&shard, "four");
    commit(&shard);
    assert_eq!(take(&consumer_after), fresh(&["four"]));
    drop((consumer_before, consumer_after));
    let log = end(&shard);
    drop(log);
    let log = house.open();
    let shard = house.lead_on(log);
    assert_eq!(take(&consumer(&shard)), again(&["one", "three", "four"]), "after a start");
}

#[test]
fn readers_of_streams_wait_for_the_commit() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let stream = StreamSettings::default();
    let settings = QueueSettings {
        id: STREAM,
        name: "events",
        auto_delete: false,
        levels: QueueLevels::default(),
        stream: Some(stream),
    };
    shard.put_queues([settings]).unwrap();
    let settings = ReadSettings { from: ReadFrom::First, end: None, group: None, single_active: false };
    let mut reader = shard.read(STREAM, settings).unwrap();
    let mut read = || {
        let mut filled = Vec::new();
        let progress = reader.fill(100, &mut filled).unwrap();
        (progress, bodies(&filled))
    };
    try_publish(&shard, "events", "one").unwrap();
    assert_eq!(read(), (Progress::Waiting, fresh(&[])));

    commit(&shard);
    try_publish(&shard, "events", "two").unwrap();

    assert_eq!(read(), (Progress::Found, fresh(&["one"])));
    assert_eq!(read(), (Progress::Waiting, fresh(&[])));
    commit(&shard);
    assert_eq!(read(), (Progress::Found, fresh(&["two"])));
}

#[test]
fn a_queue_that_drops_its_oldest_messages_drops_committed_ones() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(1, Overflow::DropHead)))]).unwrap();
    let length = || {
        let counts = shard.queue_counts(&[QUEUE]).unwrap()[0];
        (counts.ready_count, counts.ready_bytes)
    };
    publish(&shard, "one");
    publish(&shard, "three");
    assert_eq!(length(), (2, 8));

    commit(&shard);

    let limit = Instant::now() + Duration::from_secs(60);
    while length() != (1, 5) && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(length(), (1, 5));
}

#[test]
fn an_engine_that_closes_leaves_the_log_to_its_replica() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    publish(&shard, "one");

    house.engine.close().unwrap();

    assert!(matches!(try_publish(&shard, "jobs", "two"), Err(EngineError::Closed(_))));
    commit(&shard);
    let mut log = end(&shard);
    log.append_mark(b"x", b"key", b"value").unwrap();
}

fn drain(shard: &Arc<Shard>, queue: QueueId) -> Vec<(String, bool)> {
    let options = SubscriptionOptions { prefetch: 100, auto_ack: false, exclusive: false, pull: false };
    take(&shard.home_of(queue).subscribe(queue, options).unwrap())
}

#[test]
fn a_message_is_confirmed_where_the_log_of_its_queue_is_committed() {
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    let (here, there) = (try_publish(&shard, "jobs", "here").unwrap(), try_publish(&shard, "more", "there").unwrap());

    commit(&shard);

    assert!(here.are_synced() && !there.are_synced());
    assert_eq!((drain(&shard, QUEUE), drain(&shard, STREAM)), (fresh(&["here"]), vec![]));
    commit(&further);
    assert!(there.are_synced());
    assert_eq!(drain(&shard, STREAM), fresh(&["there"]));
    assert_eq!(shard.shard_count().unwrap(), 2);
}

#[test]
fn the_term_of_all_shards_ends_with_that_of_one_and_another_one_may_begin() {
    let mut house = House::new();
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    drop(try_publish(&shard, "jobs", "here").unwrap());
    drop(try_publish(&shard, "more", "there").unwrap());
    [&shard, &further].into_iter().for_each(|each| commit(each));

    let second = end(&further);

    assert!(shard.is_deposed() && house.engine.shard("/").is_none());
    assert!(is_not_leading(try_publish(&shard, "jobs", "late")) && is_not_leading(try_publish(&shard, "more", "late")));
    assert!(is_not_leading(shard.stream_states(&[STREAM])), "it would say an offset of 0");
    let first = end(&shard);
    let [again_first, _further] = house.lead_two(first, second);
    assert_eq!((drain(&again_first, QUEUE), drain(&again_first, STREAM)), (again(&["here"]), again(&["there"])));
}

#[test]
fn a_shard_that_is_missing_is_not_counted_and_one_is_not_opened_after_the_end() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);

    assert!(matches!(shard.count_shards(2), Err(EngineError::NoShard(1, _))));
    shard.end_term();

    let led = house.begun(house.open_further(1));
    let refused = house.engine.lead_further(&shard, 1, &house.further(1), led).err().unwrap();
    assert!(matches!(refused.error, EngineError::NotLeading(_)), "{:?}", refused.error);
}

#[test]
fn deadlines_that_come_before_their_commit_count_once_it_is_there() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let at_ms = Some(now_ms + 50);
    let attributes = [
        Attributes { due_at_ms: at_ms, ..Attributes::default() },
        Attributes { expires_at_ms: at_ms, ..Attributes::default() },
    ];
    let publications = attributes.each_ref().map(|attributes| Publication {
        payload: Payload::new(b"", b"jobs", b"", b"x").unwrap().with_attributes(attributes),
        exchange: b"",
        key: b"jobs",
        headers: None,
        persistent: true,
        mandatory: true,
    });
    shard.publish(&publications, Some(Level::Disk), now_ms, &mut Vec::new()).unwrap();
    // Delayed messages count as ready ones, too.
    let counts = || {
        let counts = shard.queue_counts(&[QUEUE]).unwrap();
        (counts[0].ready_count, counts[0].delayed_count)
    };
    // The round that finds both of them above the bound.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(counts(), (2, 1));

    commit(&shard);

    let give_up_at = Instant::now() + Duration::from_secs(10);
    while counts() != (1, 0) {
        assert!(Instant::now() < give_up_at, "ready and delayed: {:?}", counts());
        std::thread::sleep(Duration::from_millis(5));
    }

/// Has the second message of "jobs" refused, which is a letter for "dead" then.
fn refuse_the_second(shard: &Shard) {
    shard.put_queue(DEAD, "dead", false, None).unwrap();
    shard.route_dead_letters([(QUEUE, letters_to("dead"))]).unwrap();
    shard.limit_lengths([(QUEUE, Some(LengthLimit::of_messages(1, Overflow::RejectPublishDlx)))]).unwrap();
}

fn letters_to(queue: &str) -> Option<DeadLetters> {
    Some(DeadLetters { exchange: String::new(), routing_key: Some(queue.into()), at_least_once: false })
}

fn ready(shard: &Shard, queue: QueueId) -> u64 {
    shard.queue_counts(&[queue]).unwrap()[0].ready_count
}

/// Whether it happens within a time that is far longer than it needs.
fn happens(mut is_so: impl FnMut() -> bool) -> bool {
    let limit = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    is_so()
}

/// It was given back to the queue that had refused it, because its record could not be read yet.
#[test]
fn a_refused_message_is_a_dead_letter_once_it_is_committed() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    refuse_the_second(&shard);
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    // It is tried before the commit.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ready(&shard, DEAD), 0);

    commit(&shard);

    assert!(happens(|| ready(&shard, DEAD) == 1), "it does not move");
    commit(&shard);
    assert_eq!((drain(&shard, QUEUE), drain(&shard, DEAD)), (fresh(&["one"]), fresh(&["two"])));
}

/// All letters of earlier terms are tried when a term begins, before its first record is committed.
#[test]
fn a_refused_message_of_an_earlier_term_is_a_dead_letter_once_the_term_has_begun() {
    let mut house = House::new();
    let log = house.open();
    let shard = house.lead_on(log);
    refuse_the_second(&shard);
    publish(&shard, "one");
    commit(&shard);
    publish(&shard, "two");
    let log = end(&shard);
    drop(shard);
    let shard = house.lead_declared(log, refuse_the_second);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(ready(&shard, DEAD), 0);

    commit(&shard);
    shard.set_delivers(true);

    assert!(happens(|| ready(&shard, DEAD) == 1), "it does not move");
    commit(&shard);
    assert_eq!((drain(&shard, QUEUE), drain(&shard, DEAD)), (again(&["one"]), fresh(&["two"])));
}

/// Rejects the only message of "jobs", whose letter goes to another queue.
fn reject_one(shard: &Arc<Shard>, sequence: u64) {
    let consumer = consumer(shard);
    assert_eq!(take(&consumer).len(), 1);
    consumer.sent(&[(Sequence(sequence), 3)]).unwrap();
    consumer.settle(&[SequenceRange::of(Sequence(sequence))], Settle::Reject).unwrap();
}

/// A virtual host with two shards, of which the second one commits nothing, and has got a letter of the first one.
fn letter_without_commit(house: &mut House) -> [Arc<Shard>; 2] {
    let (first, second) = (house.open(), house.open_further(1));
    let [shard, further] = house.lead_two(first, second);
    shard.route_dead_letters([(QUEUE, letters_to("more"))]).unwrap();
    publish(&shard, "one");
    commit(&shard);
    reject_one(&shard, 1);
    assert!(happens(|| ready(&shard, STREAM) == 1), "it does not move");
    [shard, further]
}

/// The thread that moves letters waited for the commit, and closing the engine for the thread.
#[test]
fn a_shard_that_commits_nothing_holds_up_neither_letters_of_other_virtual_hosts_nor_the_end() {
    let mut house = House::new();
    let [_shard, further] = letter_without_commit(&mut house);
    let directory = tempfile::tempdir().unwrap();
    let other = house.engine.open_shard("other", directory.path(), false).unwrap();
    other.put_queue(QUEUE, "jobs", false, None).unwrap();
    other.put_queue(DEAD, "dead", false, None).unwrap();
    other.route_dead_letters([(QUEUE, letters_to("dead"))]).unwrap();
    publish(&other, "two");

    reject_one(&other, 1);

    let moves = happens(|| ready(&other, DEAD) == 1);
    let (told, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| told.send(house.engine.close().is_ok()));
        let ends = ended.recv_timeout(Duration::from_secs(20));
        // Without it the test would wait as well.
        commit(&further);
        assert!(moves && ends == Ok(true), "moves: {moves}, ends: {ends:?}");
    });
}

#[test]
fn a_letter_whose_copy_is_committed_late_is_settled_then_and_copied_once() {
    let mut house = House::new();
    let [shard, further] = letter_without_commit(&mut house);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(ready(&shard, QUEUE), 1, "its copy may be lost");

    commit(&further);

    assert!(happens(|| ready(&shard, QUEUE) == 0), "it is not settled");
    [&shard, &further].into_iter().for_each(|each| commit(each));
    assert_eq!(drain(&shard, STREAM), fresh(&["one"]));
}
