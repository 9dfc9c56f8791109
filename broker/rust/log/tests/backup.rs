//! Copies of a log that goes on: a copy has the state of its position, whatever is folded and deleted afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{BackupReader, FaultyDisk, Log, LogOptions, Outcome};
use proptest::prelude::*;
use support::{Model, fold, message, open, open_with, small_segments, sync};

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A step of a log.
#[derive(Clone, Copy, Debug)]
enum Step {
    Publish(u64, u16),
    Settle(u64),
    Purge(u64),
    Delete(u64),
    Sync,
    Fold,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..5_u64, 0..2_000_u16).prop_map(|(queue, bytes)| Step::Publish(queue, bytes)),
        3 => (1..5_u64).prop_map(Step::Settle),
        1 => (1..5_u64).prop_map(Step::Purge),
        1 => (1..5_u64).prop_map(Step::Delete),
        1 => Just(Step::Sync),
        2 => Just(Step::Fold),
    ];
    prop::collection::vec(step, 0..count)
}

fn play(log: &mut Log, model: &mut Model, deleted: &mut Vec<u64>, steps: &[Step]) {
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
        let mut log = open_with(directory.path(), small_segments()).unwrap().log;
        let (mut model, mut deleted) = (Model::default(), Vec::new());
        play(&mut log, &mut model, &mut deleted, &before);

        let at_the_point = model.clone();
        let backup = log.begin_backup().unwrap();
        let mut reader = log.begin_backup().unwrap().open().unwrap();
        prop_assert_eq!(backup.position(), log.end());
        play(&mut log, &mut model, &mut deleted, &during);
        backup.perform(copy.path()).unwrap();
        let stored = tempfile::tempdir().unwrap();
        store(&mut reader, stored.path());
        drop(reader);
        let copied = files(copy.path());
        play(&mut log, &mut model, &mut deleted, &after);

        prop_assert_eq!(files(copy.path()), copied, "the log goes on without touching the copy");
        let opened = open(copy.path());
        prop_assert_eq!(opened.recovery.torn_bytes, 0);
        at_the_point.check_state(&opened.state);
        at_the_point.check_messages(&opened.log);
        let opened = open(stored.path());
        prop_assert_eq!(opened.recovery.torn_bytes, 0);
        at_the_point.check_state(&opened.state);
        at_the_point.check_messages(&opened.log);
        drop(log);
        model.check_state(&open(directory.path()).state);
    }
}

/// Reads all files of a copy in parts and writes them where they can be opened.
fn store(reader: &mut BackupReader, target: &Path) {
    let found: Vec<_> = reader.files().iter().map(|file| (file.name.clone(), file.bytes, file.size)).collect();
    for (index, (name, bytes, size)) in found.into_iter().enumerate() {
        let mut content = Vec::new();
        while (content.len() as u64) < bytes {
            content.extend(reader.read(index, content.len() as u64, 10_000).unwrap());
        }
        content.resize(usize::try_from(size).unwrap(), 0);
        std::fs::write(target.join(name), content).unwrap();
    }
}

#[test]
fn files_that_are_read_stay_until_the_reader_is_dropped_and_one_that_is_cut_short_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    publish(&mut log, &mut model, 1, 100);
    let mut reader = log.begin_backup().unwrap().open().unwrap();
    let names: Vec<_> = reader.files().iter().map(|file| file.name.clone()).collect();
    model.purge(&mut log, 1);
    for _ in 0..3 {
        pass(&mut log, &mut model);
    }
    // The active segment's content and `synced` need no file of their name.
    for name in &names[..names.len() - 2] {
        assert!(directory.path().join(name).exists(), "{name}");
    }

    let path = directory.path().join(&names[0]);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10_000).unwrap();
    let failed = reader.read(0, 0, 1 << 20).unwrap_err();
    drop(reader);

    assert!(failed.to_string().starts_with(&format!("cannot read {}: ", path.display())), "{failed}");
    assert!(!path.exists());
}

#[test]
fn a_fold_that_was_under_way_leaves_the_copy_all_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), small_segments()).unwrap().log;
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
    // The second checkpoint releases the first segments: they are dead at both.
    fold(&mut log).unwrap().perform().unwrap();
    for seed in 0..50 {
        model.publish(&mut log, &[2], message(500, seed)).unwrap();
        log.write().unwrap();
    }
    let folding = log.begin_fold().unwrap();

    let backup = log.begin_backup().unwrap();
    let folded = folding.perform().unwrap();
    log.finish_fold(folded).perform().unwrap();
    let before = files(directory.path()).len();
    backup.perform(copy.path()).unwrap();

    assert!(files(directory.path()).len() < before, "what waited for the copy is gone after it");
    let opened = open(copy.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

fn segments() -> LogOptions {
    LogOptions { segment_bytes_min: 16 << 10, segment_bytes_max: 64 << 10, ..LogOptions::default() }
}

fn path_of_active(directory: &Path) -> PathBuf {
    let is_segment = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("msgs.");
    files(directory).into_keys().rfind(is_segment).unwrap()
}

/// Publishes as many messages of 5,000 bytes.
fn publish(log: &mut Log, model: &mut Model, queue: u64, count: u8) {
    for seed in 0..count {
        model.publish(log, &[queue], message(5_000, seed)).unwrap();
        log.write().unwrap();
    }
}

/// Stores a megabyte, drops it and folds, so that later records are far above the older checkpoint.
fn pass(log: &mut Log, model: &mut Model) {
    for _ in 0..10 {
        publish(log, model, 1, 25);
        model.purge(log, 1);
    }
    publish(log, model, 2, 5);
    fold(log).expect("folds go on").perform().unwrap();
}

#[test]
fn folds_go_on_while_a_copy_is_made_and_only_its_files_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    pass(&mut log, &mut model);
    publish(&mut log, &mut model, 1, 100);
    let at_the_point = model.clone();

    let backup = log.begin_backup().unwrap();
    let mut held = files(directory.path());
    // The active segment is open already.
    held.remove(&path_of_active(directory.path()));
    model.purge(&mut log, 1);
    let mut most = 0;
    for _ in 0..5 {
        pass(&mut log, &mut model);
        most = most.max(log.stats().unfolded_segments);
    }

    assert!(most <= 2, "{most} indexes in memory");
    let stayed = files(directory.path());
    let checkpoints = |files: &BTreeMap<PathBuf, Vec<u8>>| {
        files.keys().filter(|path| path.to_string_lossy().contains("checkpoint.")).count()
    };
    assert!(held.keys().all(|path| stayed.contains_key(path)), "what the copy needs stays");
    assert!(stayed.len() < held.len() + 100, "what it does not need goes: {} files", stayed.len());
    backup.perform(copy.path()).unwrap();
    assert!(files(directory.path()).len() < stayed.len(), "what waited for the copy is gone after it");
    assert_eq!(checkpoints(&files(directory.path())), 2);
    let opened = open(copy.path());
    at_the_point.check_state(&opened.state);
    at_the_point.check_messages(&opened.log);
    drop(log);
    let opened = open(directory.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_fold_under_way_that_saves_twice_leaves_the_copy_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    pass(&mut log, &mut model);
    pass(&mut log, &mut model);
    for _ in 0..10 {
        publish(&mut log, &mut model, 1, 25);
        model.purge(&mut log, 1);
    }
    let folding = log.begin_fold().unwrap();
    let names = |directory: &Path| -> Vec<_> {
        let found = files(directory).into_keys().map(|path| path.file_name().unwrap().to_owned());
        found.filter(|name| name.to_string_lossy().starts_with("checkpoint.")).collect()
    };
    let before = names(directory.path());

    let backup = log.begin_backup().unwrap();
    let folded = folding.perform().unwrap();
    assert_eq!(names(directory.path()).len(), before.len() + 2, "saved twice, and none is gone");
    log.finish_fold(folded).perform().unwrap();
    backup.perform(copy.path()).unwrap();

    assert_eq!(names(copy.path()), before);
    assert_eq!(names(directory.path()).len(), 2);
    let opened = open(copy.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn two_copies_at_once_each_keep_what_they_need() {
    let directory = tempfile::tempdir().unwrap();
    let copies = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    publish(&mut log, &mut model, 1, 100);
    let mut begun = Vec::new();
    for copy in &copies {
        begun.push((log.begin_backup().unwrap(), model.clone(), copy.path()));
        model.purge(&mut log, 1);
        pass(&mut log, &mut model);
    }

    for (backup, at_the_point, copy) in begun {
        backup.perform(copy).unwrap();
        let opened = open(copy);
        at_the_point.check_state(&opened.state);
        at_the_point.check_messages(&opened.log);
    }
    let left = files(directory.path()).len();
    assert!(left < 60, "nothing waits any more: {left} files");
}

#[test]
fn a_copy_shares_no_file_with_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    publish(&mut log, &mut model, 1, 100);
    fold(&mut log).unwrap().perform().unwrap();

    log.begin_backup().unwrap().perform(copy.path()).unwrap();

    for path in files(copy.path()).into_keys() {
        assert_eq!(path.metadata().unwrap().nlink(), 1, "{}", path.display());
        std::fs::write(path, "").unwrap();
    }
    model.check_messages(&log);
}

#[test]
fn a_copy_on_the_logs_own_disk_leaves_the_room_that_drains_it() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir_in(directory.path()).unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..segments() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let mut model = Model::default();
    publish(&mut log, &mut model, 1, 100);
    let backup = log.begin_backup().unwrap();
    disk.free_bytes.store(log.room().needed + 100, Ordering::SeqCst);

    let refused = backup.perform(copy.path()).unwrap_err();

    assert!(refused.is_full() && refused.to_string().contains(&*copy.path().to_string_lossy()), "{refused}");
    disk.free_bytes.store(0, Ordering::SeqCst);
    publish(&mut log, &mut model, 1, 100);
    model.check_messages(&log);
}

#[test]
fn a_copy_of_a_log_that_was_deleted_meanwhile_fails() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let mut log = open_with(directory.path(), segments()).unwrap().log;
    let mut model = Model::default();
    pass(&mut log, &mut model);
    let backup = log.begin_backup().unwrap();
    for path in files(directory.path()).into_keys().filter(|path| path.to_string_lossy().contains("checkpoint.")) {
        std::fs::remove_file(path).unwrap();
    }

    let refused = backup.perform(copy.path()).unwrap_err().to_string();

    assert!(refused.starts_with("cannot open ") && refused.contains("checkpoint."), "{refused}");
}

/// As when a replica lacks records, and a copy of its leader's log takes the place of its own while that is backed up.
#[test]
fn what_a_log_no_longer_needed_is_not_removed_from_the_log_that_took_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, mut model) = (open_with(directory.path(), segments()).unwrap().log, Model::default());
    publish(&mut log, &mut model, 1, 100);
    let reader = log.begin_backup().unwrap().open().unwrap();
    model.purge(&mut log, 1);
    (0..3).for_each(|_| pass(&mut log, &mut model));
    drop(log);
    let held: Vec<PathBuf> = reader.files().iter().map(|file| directory.path().join(&file.name)).collect();
    let is_dead = |path: &&PathBuf| path.exists() && path.to_str().unwrap().ends_with("msgs.0000000002");
    let path = held.iter().find(is_dead).unwrap();
    std::fs::write(directory.path().join("copy"), b"of another log").unwrap();
    std::fs::rename(directory.path().join("copy"), path).unwrap();

    drop(reader);

    assert_eq!(std::fs::read(path).unwrap(), b"of another log");
    assert!(held.iter().filter(|path| !path.exists()).count() > 1, "others are removed");
}
