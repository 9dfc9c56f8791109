//! Compaction beside corruption and copies: corrupt segments stay, and a copy holds either the old segments or the new
//! one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{FaultyDisk, Log, LogOptions, Outcome, Quarantined, Retired, Target, repair};
use penstock_queue::{QueueId, Sequence};
use support::{Model, compact, compact_all, fold, message, open, small_segments, sync};

const SLOW: u64 = 1;

/// One message in ten stays, the others are settled at once; nothing is compacted.
fn filled(directory: &Path, rounds: u32) -> (Log, Model) {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for round in 0..rounds {
        let seed = (round % 251) as u8;
        let queue = if round % 10 == 0 { SLOW } else { 2 };
        model.publish(&mut log, &[queue], message(100, seed)).unwrap();
        model.settle(&mut log, 2, Outcome::Ack, &[0]);
        log.write().unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
    }
    sync(&mut log);
    (log, model)
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    found.retain(|path| name(path).starts_with("msgs.") && !name(path).ends_with(".idx"));
    found.sort();
    found
}

fn rewritten(directory: &Path) -> Vec<PathBuf> {
    let is_rewritten = |path: &PathBuf| path.extension().unwrap().len() < 5;
    segments(directory).into_iter().filter(is_rewritten).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn a_corrupt_segment_is_not_rewritten_and_nothing_stands_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path(), 600);
    let all = segments(directory.path());
    let corrupt = all[all.len() / 2].clone();
    log.quarantine(name(&corrupt), 100);

    compact_all(&mut log);

    assert!(corrupt.exists() && !rewritten(directory.path()).is_empty());
    assert!(!all[all.len() / 2 - 1].exists() && !all[all.len() / 2 + 1].exists(), "its neighbours were rewritten");
    model.check_messages(&log);
    drop(log);
    let opened = open(directory.path());
    assert!(corrupt.exists(), "no range covers it");
    model.check_messages(&opened.log);
}

#[test]
fn nothing_is_rewritten_across_a_segment_without_a_header() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = filled(directory.path(), 600);
    log.close().unwrap();
    drop(log);
    let all = segments(directory.path());
    let corrupt = all[all.len() / 2].clone();
    let mut bytes = std::fs::read(&corrupt).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&corrupt, bytes).unwrap();

    for _ in 0..3 {
        let mut opened = open(directory.path());
        assert!(opened.quarantined.iter().any(|one| one.file == name(&corrupt)));
        sync(&mut opened.log);
        fold(&mut opened.log).map(Retired::perform).transpose().unwrap();
        compact_all(&mut opened.log);
        opened.log.close().unwrap();
        assert!(corrupt.exists());
    }
    assert!(!rewritten(directory.path()).is_empty());
}

#[test]
fn a_segment_found_corrupt_while_it_is_rewritten_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path(), 600);
    let all = segments(directory.path());
    let ticket = log.begin_compaction().unwrap();
    let compacted = ticket.perform(u64::MAX).unwrap();
    let source = &all[0];
    log.quarantine(name(source), 100);
    log.finish_compaction(compacted).perform().unwrap();

    assert!(!source.exists(), "it was replaced");
    assert!(source.with_extension(format!("{}.aside", source.extension().unwrap().to_str().unwrap())).exists());
    drop(log);
    model.check_messages(&open(directory.path()).log);
}

#[test]
fn a_copy_begun_beside_a_slice_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path(), 600);
    let mut copies = 0;
    while let Some(ticket) = log.begin_compaction() {
        let backup = log.begin_backup().unwrap();
        let compacted = ticket.perform(2_000).unwrap();
        let more = compacted.more;
        log.finish_compaction(compacted).perform().unwrap();
        assert!(log.begin_compaction().is_none(), "a copy is under way");
        let copy = tempfile::tempdir().unwrap();
        backup.perform(copy.path()).unwrap();
        let opened = open(copy.path());
        model.check_state(&opened.state);
        model.check_messages(&opened.log);
        copies += 1;
        if !more {
            break;
        }
    }
    assert!(copies > 3 && !rewritten(directory.path()).is_empty());
    let copy = tempfile::tempdir().unwrap();
    log.begin_backup().unwrap().perform(copy.path()).unwrap();
    drop(log);
    assert_eq!(
        rewritten(copy.path()).len(),
        rewritten(directory.path()).len(),
        "what was replaced is gone from the list"
    );
    model.check_messages(&open(copy.path()).log);
    model.check_messages(&open(directory.path()).log);
}

#[test]
fn a_full_disk_is_not_compacted_and_one_that_filled_up_gets_back_what_was_begun() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path(), 600));
    let disk = Arc::new(FaultyDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    let mut log = Log::open(directory.path(), options).unwrap().log;
    let needed = log.room().needed;
    fold(&mut log).map(Retired::perform).transpose().unwrap();

    disk.free_bytes.store(needed + 1000, Ordering::SeqCst);
    assert!(!compact(&mut log, 700).unwrap());
    assert!(rewritten(directory.path()).is_empty(), "there is no room for a whole one");
    disk.free_bytes.store(1 << 30, Ordering::SeqCst);
    assert!(compact(&mut log, 700).unwrap());
    assert_eq!(rewritten(directory.path()).len(), 1);
    disk.free_bytes.store(1, Ordering::SeqCst);
    compact_all(&mut log);
    assert!(rewritten(directory.path()).is_empty(), "what was begun gives its room back");
    disk.free_bytes.store(0, Ordering::SeqCst);
    compact_all(&mut log);
    assert!(!rewritten(directory.path()).is_empty());
}

#[test]
fn a_rewritten_segment_without_a_header_is_served_by_what_the_manifest_says_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path(), 600);
    compact_all(&mut log);
    log.close().unwrap();
    drop(log);
    let corrupt = rewritten(directory.path()).swap_remove(0);
    let mut bytes = std::fs::read(&corrupt).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&corrupt, &bytes).unwrap();

    for _ in 0..2 {
        let opened = open(directory.path());

        let files: Vec<&Quarantined> = opened.quarantined.iter().filter(|one| one.file == name(&corrupt)).collect();
        assert_eq!(files.len(), 1);
        model.check_messages(&opened.log);
        assert_eq!(std::fs::read(&corrupt).unwrap(), bytes);
    }
    repair(directory.path(), small_segments()).unwrap();
    let opened = open(directory.path());
    assert!(opened.quarantined.is_empty());
    model.check_messages(&opened.log);
}

#[test]
fn a_record_that_changed_in_a_rewritten_segment_is_not_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = filled(directory.path(), 600);
    compact_all(&mut log);
    let corrupt = rewritten(directory.path()).swap_remove(0);
    let located = log.locate(QueueId(SLOW), Sequence(1), 2).unwrap().unwrap();
    assert_eq!(located.segment.path(), corrupt);
    let target = |sequence| Target { queue: QueueId(SLOW), sequence: Sequence(sequence) };
    assert!(located.segment.message_for(located.offsets[0], target(1)).is_ok());
    assert!(located.segment.message_for(located.offsets[0], target(2)).is_err(), "that is another's number");
    let mut bytes = std::fs::read(&corrupt).unwrap();
    let at = located.offsets[1] as usize - 1;
    bytes[at] ^= 1;
    std::fs::write(&corrupt, &bytes).unwrap();
    drop((log, located));

    let log = open(directory.path()).log;

    let located = log.locate(QueueId(SLOW), Sequence(1), 2).unwrap().unwrap();
    assert!(located.segment.message_for(located.offsets[0], target(1)).is_err());
    assert!(located.segment.message_for(located.offsets[1], target(2)).is_ok());
}

#[test]
fn a_source_found_corrupt_before_it_was_set_aside_is_kept_by_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, model) = filled(directory.path(), 600);
    let source = segments(directory.path()).swap_remove(0);
    let compacted = log.begin_compaction().unwrap().perform(u64::MAX).unwrap();
    log.quarantine(name(&source), 100);
    // The process ends here: the manifest names the replacement of the source, whose file still exists.
    drop((compacted, log));

    let opened = open(directory.path());

    assert!(!source.exists());
    assert!(directory.path().join(format!("{}.aside", name(&source))).exists());
    model.check_messages(&opened.log);
}
