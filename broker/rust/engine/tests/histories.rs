//! Exchanges that keep their last messages: what is copied to a queue or an exchange that is bound, also over several shards,
//! after restarts and after a crash at any write.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
#[path = "house/headers.rs"]
mod headers;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crashing::CrashingDisk;
use headers::table_of;
use house::{House, STREAM, engine, said};
use penstock_engine::{
    Attributes, DeadLetters, Destination, ExchangeKind, ExchangeSettings, Fate, LengthLimit, Level, Overflow, Payload,
    Publication, QueueId, RouteSettings, Sequence, SequenceRange, Settle, Shard, SubscriptionOptions, Transaction,
};
use penstock_log::{Disk, RealDisk};
use proptest::prelude::*;

/// Queues with their shards.
const QUEUES: [(QueueId, &str, u16); 3] = [(QueueId(2), "a", 0), (QueueId(3), "b", 1), (QueueId(4), "c", 2)];
/// The number of the next queue that looks at what is kept.
static PROBES: AtomicU64 = AtomicU64::new(100);
const KEPT: u64 = 3;

fn fanout() -> ExchangeSettings<'static> {
    ExchangeSettings::new(ExchangeKind::Fanout, None)
}

/// A vhost with three shards, an exchange "h" that keeps messages, and one behind it.
fn open(directory: &Path, disk: Arc<dyn Disk>, bound: &[&str]) -> House {
    let engine = house::engine_on(disk);
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    shard.grow(3).unwrap();
    let ids: Vec<QueueId> = QUEUES.iter().map(|(id, ..)| *id).chain([STREAM]).collect();
    shard.retain_queues(&ids).unwrap();
    declare(&shard);
    bound.iter().for_each(|name| bind(&shard, name));
    shard.complete();
    House { engine, shard }
}

fn declare(shard: &Shard) {
    shard.put_queue(STREAM, "s", false, None).unwrap();
    for (id, name, number) in QUEUES {
        shard.place_queues([(id, number)]).unwrap();
        shard.put_queue(id, name, false, None).unwrap();
    }
    shard.put_keeping_exchange("h", &fanout(), KEPT).unwrap();
    shard.put_exchange("behind", ExchangeKind::Fanout, None).unwrap();
    for name in ["b", "c", "s"] {
        shard.add_route("behind", "", None, Destination::Queue(name)).unwrap();
    }
}

fn bind(shard: &Shard, name: &str) {
    shard.add_route("h", "", None, destination(name)).unwrap();
}

fn unbind(shard: &Shard, name: &str) {
    shard.remove_route("h", "", None, destination(name)).unwrap();
}

fn destination(name: &str) -> Destination<'_> {
    if name == "behind" { Destination::Exchange(name) } else { Destination::Queue(name) }
}

fn opened(directory: &Path) -> House {
    open(directory, Arc::new(RealDisk), &[])
}

fn publish(house: &House, bodies: &[&str]) -> Vec<Fate> {
    send(house, "h", bodies, None, false)
}

fn send(house: &House, exchange: &str, bodies: &[&str], headers: Option<&[u8]>, mandatory: bool) -> Vec<Fate> {
    let exchange = exchange.as_bytes();
    let mut fates = Vec::new();
    for body in bodies {
        let payload = Payload::new(exchange, b"", b"", body.as_bytes()).unwrap();
        let one = Publication { payload, exchange, key: b"", headers, persistent: false, mandatory };
        let mut fate = Vec::new();
        // It fails once the disk is dead.
        if house.shard.publish(&[one], None, 1, &mut fate).is_ok() {
            fates.extend(fate);
        }
    }
    fates
}

/// The bodies of a queue's ready messages.
fn bodies(house: &House, id: QueueId) -> Vec<String> {
    let peeked = house.shard.home_of(id).peek(id, Sequence(0), 1_000).unwrap();
    peeked.filled.iter().flat_map(said).map(|said| said.body).collect()
}

/// The messages that an exchange has kept, as a new queue gets them.
fn kept(house: &House) -> Vec<String> {
    let probe = QueueId(PROBES.fetch_add(1, Ordering::Relaxed));
    house.shard.put_queue(probe, "probe", false, None).unwrap();
    bind(&house.shard, "probe");
    let found = bodies(house, probe);
    unbind(&house.shard, "probe");
    house.shard.delete_queue(probe).unwrap();
    found
}

#[test]
fn a_queue_gets_the_last_messages_once_when_it_is_bound_and_then_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    assert_eq!(publish(&house, &["1", "2", "3", "4"]), [Fate::Unroutable; 4]);

    for (id, name, _) in QUEUES {
        bind(&house.shard, name);
        assert_eq!(bodies(&house, id), ["2", "3", "4"], "{name}");
    }
    assert_eq!(publish(&house, &["5"]), [Fate::Stored(Level::Os)]);
    bind(&house.shard, "a");
    house.shard.add_route("h", "another key", None, Destination::Queue("a")).unwrap();

    assert_eq!(bodies(&house, QueueId(2)), ["2", "3", "4", "5"]);
    unbind(&house.shard, "b");
    bind(&house.shard, "b");
    assert_eq!(bodies(&house, QueueId(3)), ["2", "3", "4", "5", "3", "4", "5"], "it was bound anew");
}

#[test]
fn what_is_kept_and_who_has_it_survives_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["1", "2", "3", "4"]);
    bind(&house.shard, "b");
    house.close();

    let house = open(directory.path(), Arc::new(RealDisk), &["b"]);
    assert_eq!(bodies(&house, QueueId(3)), ["2", "3", "4"]);
    publish(&house, &["5"]);
    assert_eq!(kept(&house), ["3", "4", "5"]);
    house.close();

    let house = open(directory.path(), Arc::new(RealDisk), &["b"]);
    assert_eq!(bodies(&house, QueueId(3)), ["2", "3", "4", "5"]);
    assert_eq!(kept(&house), ["3", "4", "5"]);
}

#[test]
fn an_exchange_that_is_bound_passes_the_copies_on_and_each_queue_gets_them_once() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["1", "2"]);

    bind(&house.shard, "behind");
    let late = QueueId(50);
    house.shard.put_queue(late, "late", false, None).unwrap();
    house.shard.add_route("behind", "", None, Destination::Queue("late")).unwrap();

    for id in [QueueId(3), QueueId(4), STREAM] {
        assert_eq!(bodies(&house, id), ["1", "2"]);
    }
    assert_eq!(bodies(&house, late), Vec::<String>::new(), "an exchange of another type keeps nothing");
    assert_eq!(bodies(&house, QueueId(2)), Vec::<String>::new());
}

#[test]
fn messages_with_the_header_and_messages_of_other_exchanges_are_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let no_store = [b"\x19x-recent-history-no-store".as_slice(), b"t\x01"].concat();
    let may_store = [b"\x19x-recent-history-no-store".as_slice(), b"t\x00"].concat();
    bind(&house.shard, "a");

    send(&house, "h", &["1"], Some(&no_store), false);
    send(&house, "h", &["2"], Some(&may_store), false);
    send(&house, "h", &["3"], Some(&table_of(&[("x-recent-history-no-store", "true")])), false);
    send(&house, "behind", &["4"], None, false);

    assert_eq!(bodies(&house, QueueId(2)), ["1", "2", "3"]);
    assert_eq!(kept(&house), ["2", "3"]);
}

#[test]
fn a_mandatory_message_that_only_the_history_gets_returns_and_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());

    assert_eq!(send(&house, "h", &["1"], None, true), [Fate::Returned]);

    assert_eq!(kept(&house), ["1"]);
    assert_eq!(house.shard.route("h", "", None).unwrap(), Vec::<String>::new());
    assert_eq!(house.shard.totals().unwrap(), (0, 0), "what is kept is no message of a queue");
}

#[test]
fn an_alternate_exchange_gets_what_no_queue_gets_and_it_is_kept_too() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let settings = ExchangeSettings::new(ExchangeKind::Fanout, Some("behind"));
    house.shard.put_keeping_exchange("h", &settings, KEPT).unwrap();

    assert_eq!(publish(&house, &["1"]), [Fate::Stored(Level::Os)]);

    assert_eq!(bodies(&house, STREAM), ["1"]);
    assert_eq!(kept(&house), ["1"]);
}

#[test]
fn a_shorter_history_counts_at_once_and_a_deleted_exchange_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["1", "2", "3"]);
    house.shard.put_keeping_exchange("h", &fanout(), 1).unwrap();
    house.shard.expire_due(1).unwrap();
    assert_eq!(kept(&house), ["3"]);

    house.shard.delete_exchange("h").unwrap();
    house.shard.put_keeping_exchange("h", &fanout(), KEPT).unwrap();
    assert_eq!(kept(&house), Vec::<String>::new());
    publish(&house, &["4"]);
    house.close();

    // The definitions do not have the exchange any more.
    let without = engine();
    let shard = without.open_incomplete("/", directory.path(), false).unwrap();
    shard.complete();
    without.close().unwrap();
    assert_eq!(kept(&opened(directory.path())), Vec::<String>::new());
}

/// Beyond the length they were not dropped but made to wait in the history: it grew with each of them, and no queue got any.
#[test]
fn the_last_messages_are_kept_also_if_they_are_delayed() {
    const YEAR_3000: u64 = 32_503_680_000_000;
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let delayed = Attributes { due_at_ms: Some(YEAR_3000), ..Attributes::default() };
    for body in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let payload = Payload::new(b"h", b"", b"", body.as_bytes()).unwrap().with_attributes(&delayed);
        let one = Publication { payload, exchange: b"h", key: b"", headers: None, persistent: false, mandatory: false };
        house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    }
    publish(&house, &["9"]);

    bind(&house.shard, "a");

    let counts = house.shard.queue_counts(&[QueueId(2)]).unwrap()[0];
    assert_eq!((counts.ready_count, counts.delayed_count), (3, 2));
    assert_eq!(bodies(&house, QueueId(2)), ["9"]);
    house.shard.expire_due(YEAR_3000).unwrap();
    assert_eq!(bodies(&house, QueueId(2)), ["7", "8", "9"]);
}

/// They counted as messages that full queues dropped, and those with an expiration as expired ones.
#[test]
fn what_an_exchange_does_not_keep_any_more_counts_as_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["1", "2", "3", "4", "5"]);
    let expiring = Attributes { expires_at_ms: Some(2), ..Attributes::default() };
    let payload = Payload::new(b"h", b"", b"", b"6").unwrap().with_attributes(&expiring);
    let one = Publication { payload, exchange: b"h", key: b"", headers: None, persistent: false, mandatory: false };
    house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
    house.shard.expire_due(1_000).unwrap();

    assert_eq!(kept(&house), ["4", "5"]);
    let counted = |name: &str| house.engine.counters().all().find(|(found, _)| *found == name).unwrap().1;
    assert_eq!((counted("overflow_dropped_total"), counted("expired_total")), (0, 0));
}

#[test]
fn a_full_queue_gets_as_many_copies_as_it_may_have() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    publish(&house, &["1", "2", "3"]);
    let limit = |overflow| Some(LengthLimit::of_messages(2, overflow));
    house.shard.limit_lengths([(QueueId(2), limit(Overflow::RejectPublish))]).unwrap();
    house.shard.limit_lengths([(QueueId(3), limit(Overflow::DropHead))]).unwrap();

    bind(&house.shard, "a");
    bind(&house.shard, "b");

    assert_eq!(bodies(&house, QueueId(2)), ["1", "2"]);
    assert_eq!(bodies(&house, QueueId(3)), ["2", "3"]);
}

#[test]
fn dead_letters_and_transactions_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let shard = &house.shard;
    let letters = DeadLetters { exchange: "h".to_owned(), routing_key: None, at_least_once: false };
    shard.route_dead_letters([(QueueId(2), Some(letters))]).unwrap();
    send_to(&house, "a", "dead");
    let options = SubscriptionOptions { prefetch: 10, auto_ack: false, exclusive: false, pull: false };
    let consumer = shard.home_of(QueueId(2)).subscribe(QueueId(2), options).unwrap();
    consumer.fill(10, &mut Vec::new()).unwrap();
    consumer.settle(&[SequenceRange::ALL], Settle::Reject).unwrap();
    wait_until(|| kept(&house) == ["dead"]);

    let payload = Payload::new(b"h", b"", b"", b"in a transaction").unwrap();
    let one = Publication { payload, exchange: b"h", key: b"", headers: None, persistent: false, mandatory: false };
    let mut fates = Vec::new();
    shard.commit(Transaction { batch: &[one], settlements: &[], now_ms: 1 }, &mut fates).unwrap();

    assert_eq!(fates, [Fate::Unroutable]);
    assert_eq!(kept(&house), ["dead", "in a transaction"]);
}

fn send_to(house: &House, queue: &str, body: &str) {
    let payload = Payload::new(b"", queue.as_bytes(), b"", body.as_bytes()).unwrap();
    let key = queue.as_bytes();
    let one = Publication { payload, exchange: b"", key, headers: None, persistent: false, mandatory: false };
    house.shard.publish(&[one], None, 1, &mut Vec::new()).unwrap();
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed().as_secs() < 60, "it did not happen");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(u8),
    Bind(usize),
    Unbind(usize),
    Restart,
}

/// A model of an exchange and its queues: a list of its last messages, and those of each queue.
#[derive(Default)]
struct Model {
    kept: Vec<String>,
    bound: [bool; 4],
    queues: std::collections::BTreeMap<u64, Vec<String>>,
}

/// The three queues, and the exchange that leads to "b", "c" and "s".
const RECEIVERS: [&str; 4] = ["a", "b", "c", "behind"];

fn reached(receiver: usize) -> &'static [u64] {
    match receiver {
        0 => &[2],
        1 => &[3],
        2 => &[4],
        _ => &[3, 4, 1],
    }
}

impl Model {
    fn publish(&mut self, body: &str) {
        let queues: std::collections::BTreeSet<u64> =
            (0..4).filter(|receiver| self.bound[*receiver]).flat_map(reached).copied().collect();
        queues.into_iter().for_each(|queue| self.queues.entry(queue).or_default().push(body.to_owned()));
        self.kept.push(body.to_owned());
        let too_many = self.kept.len().saturating_sub(KEPT as usize);
        self.kept.drain(..too_many);
    }

    fn bind(&mut self, receiver: usize) {
        if !std::mem::replace(&mut self.bound[receiver], true) {
            for queue in reached(receiver) {
                self.queues.entry(*queue).or_default().extend(self.kept.iter().cloned());
            }
        }
    }

    fn names(&self) -> Vec<&'static str> {
        (0..4).filter(|receiver| self.bound[*receiver]).map(|receiver| RECEIVERS[receiver]).collect()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5_u8).prop_map(Step::Publish),
        3 => (0..4_usize).prop_map(Step::Bind),
        2 => (0..4_usize).prop_map(Step::Unbind),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn queues_have_what_lists_of_the_last_messages_say(steps in steps()) {
        let directory = tempfile::tempdir().unwrap();
        let mut house = opened(directory.path());
        let (mut model, mut number) = (Model::default(), 0);
        for step in steps {
            match step {
                Step::Publish(count) => for _ in 0..count {
                    number += 1;
                    let body = number.to_string();
                    publish(&house, &[&body]);
                    model.publish(&body);
                },
                Step::Bind(receiver) => {
                    bind(&house.shard, RECEIVERS[receiver]);
                    model.bind(receiver);
                }
                Step::Unbind(receiver) => {
                    unbind(&house.shard, RECEIVERS[receiver]);
                    model.bound[receiver] = false;
                }
                Step::Restart => {
                    house.close();
                    house = open(directory.path(), Arc::new(RealDisk), &model.names());
                }
            }
            for queue in 1..5 {
                let expected = model.queues.get(&queue).cloned().unwrap_or_default();
                prop_assert_eq!(bodies(&house, QueueId(queue)), expected);
            }
        }
    }

    /// The definitions have the bindings before the engine knows them. `kept_share` is what a failure of power leaves of each
    /// log; with all of it the process was killed.
    #[test]
    fn after_a_crash_at_any_write_no_queue_has_a_copy_twice_and_none_is_missing(
        before in 0..6_u32, after in 0..4_u32, dies_after in 0..60_i64, is_killed in any::<bool>(), kept_share in any::<[u8; 3]>(),
    ) {
        let (directory, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = open(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>, &[]);
        let number = |number: u32| number.to_string();
        (0..before).for_each(|body| drop(publish(&house, &[&number(body)])));
        disk.writes_left.store(dies_after, Ordering::SeqCst);
        for name in RECEIVERS {
            // Once the disk is dead.
            let route = RouteSettings { exchange: "h", key: "", matching: None, destination: destination(name) };
            let _ = house.shard.add_routes([route]);
        }
        // A message that was not confirmed may be missing somewhere.
        let is_confirmed = |body: &u32| matches!(publish(&house, &[&number(*body)])[..], [Fate::Stored(_)]);
        let unconfirmed: Vec<String> =
            (before..before + after).filter(|body| !is_confirmed(body)).map(number).collect();
        let shares = if is_killed { [255; 3] } else { kept_share };
        disk.image(directory.path(), image.path(), &shares);

        let house = open(image.path(), Arc::new(RealDisk), &RECEIVERS);
        let kept = kept(&house);
        for queue in 1..5 {
            let mut found = bodies(&house, QueueId(queue));
            let count = found.len();
            let names: std::collections::BTreeSet<String> = found.drain(..).collect();
            // These get each message by the exchange and by their own binding, whose copies are two.
            let most = if matches!(queue, 3 | 4) { 2 } else { 1 };
            prop_assert!(count <= most * names.len(), "queue {} has a copy twice", queue);
            if is_killed {
                prop_assert!(kept.iter().all(|body| names.contains(body) || unconfirmed.contains(body)), "queue {}: {:?} of {:?}", queue, names, kept);
            }
        }
    }
}
