//! Copies of a log that goes on: what they hold is what stood at their position, whatever folds and deletes afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_log::{Log, Outcome};
use proptest::prelude::*;
use support::{Model, fold, message, open, small_segments, sync};

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// One thing that happens to a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    Publish(u32, u16),
    Settle(u32),
    Purge(u32),
    Delete(u32),
    Sync,
    Fold,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5_u32, 0..2_000_u16).prop_map(|(queue, bytes)| Step::Publish(queue, bytes)),
        3 => (1..5_u32).prop_map(Step::Settle),
        1 => (1..5_u32).prop_map(Step::Purge),
        1 => (1..5_u32).prop_map(Step::Delete),
        1 => Just(Step::Sync),
        2 => Just(Step::Fold),
    ];
    prop::collection::vec(step, 0..count)
}

fn play(log: &mut Log, model: &mut Model, deleted: &mut Vec<u32>, steps: &[Step]) {
    for &step in steps {
        match step {
            Step::Publish(queue, bytes) if !deleted.contains(&queue) => {
                model.publish(log, &[queue], message(usize::from(bytes), bytes as u8)).unwrap();
            }
            Step::Settle(queue) if !deleted.contains(&queue) => model.settle(log, queue, Outcome::Ack, &[0, 1, 2]),
            Step::Purge(queue) if !deleted.contains(&queue) => model.purge(log, queue),
            Step::Delete(queue) if !deleted.contains(&queue) => {
                model.delete(log, queue);
                deleted.push(queue);
            }
            Step::Sync => sync(log),
            Step::Fold => drop(fold(log).map(|retired| retired.perform().unwrap())),
            _ => {}
        }
        log.write().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_copy_opens_as_the_log_stood_when_it_was_begun(before in steps(200), during in steps(80), after in steps(80)) {
        let directory = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let mut log = Log::open(directory.path(), small_segments()).unwrap().log;
        let (mut model, mut deleted) = (Model::default(), Vec::new());
        play(&mut log, &mut model, &mut deleted, &before);

        let at_the_point = model.clone();
        let backup = log.begin_backup().unwrap();
        prop_assert_eq!(backup.position(), log.end());
        play(&mut log, &mut model, &mut deleted, &during);
        backup.perform(copy.path()).unwrap();
        let copied = files(copy.path());
        play(&mut log, &mut model, &mut deleted, &after);

        prop_assert_eq!(files(copy.path()), copied, "the log goes on without touching the copy");
        let opened = open(copy.path());
        prop_assert_eq!(opened.recovery.torn_bytes, 0);
        at_the_point.check_state(&opened.state);
        at_the_point.check_messages(&opened.log);
        drop(log);
        model.check_state(&open(directory.path()).state);
    }
}

#[test]
fn a_fold_that_was_under_way_leaves_the_copy_all_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = Log::open(directory.path(), small_segments()).unwrap().log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(500, seed)).unwrap();
        log.write().unwrap();
    }
    model.purge(&mut log, 1);
    for seed in 0..50 {
        model.publish(&mut log, &[2], message(500, seed)).unwrap();
        log.write().unwrap();
    }
    // The second checkpoint lets the first segments go: they are dead at both.
    fold(&mut log).unwrap().perform().unwrap();
    for seed in 0..50 {
        model.publish(&mut log, &[2], message(500, seed)).unwrap();
        log.write().unwrap();
    }
    let folding = log.begin_fold().unwrap();

    let backup = log.begin_backup().unwrap();
    let folded = folding.perform().unwrap();
    log.finish_fold(folded).perform().unwrap();
    assert!(log.begin_fold().is_none(), "no fold begins while a copy is under way");
    let before = files(directory.path()).len();
    backup.perform(copy.path()).unwrap();

    assert!(files(directory.path()).len() < before, "what waited for the copy is gone after it");
    let opened = open(copy.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}
