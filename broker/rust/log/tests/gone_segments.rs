//! Segments that vanish while a log is stopped: a start reports them before a consumer misses a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use penstock_log::{Corruption, Log, Opened, Outcome, Retired};
use penstock_queue::QueueId;
use support::vanished::{closed, gone, segment, stored, thin};
use support::{Model, compact_all, fold, message, open, sync};

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
        Corruption::Gone(missing) | Corruption::Unnamed(missing) => missing.messages,
        _ => panic!("{found:?}"),
    };
    opened.quarantined.iter().map(count).sum()
}

/// Each of them reported the total as if all of it had been in that file.
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
            assert!(matches!(found.why, Corruption::Unnamed(_)), "{found:?}");
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

    assert!(opened.quarantined.iter().any(|found| matches!(found.why, Corruption::Unnamed(_))));
    drop(opened);
    names.iter().zip(kept).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    let opened = open(directory.path());
    model.check_messages(&opened.log);
}

/// No checkpoint lists a segment that was rewritten after it: a start took it for the rest of an unfinished rewrite,
/// and removed the only copy of live messages.
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
            let is_unnamed = |found: &&penstock_log::Quarantined| matches!(found.why, Corruption::Unnamed(_));
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

/// It was refused only while there was a checkpoint file; otherwise the log began with the remaining segments.
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
