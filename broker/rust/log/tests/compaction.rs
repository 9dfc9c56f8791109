//! Compaction: what it keeps and frees, and the result of a start after an interruption at any step.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{FaultyDisk, Log, LogError, LogOptions, Outcome, Retired, inspect};
use penstock_queue::{QueueId, Sequence};
use support::{ForgetfulDisk, Model, compact, compact_all, fold, message, open, open_with, small_segments, sync};

const SLOW: u64 = 1;

/// Every tenth message is for a slow queue that settles one in three; the others are settled at once.
fn run(log: &mut Log, model: &mut Model, rounds: u32, mut between: impl FnMut(&mut Log, &Model)) {
    for round in 0..rounds {
        let seed = (round % 251) as u8;
        if round % 10 == 0 {
            model.publish(log, &[SLOW, 9], message(60, seed)).unwrap();
            model.settle(log, 9, Outcome::Ack, &[0]);
        }
        if round % 30 == 0 {
            model.settle(log, SLOW, Outcome::Ack, &[round as usize]);
        }
        let fast = u64::from(2 + round % 5);
        model.publish(log, &[fast], message(100, seed)).unwrap();
        model.settle(log, fast, Outcome::Ack, &[0]);
        log.write().unwrap();
        if let Some(retired) = fold(log) {
            retired.perform().unwrap();
            between(log, model);
        }
    }
    sync(log);
    fold(log).map(Retired::perform).transpose().unwrap();
}

fn with_disk(directory: &Path) -> (Arc<ForgetfulDisk>, Log) {
    let disk = Arc::new(ForgetfulDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    (disk, open_with(directory, options).unwrap().log)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    // A file without its final name may be left: the next attempt and the next start remove it.
    files.retain(|path| path.extension().is_none_or(|extension| extension != "tmp"));
    files.sort();
    files
}

fn rewritten(directory: &Path) -> Vec<PathBuf> {
    let is_rewritten = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("msgs.") && !name.ends_with(".idx") && name.matches('.').count() == 2
    };
    files(directory).into_iter().filter(is_rewritten).collect()
}

fn segment_bytes(directory: &Path) -> u64 {
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("msgs.") && !name.ends_with(".idx")
    };
    files(directory).iter().filter(|path| is_segment(path)).map(|path| path.metadata().unwrap().len()).sum()
}

/// The size of the model's messages as records: 24 and 10 bytes, 12 for each target, and the payload.
fn live_bytes(model: &Model) -> u64 {
    let messages = model.queues.values().flat_map(|queue| queue.messages.values());
    let bytes = |stored: &support::Stored| {
        46 + stored.exchange.len() + stored.routing_key.len() + stored.properties.len() + stored.body.len()
    };
    messages.map(|stored| bytes(stored) as u64).sum()
}

#[test]
fn one_slow_queue_among_fast_ones_does_not_pin_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    let (mut worst, mut peak) = (0, 0);

    run(&mut log, &mut model, 5000, |log, model| {
        compact_all(log);
        let (disk, live) = (segment_bytes(directory.path()), live_bytes(model));
        worst = worst.max(disk.saturating_sub(2 * live));
        peak = peak.max(disk);
    });

    assert!(live_bytes(&model) > 6 * 4096, "the slow queue holds more than the slack");
    assert!(worst < 3 * 4096, "{worst} bytes more than twice what lives");
    assert!(log.stats().bytes_rewritten > 0 && peak > 0);
    assert!(log.stats().segments < 40, "{} segments are left", log.stats().segments);
    assert!(
        log.stats().bytes_rewritten < log.end().0,
        "{} bytes were rewritten of {}",
        log.stats().bytes_rewritten,
        log.end().0
    );
    model.check_messages(&log);
    drop(log);
    let opened = open(directory.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn without_compaction_the_slow_queue_pins_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();

    run(&mut log, &mut model, 5000, |_, _| {});

    assert!(segment_bytes(directory.path()) > 4 * live_bytes(&model), "or the test above proves nothing");
}

#[test]
fn the_power_may_fail_at_any_step_of_it() {
    for keeps_renames in [false, true] {
        fail_power_at_every_step(keeps_renames);
    }
}

fn fail_power_at_every_step(keeps_renames: bool) {
    for steps in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let (disk, mut log) = with_disk(directory.path());
        disk.keeps_renames.store(keeps_renames, Ordering::SeqCst);
        let mut model = Model::default();
        // One segment is rewritten already, so that the manifest has a successor.
        run(&mut log, &mut model, 100, |_, _| {});
        compact_all(&mut log);
        run(&mut log, &mut model, 150, |_, _| {});
        let before = rewritten(directory.path());
        assert!(!before.is_empty());

        disk.fail_after(steps);
        let mut more = Ok(true);
        while let Ok(true) = more {
            more = compact(&mut log, 300);
        }
        let after = rewritten(directory.path());
        drop(log);
        disk.fail_power(directory.path());

        let mut opened = open(directory.path());
        model.check_state(&opened.state);
        model.check_messages(&opened.log);
        let reports = inspect(directory.path(), true).unwrap();
        assert!(reports.iter().filter(|report| report.file.matches('.').count() == 2).all(|r| r.error.is_none()));
        if more.is_ok() || steps % 8 == 7 {
            // Replaced files that came back must be gone before the next rewrite.
            run(&mut opened.log, &mut model, 100, |log, _| {
                compact_all(log);
            });
            drop(opened.log);
            let opened = open(directory.path());
            model.check_state(&opened.state);
            model.check_messages(&opened.log);
        }
        if more.is_ok() {
            assert_ne!(before, after, "something was rewritten");
            assert!(steps > 10, "{steps}");
            return;
        }
    }
}

#[test]
fn what_a_fold_reached_and_could_not_publish_is_not_counted_on() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    let sealed_count = log.sealed_count();
    while log.sealed_count() < sealed_count + 3 {
        model.publish(&mut log, &[7], message(100, 1)).unwrap();
    }
    log.write().unwrap();

    disk.create_fails.store(true, Ordering::SeqCst);
    assert!(log.begin_fold().unwrap().perform().is_err());
    disk.create_fails.store(false, Ordering::SeqCst);

    assert!(!compact(&mut log, 300).unwrap());
    assert_eq!(log.stats().bytes_rewritten, 0);
    fold(&mut log).unwrap().perform().unwrap();
    compact_all(&mut log);
    assert!(log.stats().bytes_rewritten > 0);
    model.check_messages(&log);
}

#[test]
fn a_disk_without_room_leaves_everything_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let options = LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    let before = files(directory.path());

    for switch in [&disk.create_fails, &disk.write_fails, &disk.sync_fails, &disk.rename_fails] {
        switch.store(true, Ordering::SeqCst);
        let refused = std::iter::repeat_with(|| compact(&mut log, 300)).find_map(Result::err);
        assert!(matches!(refused, Some(LogError::Io { .. })));
        switch.store(false, Ordering::SeqCst);
        assert_eq!(files(directory.path()), before);
        model.check_messages(&log);
    }

    compact_all(&mut log);
    assert_ne!(files(directory.path()), before);
    model.check_messages(&log);
    model.publish(&mut log, &[SLOW], message(10, 1)).unwrap();
}

#[test]
fn when_nobody_knows_which_manifest_a_start_will_find_the_log_stops() {
    let mut stops = 0;
    for steps in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let (disk, mut log) = with_disk(directory.path());
        let mut model = Model::default();
        run(&mut log, &mut model, 60, |_, _| {});

        disk.fail_after(steps);
        let mut more = Ok(true);
        while let Ok(true) = more {
            more = compact(&mut log, 300);
        }
        disk.fail_after(usize::MAX);

        let names_manifest =
            |path: &Path| path.file_name().is_some_and(|name| name == "manifest.tmp" || name == "manifest.copy.tmp");
        match more {
            Err(LogError::Io { action: "rename", path, .. }) if names_manifest(&path) => {
                stops += 1;
                assert!(matches!(log.write(), Err(LogError::Stopped { .. })));
            }
            Err(_) => assert!(stops > 0 || log.write().is_ok(), "before the rename nothing is lost"),
            Ok(_) => break,
        }
    }
    assert!(stops > 0);
}

#[test]
fn who_reads_an_old_segment_goes_on_reading_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    let (&number, stored) = model.queues[&SLOW].messages.iter().next().unwrap();
    let old = log.locate(QueueId(SLOW), Sequence(number), 1).unwrap().unwrap();

    compact_all(&mut log);

    let new = log.locate(QueueId(SLOW), Sequence(number), 1).unwrap().unwrap();
    assert_ne!(old.segment.path(), new.segment.path());
    assert_ne!(old.segment.id(), new.segment.id());
    assert!(!old.segment.path().exists());
    for located in [old, new] {
        assert_eq!(located.segment.message(located.offsets[0]).unwrap().body, stored.body);
    }
}

#[test]
fn only_live_targets_stay_and_queues_lie_together() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..40 {
        model.publish(&mut log, &[1, 2, 3], message(40, seed)).unwrap();
        model.publish(&mut log, &[4], message(40, seed)).unwrap();
        model.publish(&mut log, &[5], message(200, seed)).unwrap();
    }
    model.purge(&mut log, 2);
    model.purge(&mut log, 3);
    model.purge(&mut log, 5);
    for seed in 0..60 {
        model.publish(&mut log, &[6], message(100, seed)).unwrap();
        log.write().unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
    }

    compact_all(&mut log);

    let mut last: Option<(PathBuf, u32)> = None;
    let mut rewritten = 0;
    for queue in [1, 4] {
        for &number in model.queues[&queue].messages.keys() {
            let located = log.locate(QueueId(queue), Sequence(number), 1).unwrap().unwrap();
            if located.segment.path().to_str().unwrap().matches('.').count() < 2 {
                continue;
            }
            rewritten += 1;
            let message = located.segment.message(located.offsets[0]).unwrap();
            assert_eq!(message.targets().map(|target| target.queue.0).collect::<Vec<_>>(), [queue]);
            let place = (located.segment.path().to_owned(), located.offsets[0]);
            assert!(last.as_ref().is_none_or(|last| last.0 != place.0 || last.1 < place.1), "{last:?} {place:?}");
            last = Some(place);
        }
        last = None;
    }
    assert!(rewritten > 40, "{rewritten}");
    model.check_messages(&log);
}

#[test]
fn a_directory_of_a_rewritten_segment_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    compact_all(&mut log);
    log.close().unwrap();
    drop(log);
    for path in rewritten(directory.path()) {
        std::fs::remove_file(format!("{}.idx", path.display())).unwrap();
    }

    let mut opened = open(directory.path());
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
    run(&mut opened.log, &mut model, 300, |log, _| {
        compact_all(log);
    });
    model.check_messages(&opened.log);
}

#[test]
fn a_record_that_does_not_hold_is_not_copied_and_its_segment_stays() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    let &number = model.queues[&SLOW].messages.keys().next().unwrap();
    let located = log.locate(QueueId(SLOW), Sequence(number), 1).unwrap().unwrap();
    let path = located.segment.path().to_owned();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[located.offsets[0] as usize + 80] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let mut corruption = Vec::new();
    let mut more = true;
    while more {
        match compact(&mut log, 300) {
            Ok(found) => more = found,
            Err(error) => corruption.push(error),
        }
    }

    assert!(matches!(&corruption[..], [LogError::Corrupt { path: found, .. }] if *found == path), "{corruption:?}");
    assert!(path.exists());
    assert!(!rewritten(directory.path()).is_empty(), "the others were rewritten");
}

#[test]
fn the_older_checkpoint_still_leads_to_the_same_state() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 300, |log, _| {
        compact_all(log);
    });
    assert!(!rewritten(directory.path()).is_empty());
    drop(log);
    let is_checkpoint = |path: &PathBuf| path.to_str().unwrap().contains("checkpoint.");
    let newest = files(directory.path()).into_iter().filter(is_checkpoint).max().unwrap();
    std::fs::write(newest, b"not a checkpoint").unwrap();

    let opened = open(directory.path());

    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

#[test]
fn a_rewritten_segment_that_no_checkpoint_covers_stops_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    compact_all(&mut log);
    drop(log);
    for path in files(directory.path()).into_iter().filter(|path| path.to_str().unwrap().contains("checkpoint.")) {
        std::fs::remove_file(path).unwrap();
    }

    assert!(matches!(open_with(directory.path(), small_segments()), Err(LogError::Corrupt { .. })));
}

#[test]
fn many_small_rewritten_segments_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions { segment_bytes_min: 4096, segment_bytes_max: 32_768, ..LogOptions::default() };
    let mut log = open_with(directory.path(), options).unwrap().log;
    let mut model = Model::default();

    run(&mut log, &mut model, 6000, |log, _| {
        compact_all(log);
    });

    let count = rewritten(directory.path()).len();
    let editions = |path: &PathBuf| path.extension().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    assert!(rewritten(directory.path()).iter().map(editions).max() > Some(2), "something was rewritten twice");
    assert!(count < 20, "{count} rewritten segments");
    model.check_messages(&log);
}

/// A log with rewritten segments, and its manifest and the copy of it.
fn compacted(directory: &Path) -> (Model, [PathBuf; 2]) {
    let mut log = open(directory).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    compact_all(&mut log);
    assert!(!rewritten(directory).is_empty());
    (model, ["manifest", "manifest.copy"].map(|name| directory.join(name)))
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[50] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_manifest_that_does_not_hold_or_is_gone_is_made_again_of_its_copy() {
    let spoil: [fn(&Path); 2] = [flip, |path| std::fs::remove_file(path).unwrap()];
    for (spoil, which) in [(spoil[0], 0), (spoil[0], 1), (spoil[1], 0), (spoil[1], 1)] {
        let directory = tempfile::tempdir().unwrap();
        let (model, paths) = compacted(directory.path());
        let before = rewritten(directory.path());
        spoil(&paths[which]);

        let opened = open(directory.path());

        model.check_state(&opened.state);
        model.check_messages(&opened.log);
        assert_eq!(rewritten(directory.path()), before);
        let [manifest, copy] = paths.map(|path| std::fs::read(path).unwrap());
        assert_eq!(manifest, copy, "both count again");
    }
}

#[test]
fn without_a_manifest_that_holds_a_start_stops_by_name_and_removes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (_, paths) = compacted(directory.path());
    paths.iter().for_each(|path| flip(path));
    let before = files(directory.path());

    let error = open_with(directory.path(), small_segments()).unwrap_err();

    assert!(matches!(&error, LogError::Corrupt { path: found, .. } if *found == paths[0]), "{error}");
    assert_eq!(files(directory.path()), before);
}

#[test]
fn a_copy_that_does_not_name_what_was_rewritten_since_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let (_, paths) = compacted(directory.path());
    let newer = format!("{}9", rewritten(directory.path())[0].display());
    std::fs::write(&newer, b"rewritten by a version that makes no copy").unwrap();
    flip(&paths[0]);

    assert!(open_with(directory.path(), small_segments()).is_err());
    assert!(Path::new(&newer).exists());
}

#[test]
fn inspecting_looks_at_rewritten_segments() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    compact_all(&mut log);
    drop(log);
    let path = rewritten(directory.path()).remove(0);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let report = |verify| {
        let reports = inspect(directory.path(), verify).unwrap();
        reports.into_iter().find(|report| report.file == name).unwrap()
    };
    let whole = report(true);
    assert!(whole.error.is_none() && whole.messages > 0 && whole.settles == 0, "{whole:?}");
    assert_eq!(whole.bytes + 64, path.metadata().unwrap().len());

    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, &bytes).unwrap();

    let corrupt = report(true);
    assert!(corrupt.error.is_some());
    let [record] = &corrupt.corrupt[..] else { panic!("{corrupt:?}") };
    let says = &bytes[record.at as usize + 8..record.at as usize + 16];
    assert_eq!(record.position.to_le_bytes(), says, "a record keeps its position wherever it lies");
    assert!(record.position > corrupt.first_position);
}

#[test]
fn closing_ends_what_was_begun() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    run(&mut log, &mut model, 150, |_, _| {});
    assert!(compact(&mut log, 100).unwrap());
    assert_eq!(rewritten(directory.path()).len(), 1);

    log.close().unwrap();

    assert!(log.begin_compaction().is_none());
    assert!(rewritten(directory.path()).is_empty());
    drop(log);
    model.check_messages(&open(directory.path()).log);
}

#[test]
fn segments_get_numbers_above_those_of_rewritten_ones_when_no_other_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let mut log = open(directory.path()).log;
    run(&mut log, &mut model, 400, |_, _| {});
    // None of this is live, and it is more than the size for a double checkpoint: only rewritten segments are left.
    for is_last in [false, false, true] {
        for _ in 0..20 {
            model.publish(&mut log, &[2], message(100_000, 1)).unwrap();
            model.settle(&mut log, 2, Outcome::Ack, &[0]);
        }
        if !is_last {
            fold(&mut log).map(Retired::perform).transpose().unwrap();
            compact_all(&mut log);
        }
    }
    log.close().unwrap();
    drop(log);
    let left = files(directory.path());
    let is_plain = |path: &&PathBuf| path.extension().is_some_and(|ending| ending.len() == 10) && !is_checkpoint(path);
    assert_eq!(left.iter().filter(is_plain).count(), 0, "{left:?}");
    assert!(!rewritten(directory.path()).is_empty());

    for _ in 0..3 {
        let mut log = open(directory.path()).log;
        run(&mut log, &mut model, 400, |log, _| {
            compact_all(log);
        });
        model.check_messages(&log);
        log.close().unwrap();
    }

    let opened = open(directory.path());
    assert_eq!(opened.quarantined, []);
    model.check_state(&opened.state);
    model.check_messages(&opened.log);
}

fn is_checkpoint(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint.")
}
