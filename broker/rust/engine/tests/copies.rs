//! Messages that move from a queue to another one in another log: each is copied with its source, synced, then settled. After
//! a crash at any of the steps it is in the other queue once.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::CrashingDisk;
use house::{House, engine, open_on, open_queue, open_queue_on, publish};
use penstock_engine::{
    Attributes, Destination, EngineError, ExchangeKind, Fate, Level, Payload, Publication, QueueId, QueueLevels,
    QueueSettings, SequenceRange, Settle, StageTag, StagedAttempt, StagedBatch, StreamSettings, Subscription,
    SubscriptionOptions, Target,
};
use penstock_log::{Log, LogOptions, RealDisk};
use proptest::prelude::*;
use tokio::runtime::Builder;

/// The queue "s" of shard 0.
const SOURCE: QueueId = house::STREAM;
/// In shard 1, and with a number that needs more than 32 bits.
const DEAD: QueueId = QueueId((1 << 32) + 5);
/// In shard 2.
const OTHER: QueueId = QueueId(9);

fn with_shards(house: House) -> House {
    house.shard.grow(3).unwrap();
    house.shard.place_queues([(DEAD, 1), (OTHER, 2)]).unwrap();
    house.shard.put_queue(DEAD, "dead", false, None).unwrap();
    house.shard.put_queue(OTHER, "other", false, None).unwrap();
    house.shard.put_exchange("dlx", ExchangeKind::Fanout, None).unwrap();
    for name in ["dead", "other"] {
        house.shard.add_route("dlx", "", None, Destination::Queue(name)).unwrap();
    }
    house
}

fn opened(directory: &Path) -> House {
    with_shards(open_queue(directory))
}

fn pulling(house: &House, queue: QueueId) -> Subscription {
    let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
    house.shard.home_of(queue).subscribe(queue, options).unwrap()
}

/// The messages of a queue that are left, by their targets; they come back when the subscription ends.
fn taken(subscription: &Subscription, queue: QueueId) -> Result<Vec<(Target, String)>, EngineError> {
    let mut filled = Vec::new();
    subscription.take_now(10_000, &mut filled)?;
    let mut found = Vec::new();
    for part in &filled {
        for picked in &part.picked {
            let target = Target { queue, sequence: picked.taken.sequence };
            let view = part.segment.message_for(picked.offset, target).unwrap();
            found.push((target, String::from_utf8(view.body.to_vec()).unwrap()));
        }
    }
    Ok(found)
}

fn bodies(house: &House, queue: QueueId) -> Vec<String> {
    taken(&pulling(house, queue), queue).unwrap().into_iter().map(|(_, body)| body).collect()
}

/// The steps of a move; each includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Nothing,
    Copied,
    Synced,
    Settled,
    Done,
}

const STEPS: [Step; 5] = [Step::Nothing, Step::Copied, Step::Synced, Step::Settled, Step::Done];

/// Moves all messages of the source, up to a step.
fn move_all(house: &House, until: Step) -> Result<(), EngineError> {
    let subscription = pulling(house, SOURCE);
    let messages = taken(&subscription, SOURCE)?;
    let sources: Vec<Attributes> =
        messages.iter().map(|(target, _)| Attributes { source: Some(*target), ..Attributes::default() }).collect();
    let copies = messages.iter().zip(&sources).map(|((_, body), source)| {
        let payload = Payload::new(b"dlx", b"", b"", body.as_bytes()).unwrap();
        let copy =
            Publication { payload, exchange: b"dlx", key: b"", headers: None, persistent: true, mandatory: false };
        copy.with_attributes(source)
    });
    let copies: Vec<_> = copies.collect();
    if until < Step::Copied {
        return Ok(());
    }
    let mut fates = Vec::new();
    let published = house.shard.publish(&copies, Some(Level::Disk), 1, &mut fates)?;
    published.refused.map_or(Ok(()), Err)?;
    assert_eq!(fates, vec![Fate::Stored(Level::Disk); copies.len()]);
    if until < Step::Synced {
        return Ok(());
    }
    published.elsewhere.request_sync();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(published.elsewhere.wait())?;
    if until < Step::Settled {
        return Ok(());
    }
    subscription.settle(&[SequenceRange::ALL], Settle::Reject)?;
    if until == Step::Done { sync_all(house) } else { Ok(()) }
}

/// Syncs shard 0.
fn sync_all(house: &House) -> Result<(), EngineError> {
    let published = house.shard.publish(&[], None, 1, &mut Vec::new())?;
    house.shard.sync_to(published.end)
}

/// How many messages of a source a log knows the copies of. No broker uses it.
fn copied(directory: &Path, shard: u16, source: QueueId) -> u64 {
    let options = LogOptions { shard, ..LogOptions::default() };
    let opened = Log::open(&directory.join(format!("logs/{shard}")), options).unwrap();
    let Some(copied) = opened.state.sources.get(&source) else { return 0 };
    copied.below().0 - 1 + copied.ranges().map(|range| range.count()).sum::<u64>()
}

fn sent(count: u32) -> Vec<String> {
    (0..count).map(|number| format!("m{number}")).collect()
}

fn fill(house: &House, bodies: &[String]) {
    publish(house, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Messages were copied a second time where the broker was killed between the copy and the settlement.
#[test]
fn a_kill_after_any_step_of_a_move_leaves_each_message_in_the_other_queues_once() {
    let all = sent(50);
    for step in STEPS {
        let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disk = Arc::new(CrashingDisk::default());
        let house = with_shards(open_queue_on(directory.path(), Arc::clone(&disk) as _));
        fill(&house, &all);
        move_all(&house, step).unwrap();
        // A kill keeps the page cache.
        disk.image(directory.path(), after.path(), &[255]);
        house.close();

        for _ in 0..2 {
            let house = opened(after.path());
            move_all(&house, Step::Done).unwrap();
            for queue in [DEAD, OTHER] {
                assert_eq!(bodies(&house, queue), all, "killed after {step:?}");
            }
            assert_eq!(bodies(&house, SOURCE), [""; 0]);
            house.close();
        }
    }
}

#[test]
fn a_checkpoint_keeps_what_was_copied_also_when_the_copies_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    let all = sent(50);
    fill(&house, &all);
    move_all(&house, Step::Synced).unwrap();
    pulling_all_away(&house, DEAD);
    house.close();

    let house = opened(directory.path());
    move_all(&house, Step::Done).unwrap();

    assert_eq!(bodies(&house, DEAD), [""; 0], "they were consumed before, and are no new messages");
    assert_eq!(bodies(&house, OTHER), all);
    house.close();
}

fn pulling_all_away(house: &House, queue: QueueId) {
    let subscription = pulling(house, queue);
    taken(&subscription, queue).unwrap();
    subscription.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();
}

#[test]
fn a_source_that_is_deleted_is_forgotten_by_all_logs() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    fill(&house, &sent(3));
    move_all(&house, Step::Done).unwrap();
    house.close();
    assert_eq!([1, 2].map(|shard| copied(directory.path(), shard, SOURCE)), [3, 3]);

    let house = opened(directory.path());
    house.shard.delete_queue(SOURCE).unwrap();
    house.close();

    assert_eq!([1, 2].map(|shard| copied(directory.path(), shard, SOURCE)), [0, 0]);
}

/// The broker was killed before it told the other logs.
#[test]
fn a_source_that_the_definitions_do_not_name_is_forgotten_by_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let house = opened(directory.path());
    fill(&house, &sent(3));
    move_all(&house, Step::Done).unwrap();
    house.close();

    let engine = engine();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    shard.retain_queues(&[DEAD, OTHER]).unwrap();
    engine.close().unwrap();

    assert_eq!([1, 2].map(|shard| copied(directory.path(), shard, SOURCE)), [0, 0]);
    let house = opened(directory.path());
    assert_eq!(bodies(&house, DEAD), sent(3), "its copies stay");
    house.close();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Power fails: of what was not synced, each log keeps another part.
    #[test]
    fn no_message_is_lost_or_copied_twice_by_failures_of_power(
        lives in prop::collection::vec((0..5_usize, 0..30_i64, any::<[u8; 3]>(), 1..20_u32), 1..5),
    ) {
        let (mut directory, mut all) = (tempfile::tempdir().unwrap(), Vec::new());
        for (step, writes, kept, count) in lives {
            let disk = Arc::new(CrashingDisk::default());
            let house = with_shards(open_queue_on(directory.path(), Arc::clone(&disk) as _));
            let some: Vec<String> = (0..count).map(|number| format!("m{}", all.len() as u32 + number)).collect();
            fill(&house, &some);
            sync_all(&house).unwrap();
            all.extend(some);
            disk.writes_left.store(writes, Ordering::SeqCst);
            let _ = move_all(&house, STEPS[step]);
            let after = tempfile::tempdir().unwrap();
            disk.image(directory.path(), after.path(), &kept);
            let _ = house.engine.close();
            directory = after;
        }
        let house = opened(directory.path());
        move_all(&house, Step::Done).unwrap();
        for queue in [DEAD, OTHER] {
            let mut found = bodies(&house, queue);
            found.sort_by_key(|body| body[1..].parse::<u32>().unwrap());
            prop_assert_eq!(&found, &all);
        }
        house.close();
    }
}

#[test]
fn a_row_of_a_stage_that_goes_to_other_logs_has_its_source() {
    const STAGE: QueueId = QueueId(3);
    let (directory, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Arc::new(CrashingDisk::default());
    let with_stage = |house: House| {
        let house = with_shards(house);
        let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
        let stage = QueueSettings { id: STAGE, name: "amq.stage.x", auto_delete: false, levels, stream };
        house.shard.put_queues([stage]).unwrap();
        house
    };
    let house = with_stage(open_on(directory.path(), Arc::clone(&disk) as _));
    let tag = StageTag { batch: 1, attempt: 1 }.to_text();
    let rows = sent(20);
    let payloads = rows.iter().map(|row| Payload::new(tag.as_bytes(), b"", b"", row.as_bytes()).unwrap());
    house.shard.stage(STAGE, &payloads.collect::<Vec<_>>(), 1).unwrap();
    let attempts = [StagedAttempt { attempt: 1, count: 20 }];

    house
        .shard
        .publish_staged(STAGE, &StagedBatch { batch: 1, attempts: &attempts, exchange: "dlx", routing_key: "" })
        .unwrap();

    disk.image(directory.path(), after.path(), &[255]);
    house.close();
    assert_eq!([1, 2].map(|shard| copied(directory.path(), shard, STAGE)), [20, 20]);
    let house = with_stage(open_on(after.path(), Arc::new(RealDisk)));
    assert_eq!(bodies(&house, DEAD), rows);
    house.close();
}
