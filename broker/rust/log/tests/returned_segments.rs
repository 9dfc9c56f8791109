//! Segments that vanish while a log is stopped, and come back after it went on without them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Corruption, Log, LogOptions, Opened, Outcome, Retired};
use penstock_queue::{QueueId, Sequence};
use support::vanished::{closed, gone, segment, stored, thin};
use support::{Model, ModelQueue, compact_all, fold, message, open, open_with, small_segments, sync};

/// A log that was killed before its first checkpoint.
fn killed(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1 + u64::from(seed % 2)], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    model
}

/// The segment before it was reported as corrupt, and the file was removed without a report once it was back.
#[test]
fn a_segment_that_vanished_above_the_checkpoint_is_named_and_set_aside_when_it_comes_back_later() {
    let directory = tempfile::tempdir().unwrap();
    let model = killed(directory.path());
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), 3), &aside).unwrap();
    let mut opened = open(directory.path());
    let told: Vec<_> = opened.quarantined.iter().map(|found| (found.file.as_str(), found.why)).collect();
    assert_eq!(told, [("msgs.0000000003", Corruption::GoneUncovered)]);
    let kept = stored(&opened, &model);
    assert!((70..95).contains(&kept), "{kept}");
    opened.log.close().unwrap();
    std::fs::rename(&aside, segment(directory.path(), 3)).unwrap();

    let mut opened = open(directory.path());

    assert_eq!(opened.set_aside, ["msgs.0000000003.aside"]);
    assert_eq!(stored(&opened, &model), kept);
    opened.log.close().unwrap();
    // A user who misses nothing may then delete both files.
    for file in ["msgs.0000000003.aside", "msgs.0000000003.lost"] {
        std::fs::remove_file(directory.path().join(file)).unwrap();
    }
    let opened = open(directory.path());
    assert_eq!(opened.quarantined, []);
    assert_eq!(stored(&opened, &model), kept);
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

/// Its number was reused for the next segment, so that putting it back overwrote that one.
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
        assert_eq!((found.file.as_str(), found.why), (&*format!("msgs.{:010}", newest[0]), Corruption::GoneUncovered));
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

/// The raise after the loss began at a lower sequence than it does with the file: the messages stored since had
/// sequences that then counted as skipped, and were lost without a report.
#[test]
fn what_was_stored_while_a_segment_was_away_is_there_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = killed(directory.path());
    let newest = (1..60).rfind(|&number| segment(directory.path(), number).exists()).unwrap();
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), newest), &aside).unwrap();
    let mut opened = open(directory.path());
    let mut since = Model::default();
    for (id, queue) in &opened.state.queues {
        let next = queue.next.0;
        since.queues.insert(id.0, Arc::new(ModelQueue { next, ..ModelQueue::default() }));
    }
    for seed in 0..20 {
        since.publish(&mut opened.log, &[1 + u64::from(seed % 2)], message(100, seed)).unwrap();
    }
    opened.log.write().unwrap();
    sync(&mut opened.log);
    drop(opened);
    std::fs::rename(&aside, segment(directory.path(), newest)).unwrap();
    for (id, queue) in since.queues {
        let own = Arc::make_mut(model.queues.get_mut(&id).unwrap());
        own.messages.extend(queue.messages.clone());
    }

    let opened = open(directory.path());

    for (id, queue) in &model.queues {
        let folded = &opened.state.queues[&QueueId(*id)];
        let lost: Vec<u64> = queue.messages.keys().copied().filter(|&n| folded.settled.contains(Sequence(n))).collect();
        assert_eq!(lost, [], "of queue {id}");
        assert_eq!(folded.count, queue.messages.len() as u64);
    }
    model.check_messages(&opened.log);
}

/// The names of the rewritten segments.
fn rewritten(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_rewritten = |name: &String| {
        let edition = name.strip_prefix("msgs.").and_then(|rest| rest.split_once('.')).map(|(_, edition)| edition);
        edition.is_some_and(|edition| edition.parse::<u32>().is_ok())
    };
    let mut names: Vec<String> = names.filter(is_rewritten).collect();
    names.sort();
    names
}

/// A manifest that was written meanwhile no longer named it, and it was reported as one of a newer manifest, which did
/// not exist.
#[test]
fn a_rewritten_segment_that_vanished_is_served_when_it_is_back_whatever_was_compacted_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    let mut model = Model::default();
    for seed in 0..200 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    thin(&mut log, &mut model);
    log.close().unwrap();
    let first = rewritten(directory.path()).swap_remove(0);
    let (path, aside) = (directory.path().join(&first), directory.path().join("kept"));
    std::fs::rename(&path, &aside).unwrap();
    let mut opened = open(directory.path());
    assert_eq!(gone(&opened).iter().map(|(file, _)| file).collect::<Vec<_>>(), [&first]);
    let before = rewritten(directory.path());
    let picks: Vec<usize> = (0..model.queues[&2].messages.len()).filter(|at| at % 4 != 0).collect();
    model.settle(&mut opened.log, 2, Outcome::Ack, &picks);
    for _ in 0..3 {
        for seed in 0..30 {
            model.publish(&mut opened.log, &[3], message(100, seed)).unwrap();
        }
        opened.log.write().unwrap();
        fold(&mut opened.log).map(Retired::perform).transpose().unwrap();
        compact_all(&mut opened.log);
    }
    opened.log.close().unwrap();
    assert_ne!(rewritten(directory.path()), before, "nothing was compacted");
    std::fs::rename(&aside, &path).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.quarantined, []);
    model.check_messages(&opened.log);
}

/// Settles seven in eight of two queues, compacts the rest, and closes the log.
fn thin_all(log: &mut Log, model: &mut Model) {
    for id in [1, 2] {
        let picks: Vec<usize> = (0..model.queues[&id].messages.len()).filter(|at| at % 8 != 0).collect();
        model.settle(log, id, Outcome::Ack, &picks);
    }
    for _ in 0..3 {
        for seed in 0..30 {
            model.publish(log, &[3], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        fold(log).map(Retired::perform).transpose().unwrap();
        compact_all(log);
    }
    log.close().unwrap();
}

/// The rewritten segment that replaced its neighbour covered its positions, too, so it was removed without a report.
#[test]
fn a_segment_that_comes_back_later_is_set_aside_whatever_was_compacted_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = killed(directory.path());
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), 5), &aside).unwrap();
    open(directory.path()).log.close().unwrap();
    let mut opened = open(directory.path());
    thin_all(&mut opened.log, &mut model);
    assert!(!rewritten(directory.path()).is_empty(), "nothing was compacted");
    std::fs::rename(&aside, segment(directory.path(), 5)).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.set_aside, ["msgs.0000000005.aside"]);
    assert!(directory.path().join("msgs.0000000005.aside").exists());
}

/// For a start, the segment before it ended where the next one begins. Its rewrite therefore also replaced the missing
/// one, which was removed when it was back.
#[test]
fn a_segment_that_vanished_is_served_when_it_is_back_whatever_was_compacted_meanwhile() {
    for number in [4, 5, 6] {
        let directory = tempfile::tempdir().unwrap();
        let mut model = closed(directory.path());
        let aside = directory.path().join("kept");
        std::fs::rename(segment(directory.path(), number), &aside).unwrap();
        let mut opened = open(directory.path());
        assert_eq!(gone(&opened).len(), 1);
        thin_all(&mut opened.log, &mut model);
        assert!(!rewritten(directory.path()).is_empty(), "nothing was compacted");
        std::fs::rename(&aside, segment(directory.path(), number)).unwrap();

        let opened = open(directory.path());

        assert_eq!((&opened.quarantined[..], &opened.set_aside[..]), (&[][..], &[][..]), "of segment {number}");
        model.check_messages(&opened.log);
    }
}

/// Both settlements subtracted them from the count of the rest.
#[test]
fn messages_that_were_settled_again_while_their_settlement_was_away_are_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = killed(directory.path());
    let mut log = open(directory.path()).log;
    let picks: Vec<usize> = (0..10).collect();
    model.clone().settle(&mut log, 1, Outcome::Ack, &picks);
    log.write().unwrap();
    sync(&mut log);
    drop(log);
    let newest = (1..60).rfind(|&number| segment(directory.path(), number).exists()).unwrap();
    let aside = directory.path().join("kept");
    std::fs::rename(segment(directory.path(), newest), &aside).unwrap();
    let mut opened = open(directory.path());
    assert_eq!(opened.state.queues[&QueueId(1)].count, 50, "they are there again");
    model.settle(&mut opened.log, 1, Outcome::Ack, &picks);
    opened.log.write().unwrap();
    sync(&mut opened.log);
    drop(opened);
    std::fs::rename(&aside, segment(directory.path(), newest)).unwrap();

    let opened = open(directory.path());

    assert_eq!(opened.state.queues[&QueueId(1)].count, 40);
    model.check_messages(&opened.log);
}

/// The start after the loss did not know that the one before had raised, and assigned the sequences in the segment
/// again: when that was back, the messages stored meanwhile were lost without a report.
#[test]
fn numbers_above_a_raise_are_not_given_again_while_the_record_of_the_raise_is_away() {
    for is_last in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        killed(directory.path());
        let options = LogOptions { raise: true, ..small_segments() };
        let mut opened = open_with(directory.path(), options).unwrap();
        let raised = (1..60).rfind(|&number| segment(directory.path(), number).exists()).unwrap();
        let next_of = |opened: &Opened| {
            let next = opened.state.queues[&QueueId(1)].next.0;
            let queue = Arc::new(ModelQueue { next, ..ModelQueue::default() });
            Model { queues: [(1, queue)].into(), ..Model::default() }
        };
        let mut before = next_of(&opened);
        before.publish(&mut opened.log, &[1], message(100, 1)).unwrap();
        let mut others = Model { first: opened.state.first_sequence.0, ..Model::default() };
        for seed in 0..if is_last { 0 } else { 20 } {
            others.publish(&mut opened.log, &[3], message(100, seed)).unwrap();
        }
        opened.log.write().unwrap();
        sync(&mut opened.log);
        drop(opened);
        let aside = directory.path().join("kept");
        std::fs::rename(segment(directory.path(), raised), &aside).unwrap();
        let mut opened = open(directory.path());
        let mut since = next_of(&opened);
        since.publish(&mut opened.log, &[1], message(100, 2)).unwrap();
        opened.log.write().unwrap();
        sync(&mut opened.log);
        drop(opened);
        std::fs::rename(&aside, segment(directory.path(), raised)).unwrap();

        let opened = open(directory.path());

        assert_eq!(opened.state.queues[&QueueId(1)].count, 52);
        before.check_messages(&opened.log);
        since.check_messages(&opened.log);
    }
}
