//! Stages through a shard's interface: staged rows are invisible, a decision publishes whole attempts once, and a copy
//! that ends at any write is resumed without a lost or duplicate row.
#![allow(clippy::unwrap_used)]

#[path = "house/crashing.rs"]
mod crashing;
mod house;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crashing::DyingDisk;
use house::{House, Say, open, open_on, read_all, reader};
use penstock_engine::{
    EngineError, Payload, QueueId, QueueLevels, QueueSettings, ReadFrom, StageStanding, StageTag, StagedAttempt,
    StagedBatch, StagedOutcome, StreamSettings,
};
use penstock_log::Disk;

const STAGE: QueueId = QueueId(2);

fn with_stage(house: House) -> House {
    let stream = Some(StreamSettings::default());
    let settings =
        QueueSettings { id: STAGE, name: "amq.stage.x", auto_delete: false, levels: QueueLevels::default(), stream };
    house.shard.put_queues([settings]).unwrap();
    house
}

fn stage(house: &House, batch: u64, attempt: u64, bodies: &[&str]) -> StagedAttempt {
    let tag = StageTag { batch, attempt }.to_text();
    let rows = bodies.iter().map(|body| Payload::new(tag.as_bytes(), b"", b"", body.as_bytes()).unwrap());
    house.shard.stage(STAGE, &rows.collect::<Vec<_>>(), 1).unwrap();
    StagedAttempt { attempt, count: bodies.len() as u64 }
}

fn publish(house: &House, batch: u64, attempts: &[StagedAttempt]) -> Result<StagedOutcome, EngineError> {
    house.shard.publish_staged(STAGE, &StagedBatch { batch, attempts, exchange: "", routing_key: "s" })
}

fn stored(house: &House) -> Vec<String> {
    read_all(&mut reader(house, ReadFrom::First)).into_iter().map(|say: Say| say.body).collect()
}

fn staged_count(house: &House) -> u64 {
    house.shard.queue_counts(&[STAGE]).unwrap()[0].ready_count
}

#[test]
fn a_batch_is_the_rows_of_the_attempts_chosen_and_the_others_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let first = stage(&house, 1, 11, &["a", "b"]);
    stage(&house, 1, 12, &["a"]);
    let second = stage(&house, 1, 13, &["c"]);
    stage(&house, 1, 12, &["x"]);
    assert_eq!(stored(&house), Vec::<String>::new());

    let outcome = publish(&house, 1, &[first, second]).unwrap();

    assert_eq!(outcome, StagedOutcome { was_decided: false, stored: 3, unroutable: 0 });
    assert_eq!(stored(&house), ["a", "b", "c"]);
    assert_eq!(staged_count(&house), 0);
}

#[test]
fn a_batch_that_was_decided_is_never_published_again_also_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    {
        let house = with_stage(open(directory.path()));
        let first = stage(&house, 5, 1, &["a", "b"]);
        publish(&house, 5, &[first]).unwrap();
        house.close();
    }
    let house = with_stage(open(directory.path()));
    assert_eq!(house.shard.stage_states(&[STAGE]).unwrap(), [StageStanding { last_batch: Some(5), copying: false }]);

    let again = [stage(&house, 5, 2, &["b"]), stage(&house, 5, 3, &["a"])];
    for _ in 0..2 {
        // The second time is after a lost answer.
        let outcome = publish(&house, 5, &again).unwrap();
        assert_eq!(outcome, StagedOutcome { was_decided: true, ..StagedOutcome::default() });
    }

    assert_eq!(stored(&house), ["a", "b"]);
    assert_eq!(staged_count(&house), 0, "rows of a repetition are dropped");
}

#[test]
fn a_decided_batch_that_comes_again_with_other_rows_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let first = stage(&house, 5, 1, &["a", "b"]);
    publish(&house, 5, &[first]).unwrap();
    publish(&house, 7, &[stage(&house, 7, 2, &["c"])]).unwrap();
    let refused = |batch: u64, attempt: u64, bodies: &[&str]| {
        let attempts = [stage(&house, batch, attempt, bodies)];
        let attempts = if bodies.is_empty() { &[][..] } else { &attempts };
        let EngineError::StagedDiffers { stored, staged, .. } = publish(&house, batch, attempts).unwrap_err() else {
            panic!("other rows were believed");
        };
        (stored, staged)
    };

    assert_eq!(refused(5, 10, &["a", "x"]), (2, 2));
    assert_eq!(refused(5, 11, &["a"]), (2, 1));
    assert_eq!(refused(5, 12, &["a", "b", "b"]), (2, 3));
    assert_eq!(refused(5, 13, &[]), (2, 0));
    assert_eq!(refused(6, 14, &["c"]), (0, 1), "it had no rows, and a later batch has");

    assert!(publish(&house, 6, &[]).unwrap().was_decided);
    assert_eq!(house.shard.discard_staged(STAGE, 5, &[]).unwrap(), 6, "what was refused can be discarded");
    assert_eq!(stored(&house), ["a", "b", "c"]);
}

#[test]
fn a_batch_that_is_too_old_to_be_compared_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    for batch in 0..130 {
        publish(&house, batch, &[stage(&house, batch, batch + 1, &["a"])]).unwrap();
    }

    let again = |batch: u64| publish(&house, batch, &[stage(&house, batch, batch + 1000, &["a"])]);

    assert!(matches!(again(1), Err(EngineError::StagedForgotten { batch: 1 })));
    assert!(again(2).unwrap().was_decided);
}

#[test]
fn rows_of_later_batches_stay_though_they_were_staged_earlier() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let one = stage(&house, 1, 1, &["1a"]);
    let two = stage(&house, 2, 2, &["2a", "2b"]);
    stage(&house, 1, 1, &["1b"]);

    publish(&house, 1, &[StagedAttempt { count: 2, ..one }]).unwrap();
    assert_eq!((stored(&house), staged_count(&house)), (vec!["1a".to_owned(), "1b".to_owned()], 2));
    publish(&house, 2, &[two]).unwrap();

    assert_eq!(stored(&house), ["1a", "1b", "2a", "2b"]);
}

#[test]
fn a_batch_whose_rows_are_not_all_there_is_refused_whole() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let first = stage(&house, 1, 1, &["a"]);

    for wrong in [StagedAttempt { count: 2, ..first }, StagedAttempt { count: 0, ..first }] {
        let refused = publish(&house, 1, &[wrong]);
        assert!(matches!(refused, Err(EngineError::StagedRows { batch: 1, attempt: 1 })), "{refused:?}");
    }
    let nobody = publish(&house, 1, &[first, StagedAttempt { attempt: 9, count: 1 }]);
    assert!(matches!(nobody, Err(EngineError::StagedRows { attempt: 9, .. })));

    assert_eq!(stored(&house), Vec::<String>::new());
    publish(&house, 1, &[first]).unwrap();
    assert_eq!(stored(&house), ["a"]);
}

#[test]
fn what_is_discarded_is_gone_and_what_was_decided_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let kept = stage(&house, 1, 1, &["a"]);
    stage(&house, 1, 2, &["b", "c"]);
    stage(&house, 2, 3, &["d"]);

    assert_eq!(house.shard.discard_staged(STAGE, 1, &[2]).unwrap(), 2);
    publish(&house, 1, &[kept]).unwrap();
    assert_eq!(house.shard.discard_staged(STAGE, 1, &[]).unwrap(), 0);
    assert_eq!(house.shard.discard_staged(STAGE, 2, &[]).unwrap(), 1);

    assert_eq!((stored(&house), staged_count(&house)), (vec!["a".to_owned()], 0));
}

/// The batch was decided, and its copy failed until the exchange was there.
#[test]
fn a_batch_for_an_exchange_that_is_gone_is_not_decided() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let attempts = [stage(&house, 1, 1, &["a"])];
    let batch = StagedBatch { batch: 1, attempts: &attempts, exchange: "late", routing_key: "k" };
    assert!(matches!(house.shard.publish_staged(STAGE, &batch), Err(EngineError::NoExchange(..))));
    assert_eq!(house.shard.stage_states(&[STAGE]).unwrap(), [StageStanding::default()]);

    house.shard.put_exchange("late", penstock_engine::ExchangeKind::Fanout, None).unwrap();
    house.shard.add_route("late", "", None, penstock_engine::Destination::Queue("s")).unwrap();
    let outcome = house.shard.publish_staged(STAGE, &batch).unwrap();

    assert_eq!(outcome, StagedOutcome { was_decided: false, stored: 1, unroutable: 0 });
    assert_eq!(stored(&house), ["a"]);
}

#[test]
fn a_copy_that_is_held_back_is_left_to_the_next_call() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let first = stage(&house, 1, 1, &["a"]);
    house.shard.shut_empty_queue(house::STREAM).unwrap();
    assert!(matches!(publish(&house, 1, &[first]), Err(EngineError::QueueShut)));
    assert!(house.shard.stage_states(&[STAGE]).unwrap()[0].copying);

    house.shard.reopen_queue(house::STREAM).unwrap();
    let outcome = publish(&house, 1, &[first]).unwrap();

    assert_eq!(outcome, StagedOutcome { was_decided: true, stored: 1, unroutable: 0 });
    assert_eq!(stored(&house), ["a"]);
}

#[test]
fn a_stage_that_is_deleted_takes_its_decision_and_its_name_along() {
    let directory = tempfile::tempdir().unwrap();
    {
        let house = with_stage(open(directory.path()));
        let first = stage(&house, 1, 1, &["a"]);
        publish(&house, 1, &[first]).unwrap();
        assert_eq!(house.shard.producers().unwrap(), []);
        assert!(matches!(house.shard.open_producer("amq.stage/2", "anna"), Err(EngineError::ProducerReserved(_))));
        house.shard.delete_queue(STAGE).unwrap();
        house.close();
    }
    let house = open(directory.path());

    assert_eq!(house.shard.stage_states(&[STAGE]).unwrap(), [StageStanding::default()]);
}

/// Bodies of 100 KiB, so that every few of them are in their own segment and are copied separately.
fn large(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("{number:07}").repeat(100 << 10 >> 3)).collect()
}

#[test]
fn a_copy_that_dies_at_any_write_is_carried_on_at_the_start_and_every_row_is_there_once() {
    let wanted = large(0..12);
    let wanted_texts: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let mut died_copying = 0;
    for writes in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk::default());
        let house = with_stage(open_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>));
        let other = stage(&house, 1, 8, &wanted_texts[..3]);
        let mut chosen = stage(&house, 1, 9, &wanted_texts[..5]);
        stage(&house, 1, 8, &wanted_texts[3..5]);
        chosen.count += stage(&house, 1, 9, &wanted_texts[5..]).count;
        disk.writes_left.store(writes, Ordering::SeqCst);
        let published = publish(&house, 1, &[chosen]);
        let was_enough = published.is_ok();
        // Closing a stopped shard fails as it should.
        let _ = house.engine.close();
        drop(house);

        let house = with_stage(open(directory.path()));
        let standing = house.shard.stage_states(&[STAGE]).unwrap()[0];
        died_copying += u32::from(standing.copying);
        // 3 rows of the other attempt, 5 chosen ones, 2 others and 7 chosen ones: a row is in the stage or copied.
        let left = 17 - staged_count(&house);
        if standing.last_batch.is_some() {
            let copied = left.saturating_sub(3).min(5) + left.saturating_sub(10).min(7);
            assert_eq!(stored(&house).len() as u64, copied, "died at write {writes} with {left} rows gone");
        }
        house.shard.carry_on_staged();
        if standing.last_batch.is_none() {
            // Nothing was decided: another attempt may be.
            assert_eq!(stored(&house), Vec::<String>::new());
            let again = StagedAttempt { attempt: 10, ..stage(&house, 1, 10, &wanted_texts) };
            publish(&house, 1, &[again]).unwrap();
        } else {
            assert!(publish(&house, 1, &[chosen]).unwrap().was_decided);
            assert!(publish(&house, 1, &[other]).is_err());
        }

        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        stored(&house).into_iter().for_each(|body| *counts.entry(body).or_default() += 1);
        let right = counts.len() == wanted.len() && counts.values().all(|count| *count == 1);
        assert!(right, "died at write {writes}: counts {:?}", counts.values().collect::<Vec<_>>());
        if was_enough {
            break;
        }
    }
    assert!(died_copying > 4, "died {died_copying} times in mid-copy");
}

/// Publishers count bodies and properties, and keys may have 64 KiB: one hold of the lock stored all of them.
#[test]
fn rows_with_long_keys_are_staged_in_several_holds_of_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let house = with_stage(open(directory.path()));
    let (tag, key) = (StageTag { batch: 1, attempt: 1 }.to_text(), vec![7; u16::MAX as usize]);
    let row = Payload::new(tag.as_bytes(), b"", b"", b"row").unwrap();
    let before = house.shard.holds();

    house.shard.stage(STAGE, &[row.with_key(&key).unwrap(); 100], 1).unwrap();

    let holds = house.shard.holds() - before;
    assert!(holds >= 4, "{holds} holds for 6 MiB of keys");
    assert_eq!(staged_count(&house), 100);
    house.close();
}

#[test]
fn a_small_batch_that_dies_at_any_write_is_decided_with_all_of_its_rows_or_not_at_all() {
    let mut outcomes = BTreeMap::new();
    for writes in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(DyingDisk::default());
        let house = with_stage(open_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>));
        let chosen = stage(&house, 1, 9, &["a", "b"]);
        stage(&house, 1, 8, &["a"]);
        stage(&house, 2, 7, &["c"]);
        disk.writes_left.store(writes, Ordering::SeqCst);
        let was_enough = publish(&house, 1, &[chosen]).is_ok();
        let _ = house.engine.close();
        drop(house);

        let house = with_stage(open(directory.path()));
        let StageStanding { last_batch, copying } = house.shard.stage_states(&[STAGE]).unwrap()[0];
        let found = (last_batch, copying, stored(&house).len(), staged_count(&house));

        assert!([(None, false, 0, 4), (Some(1), false, 2, 1)].contains(&found), "died at write {writes}: {found:?}");
        *outcomes.entry(found).or_insert(0) += 1;
        if was_enough {
            assert_eq!(last_batch, Some(1));
            break;
        }
    }
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
}
