//! Segments that vanish while a log is stopped: a start reports them before anybody misses a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};

use penstock_log::{Damage, Log, Opened, Outcome, Retired};
use penstock_queue::QueueId;
use support::{Model, compact_all, fold, message, open, sync};

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

/// A closed log of two queues in several segments.
fn closed(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1 + u32::from(seed % 2)], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    model
}

/// How many of the model's messages have a record.
fn stored(opened: &Opened, model: &Model) -> u64 {
    let all = model.queues.iter().flat_map(|(&id, queue)| queue.messages.keys().map(move |&number| (id, number)));
    let is_stored = |&(id, number): &(u32, u64)| {
        opened.log.locate(QueueId(id), penstock_queue::Sequence(number), 1).unwrap().is_some()
    };
    all.filter(is_stored).count() as u64
}

/// What a start reports of files that are gone.
fn gone(opened: &Opened) -> Vec<(String, u64)> {
    let report = |found: &penstock_log::Quarantined| match found.why {
        Damage::Gone(missing) => (found.file.clone(), missing.messages),
        _ => panic!("{found:?}"),
    };
    opened.quarantined.iter().map(report).collect()
}

#[test]
fn a_segment_that_vanished_is_reported_by_every_start_until_nothing_in_it_lives() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = closed(directory.path());
    std::fs::remove_file(segment(directory.path(), 3)).unwrap();
    std::fs::remove_file(directory.path().join("msgs.0000000003.idx")).unwrap();

    for _ in 0..2 {
        let mut opened = open(directory.path());
        let missing = 100 - stored(&opened, &model);
        assert!((10..40).contains(&missing), "{missing}");
        assert_eq!(gone(&opened), [("msgs.0000000003".to_owned(), missing)]);
        assert_eq!(opened.quarantined[0].queues, [QueueId(1), QueueId(2)]);
        model.check_state(&opened.state);
        opened.log.close().unwrap();
    }
    let mut log = open(directory.path()).log;
    model.purge(&mut log, 1);
    model.delete(&mut log, 2);
    log.close().unwrap();
    assert_eq!(gone(&open(directory.path())), []);
}

/// How many messages a start counts as missing in all.
fn told(opened: &Opened) -> u64 {
    let count = |found: &penstock_log::Quarantined| match found.why {
        Damage::Gone(missing) | Damage::Unnamed(missing) => missing.messages,
        _ => panic!("{found:?}"),
    };
    opened.quarantined.iter().map(count).sum()
}

/// Each of them told the total as if all of it had been in that file.
#[test]
fn several_segments_that_vanished_tell_the_number_of_their_messages_once() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed(directory.path());
    for number in [3, 4, 6] {
        std::fs::remove_file(segment(directory.path(), number)).unwrap();
    }

    let opened = open(directory.path());

    let missing = 100 - stored(&opened, &model);
    let names = [3, 4, 6].map(|number| format!("msgs.{number:010}"));
    assert_eq!(gone(&opened), names.into_iter().zip([missing, 0, 0]).collect::<Vec<_>>());
    assert_eq!(told(&opened), missing);
    let texts: Vec<String> = opened.quarantined.iter().map(|found| found.why.to_string()).collect();
    assert!(texts[0].contains(&format!("{missing} messages of this and 2 more missing files")), "{texts:?}");
    for text in &texts[1..] {
        assert!(text.contains("counted with those of the first missing file"), "{texts:?}");
    }
}

#[test]
fn the_newest_segment_that_vanished_keeps_its_number_and_may_be_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let model = closed(directory.path());
    let last = (1..60).rfind(|&number| segment(directory.path(), number).exists()).unwrap();
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), last), &aside).unwrap();

    let mut opened = open(directory.path());

    let missing = 100 - stored(&opened, &model);
    assert!(missing > 0);
    assert_eq!(gone(&opened), [(format!("msgs.{last:010}"), missing)]);
    opened.log.close().unwrap();
    assert!(!segment(directory.path(), last).exists(), "its number was given to another");
    std::fs::rename(&aside, segment(directory.path(), last)).unwrap();
    let opened = open(directory.path());
    assert_eq!(opened.quarantined, []);
    assert_eq!(stored(&opened, &model), 100);
}

#[test]
fn segments_that_an_older_checkpoint_lists_and_that_were_dead_since_are_not_missed() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = closed(directory.path());
    let mut log = open(directory.path()).log;
    model.purge(&mut log, 1);
    for round in 0..2 {
        for seed in 0..60 {
            model.publish(&mut log, &[3], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
        if round == 0 {
            model.purge(&mut log, 2);
        }
    }
    drop(log);
    assert!(!segment(directory.path(), 2).exists(), "nothing in it lives");
    let mut checkpoints = (1..60).map(|number| directory.path().join(format!("checkpoint.{number:010}")));
    std::fs::write(checkpoints.rfind(|path| path.exists()).unwrap(), b"").unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.quarantined, []);
    model.check_messages(&opened.log);
}

/// Settles three in four of the first queue and compacts what that leaves.
fn thin(log: &mut Log, model: &mut Model) {
    let count = model.queues[&1].messages.len();
    let picks: Vec<usize> = (0..count).filter(|at| at % 4 != 0).collect();
    model.settle(log, 1, Outcome::Ack, &picks);
    for seed in 0..30 {
        model.publish(log, &[2], message(100, seed)).unwrap();
    }
    for _ in 0..3 {
        for seed in 0..30 {
            model.publish(log, &[2], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        fold(log).map(Retired::perform).transpose().unwrap();
        compact_all(log);
    }
}

#[test]
fn rewritten_segments_stay_under_a_manifest_that_does_not_know_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    thin(&mut log, &mut model);
    let names = ["manifest", "manifest.copy"].map(|name| directory.path().join(name));
    let old = names.clone().map(|path| std::fs::read(path).unwrap());
    thin(&mut log, &mut model);
    log.close().unwrap();
    let new = names.clone().map(|path| std::fs::read(path).unwrap());
    assert_ne!(old, new);
    let put = |manifest: &[Vec<u8>; 2]| {
        names.iter().zip(manifest).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    };
    put(&old);

    for _ in 0..2 {
        let mut opened = open(directory.path());
        assert!(!opened.quarantined.is_empty());
        for found in &opened.quarantined {
            assert!(matches!(found.why, Damage::Unnamed(_)), "{found:?}");
            assert!(directory.path().join(&found.file).exists());
        }
        assert!(told(&opened) > 0);
        opened.log.close().unwrap();
    }
    put(&new);
    let opened = open(directory.path());
    assert_eq!(opened.quarantined, []);
    model.check_messages(&opened.log);
}

#[test]
fn rewritten_segments_stay_without_a_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    thin(&mut log, &mut model);
    log.close().unwrap();
    let names = ["manifest", "manifest.copy"].map(|name| directory.path().join(name));
    let kept = names.clone().map(|path| std::fs::read(path).unwrap());
    names.iter().for_each(|path| std::fs::remove_file(path).unwrap());

    let opened = open(directory.path());

    assert!(opened.quarantined.iter().any(|found| matches!(found.why, Damage::Unnamed(_))));
    drop(opened);
    names.iter().zip(kept).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let opened = open(directory.path());
    model.check_messages(&opened.log);
}

/// No checkpoint lists what was rewritten after it: a start took it for what a rewriting that never ended had left, and
/// removed the only copy of messages that live.
#[test]
fn segments_that_were_rewritten_after_the_checkpoint_stay_without_their_manifest() {
    for is_older in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let names = ["manifest", "manifest.copy"].map(|name| directory.path().join(name));
        let mut log = open(directory.path()).log;
        let mut model = Model::default();
        for seed in 0..200 {
            model.publish(&mut log, &[1], message(100, seed)).unwrap();
        }
        thin(&mut log, &mut model);
        let old = names.clone().map(|path| std::fs::read(path).unwrap());
        let picks: Vec<usize> = (0..model.queues[&2].messages.len()).filter(|at| at % 4 != 0).collect();
        model.settle(&mut log, 2, Outcome::Ack, &picks);
        for _ in 0..3 {
            for seed in 0..30 {
                model.publish(&mut log, &[3], message(100, seed)).unwrap();
            }
            log.write().unwrap();
            fold(&mut log).map(Retired::perform).transpose().unwrap();
        }
        assert!(compact_all(&mut log) > 0);
        log.write().unwrap();
        sync(&mut log);
        drop(log);
        let new = names.clone().map(|path| std::fs::read(path).unwrap());
        for (path, old) in names.iter().zip(old) {
            if is_older { std::fs::write(path, old).unwrap() } else { std::fs::remove_file(path).unwrap() }
        }

        for _ in 0..2 {
            let mut opened = open(directory.path());
            let is_unnamed = |found: &&penstock_log::Quarantined| matches!(found.why, Damage::Unnamed(_));
            assert!(opened.quarantined.iter().any(|found| is_unnamed(&found)), "{:?}", opened.quarantined);
            for found in opened.quarantined.iter().filter(is_unnamed) {
                assert!(directory.path().join(&found.file).exists());
            }
            let count: u64 = model.queues.values().map(|queue| queue.messages.len() as u64).sum();
            assert_eq!(told(&opened), count - stored(&opened, &model));
            opened.log.close().unwrap();
        }
        names.iter().zip(&new).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let opened = open(directory.path());
        assert_eq!(opened.quarantined, []);
        model.check_messages(&opened.log);
    }
}

/// It was refused only while there was a file of a checkpoint, and the log began with what was left.
#[test]
fn a_log_without_checkpoints_whose_first_segments_are_gone_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = closed(directory.path());
    let mut log = open(directory.path()).log;
    thin(&mut log, &mut model);
    log.close().unwrap();
    let list = || {
        let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let remove = |is_removed: fn(&str) -> bool| {
        for name in list().iter().filter(|name| is_removed(name)) {
            std::fs::remove_file(directory.path().join(name)).unwrap();
        }
    };
    remove(|name| name.starts_with("checkpoint."));
    let is_rewritten = |name: &str| name.ends_with(".2") || name == "msgs.0000000001";
    let is_manifest = |name: &str| name.starts_with("manifest");
    let removals: [fn(&str) -> bool; 3] = [is_manifest, is_rewritten, is_manifest];
    for is_removed in removals {
        let before = list();

        let refused = Log::open(directory.path(), support::small_segments()).map(|_| ()).unwrap_err();

        assert!(refused.to_string().contains("no checkpoint can be read"), "{refused}");
        assert_eq!(list(), before);
        remove(is_removed);
    }
}

/// A log that was killed before its first checkpoint.
fn killed(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1 + u32::from(seed % 2)], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    model
}

/// The segment before it was called damaged, and the file was removed without a word once it was back.
#[test]
fn a_segment_that_vanished_above_the_checkpoint_is_named_and_set_aside_when_it_comes_back_later() {
    let directory = tempfile::tempdir().unwrap();
    let model = killed(directory.path());
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), 3), &aside).unwrap();
    let mut opened = open(directory.path());
    let told: Vec<_> = opened.quarantined.iter().map(|found| (found.file.as_str(), found.why)).collect();
    assert_eq!(told, [("msgs.0000000003", Damage::GoneUncovered)]);
    let kept = stored(&opened, &model);
    assert!((70..95).contains(&kept), "{kept}");
    opened.log.close().unwrap();
    std::fs::rename(&aside, segment(directory.path(), 3)).unwrap();

    let mut opened = open(directory.path());

    assert_eq!(opened.set_aside, ["msgs.0000000003.aside"]);
    assert_eq!(stored(&opened, &model), kept);
    opened.log.close().unwrap();
    assert!(directory.path().join("msgs.0000000003.aside").exists());
    assert_eq!(open(directory.path()).quarantined, []);
}

#[test]
fn a_segment_above_the_checkpoint_that_comes_back_before_another_is_made_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let model = killed(directory.path());
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), 3), &aside).unwrap();
    drop(open(directory.path()));
    std::fs::rename(&aside, segment(directory.path(), 3)).unwrap();

    for _ in 0..2 {
        let mut opened = open(directory.path());
        assert_eq!((&opened.quarantined[..], &opened.set_aside[..]), (&[][..], &[][..]));
        model.check_messages(&opened.log);
        opened.log.close().unwrap();
    }
}

/// Its number was given to the next segment, so that putting it back overwrote that one.
#[test]
fn the_number_of_a_newest_segment_that_vanished_is_not_given_again() {
    for is_covered in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut model = killed(directory.path());
        if is_covered {
            let mut log = open(directory.path()).log;
            log.close().unwrap();
            let mut log = open(directory.path()).log;
            for seed in 0..30 {
                model.publish(&mut log, &[1], message(100, seed)).unwrap();
            }
            log.write().unwrap();
            sync(&mut log);
        }
        let numbers = (1..60).filter(|&number| segment(directory.path(), number).exists());
        let newest = numbers.collect::<Vec<_>>().split_off(if is_covered { 8 } else { 6 });
        for &number in &newest {
            let kept = directory.path().join(format!("kept.{number}"));
            std::fs::rename(segment(directory.path(), number), kept).unwrap();
        }

        let mut opened = open(directory.path());

        let [found] = &opened.quarantined[..] else { panic!("{:?}", opened.quarantined) };
        assert_eq!((found.file.as_str(), found.why), (&*format!("msgs.{:010}", newest[0]), Damage::GoneUncovered));
        opened.log.close().unwrap();
        for &number in &newest {
            let (kept, path) = (directory.path().join(format!("kept.{number}")), segment(directory.path(), number));
            assert!(!path.exists(), "its number was given to another");
            std::fs::rename(kept, path).unwrap();
        }
        let names: Vec<_> = newest.iter().map(|number| format!("msgs.{number:010}.aside")).collect();
        assert_eq!(open(directory.path()).set_aside, names);
    }
}
