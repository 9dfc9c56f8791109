//! Replicas of a log: equal lists of positions and checksums, cut tails, and bounds. Proptest prints the case that fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;

use penstock_log::{
    Attributes, Begun, Format, KeptRecords, Log, LogError, LogOptions, Operation, Outcome, Payload, Position, Target,
};
use penstock_queue::{QueueId, Sequence};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, epoch, first_of_all, sizes, steps};
use support::{Model, message, open_with, small_segments, sync};
use tempfile::TempDir;

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

/// Two replicas that begin alike.
fn two(sizes: [(u64, u64); 2]) -> ([TempDir; 3], [Replica; 2]) {
    let (first, one, other) = (first_of_all(), directory(), directory());
    let replicas =
        [(&one, sizes[0]), (&other, sizes[1])].map(|(at, sizes)| Replica::copy_of(first.path(), at.path(), sizes));
    ([first, one, other], replicas)
}

fn one(sizes: (u64, u64)) -> ([TempDir; 2], Replica) {
    let (first, directory) = (first_of_all(), directory());
    let replica = Replica::copy_of(first.path(), directory.path(), sizes);
    ([first, directory], replica)
}

fn checkpoints(directory: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_checkpoint =
        |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("checkpoint.");
    let position = |path| u64::from_le_bytes(std::fs::read(path).unwrap()[32..40].try_into().unwrap());
    files.filter(is_checkpoint).map(position).collect()
}

fn is_refused(result: Result<Position, LogError>) -> bool {
    matches!(result, Err(LogError::NoEpoch { .. }))
}

/// Both logs have the record of every live message, and their lists agree about all that both have.
fn check_lists_agree([one, other]: [&Replica; 2]) {
    let [found, others] = [one.list(), other.list()];
    for (position, checksum) in &found {
        assert!(others.get(position).is_none_or(|other| other == checksum), "{position:?} differs");
    }
    for (&queue, messages) in &one.model().queues {
        for &number in messages.messages.keys() {
            let located = one.log.locate(QueueId(queue), Sequence(number), 1).unwrap().unwrap();
            let position = located.segment.message(located.offsets[0]).unwrap().position();
            assert!(found.contains_key(&position) && found.get(&position) == others.get(&position), "{position:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn replicas_with_other_segments_of_which_one_is_compacted_give_equal_lists(
        parts in prop::collection::vec(steps(1..60), 1..4), sizes in [sizes(), sizes()],
    ) {
        let (_directories, [mut one, mut other]) = two(sizes);
        for steps in &parts {
            one.append(&Step::Epoch);
            other.append(&Step::Epoch);
            one.append_all(steps);
            other.append_all(steps);
            prop_assert_eq!(one.log.end(), other.log.end());
            one.compact();
            check_lists_agree([&one, &other]);
        }
        other.log.set_bound(other.log.end()).unwrap();
        check_lists_agree([&other, &one]);
        one.reopen();
        check_lists_agree([&one, &other]);
    }

    #[test]
    fn truncating_anywhere_and_refilling_equals_never_having_had_the_tail(
        [before, tail, refill] in [steps(1..60), steps(1..60), steps(1..60)],
        [at, bound] in [any::<prop::sample::Index>(), any::<prop::sample::Index>()],
        sizes in [sizes(), sizes()], [syncs, folds, kills, kills_again] in any::<[bool; 4]>(),
    ) {
        let (_directories, [mut one, mut other]) = two(sizes);
        one.append(&Step::Epoch);
        let whole = [before, tail].concat();
        let mut ends = vec![one.log.end()];
        for step in &whole {
            one.append(step);
            ends.push(one.log.end());
        }
        one.log.write().unwrap();
        let cut = at.index(ends.len());
        let position = ends[cut];
        let committed = one.ends(Position(0));
        let committed: Vec<_> = committed.into_iter().filter(|&end| end <= position).collect();
        one.log.set_bound(committed[bound.index(committed.len())]).unwrap();
        if syncs {
            sync(&mut one.log);
        }
        if folds {
            support::fold(&mut one.log).map(penstock_log::Retired::perform).transpose().unwrap();
        }
        if kills {
            one.reopen();
        }
        one.check_bound();
        let is_cut = position < one.log.end();
        one.truncate_to(position);
        prop_assert!(!is_cut || is_refused(one.log.append_delete(QueueId(9))));
        if kills_again {
            one.reopen();
            prop_assert_eq!(one.log.end(), position);
            prop_assert!(is_refused(one.log.append_delete(QueueId(9))));
        }

        other.append(&Step::Epoch);
        whole[..cut].iter().for_each(|step| other.append(step));
        prop_assert_eq!(other.log.end(), position);
        other.skip_epochs_to(&one);
        for replica in [&mut one, &mut other] {
            replica.append(&Step::Epoch);
            replica.append_all(&refill);
            let end = replica.log.end();
            replica.log.set_bound(end).unwrap();
            replica.check_bound();
        }
        prop_assert!(one.log.epochs().iter().eq(other.log.epochs().iter()));
        check_lists_agree([&one, &other]);
        // A fold leaves dead segments out.
        prop_assert!(folds || one.list() == other.list());
        for replica in [&mut one, &mut other] {
            replica.log.close().unwrap();
            prop_assert_eq!(replica.reopen(), replica.log.end());
            replica.check_bound();
        }
        check_lists_agree([&one, &other]);
        // A start that reads all records and one from a checkpoint.
        let states = [&one, &other].map(|replica| {
            Log::open(&replica.directory, LogOptions { is_bounded: true, ..small_segments() }).unwrap().state
        });
        prop_assert_eq!(&states[0], &states[1]);
    }

    /// It could only follow another epoch.
    #[test]
    fn a_follower_that_restarts_amid_an_epoch_goes_on_in_it(
        parts in prop::collection::vec((steps(1..30), 0..5_u8), 1..8), sizes in [sizes(), sizes()],
    ) {
        let (_directories, [mut one, mut other]) = two(sizes);
        one.append(&Step::Epoch);
        other.append(&Step::Epoch);
        for (steps, then) in &parts {
            one.append_all(steps);
            other.append_all(steps);
            match then {
                0 => {}
                1 => other.log.close().unwrap(),
                2 => sync(&mut other.log),
                3 => other.log.set_bound(other.log.end()).unwrap(),
                _ => other.compact(),
            }
            if *then > 0 {
                other.reopen();
                prop_assert!(is_refused(other.log.append_delete(QueueId(9))));
                // Twice, as one that is killed again before it gets anything.
                other.go_on();
                other.reopen();
                other.go_on();
                other.go_on();
            }
            prop_assert_eq!(one.log.end(), other.log.end());
        }
        prop_assert!(one.log.epochs().iter().eq(other.log.epochs().iter()));
        for replica in [&mut one, &mut other] {
            replica.append(&Step::Epoch);
            replica.log.write().unwrap();
            replica.log.set_bound(replica.log.end()).unwrap();
            replica.check_bound();
            sync(&mut replica.log);
            replica.reopen();
            replica.check_bound();
        }
        check_lists_agree([&one, &other]);
    }

    #[test]
    fn the_bound_is_only_where_a_record_ends(
        [below, above] in [steps(1..20), steps(1..20)], at in any::<prop::sample::Index>(), sizes in sizes(), reopens in any::<bool>(),
    ) {
        let (_directories, mut one) = one(sizes);
        one.append(&Step::Epoch);
        one.append_all(&below);
        one.log.set_bound(one.log.end()).unwrap();
        one.append(&Step::Epoch);
        one.append_all(&above);
        if reopens {
            sync(&mut one.log);
            one.reopen();
        }
        let (bound, end) = (one.log.bound(), one.log.end());
        let position = Position(bound.0 + at.index((end.0 - bound.0) as usize + 1) as u64);
        let ends = one.ends(bound);

        let set = one.log.set_bound(position);

        if position == bound || ends.contains(&position) {
            set.unwrap();
            one.check_bound();
        } else {
            prop_assert!(matches!(set, Err(LogError::BoundInRecord { .. })), "at {position:?}: {set:?}");
            prop_assert_eq!(one.log.bound(), bound);
        }
        let bound = one.log.bound();
        for end in ends.into_iter().filter(|&end| end >= bound) {
            one.log.set_bound(end).unwrap();
        }
        prop_assert_eq!(one.log.bound(), end);
    }

    #[test]
    fn nothing_above_the_bound_is_read_folded_or_written_into_a_checkpoint(
        parts in prop::collection::vec((steps(1..40), any::<prop::sample::Index>(), 0..5_u8), 1..6), sizes in sizes(),
    ) {
        let (_directories, mut one) = one(sizes);
        let mut bound = one.log.bound();
        for (steps, at, then) in &parts {
            one.append(&Step::Epoch);
            one.append_all(steps);
            let ends = one.ends(bound);
            one.log.set_bound(ends[at.index(ends.len())]).unwrap();
            bound = one.log.bound();
            one.check_bound();
            match then {
                0 => sync(&mut one.log),
                1 => {
                    support::fold(&mut one.log).map(penstock_log::Retired::perform).transpose().unwrap();
                }
                2 => {
                    let ticket = one.log.begin_whole_fold().unwrap();
                    let folded = ticket.map(|ticket| ticket.perform().unwrap());
                    folded.map(|folded| one.log.finish_fold(folded).perform()).transpose().unwrap();
                    support::compact_all(&mut one.log);
                }
                3 => {
                    one.log.close().unwrap();
                    prop_assert!(one.reopen() <= bound);
                    prop_assert_eq!(one.log.bound(), bound, "closing keeps it");
                }
                _ => {
                    prop_assert!(one.reopen() <= bound);
                    one.log.set_bound(bound).unwrap();
                }
            }
            prop_assert!(checkpoints(&one.directory).iter().all(|&position| position <= bound.0));
            one.check_bound();
            let copy = directory();
            let backup = one.log.begin_backup().unwrap();
            prop_assert_eq!(backup.position(), bound);
            backup.perform(copy.path()).unwrap();
            let opened = Log::open(copy.path(), small_segments()).unwrap();
            prop_assert_eq!((opened.log.end(), &opened.quarantined[..]), (bound, &[][..]));
            one.model_at(bound).check_state(&opened.state);
        }
    }
}

fn publish(seed: u8) -> Step {
    Step::Publish { queues: vec![1, 2], body_bytes: 90, seed }
}

/// The properties above would also hold for logs in which nothing is ever rewritten.
#[test]
fn the_compacted_replica_has_fewer_records_and_the_rest_have_the_same_checksums() {
    let (_directories, [mut one, mut other]) = two([(512, 4096), (4096, 32 << 10)]);
    for replica in [&mut one, &mut other] {
        for part in 0..3 {
            replica.append(&Step::Epoch);
            (0..40).for_each(|seed| replica.append(&publish(seed)));
            (0..9).for_each(|pick| replica.append(&Step::Move { from: 1, to: 3, pick }));
            let picks = (0..120).filter(|at| at % 7 != part).collect::<Vec<_>>();
            replica.append(&Step::Settle { queue: 1, outcome: Outcome::Ack, picks: picks.clone() });
            replica.append(&Step::Settle { queue: 2, outcome: Outcome::Ack, picks });
        }
        replica.log.write().unwrap();
    }
    one.compact();

    check_lists_agree([&one, &other]);
    assert!(one.list().len() < other.list().len() / 2, "{} of {}", one.list().len(), other.list().len());
    let files = std::fs::read_dir(&one.directory).unwrap().map(|entry| entry.unwrap().file_name());
    let is_rewritten = |name: &std::ffi::OsString| name.to_str().unwrap().matches('.').count() == 2;
    assert!(files.filter(is_rewritten).any(|name| !name.to_str().unwrap().ends_with(".idx")));
    let [lower, upper] = [Position(0)..Position(2000), Position(2000)..Position(u64::MAX)]
        .map(|range| other.log.begin_checksums(range).unwrap().perform().unwrap());
    assert_eq!([lower, upper].concat(), other.list().into_iter().collect::<Vec<_>>(), "in two ranges");
}

#[test]
fn a_log_is_cut_only_between_records_and_above_its_bound() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    one.append(&publish(1));
    let bound = one.log.end();
    one.append(&publish(2));
    let before = one.log.end();
    one.append(&Step::Move { from: 1, to: 3, pick: 0 });
    one.log.write().unwrap();
    one.log.set_bound(bound).unwrap();
    let end = one.log.end();
    let mut refused = |at: u64| match one.log.truncate_to(Position(at)) {
        Err(LogError::NotTruncated { why, .. }) => Some(why),
        Ok(()) => None,
        Err(error) => panic!("{error}"),
    };

    assert_eq!(refused(bound.0 - 1), Some(KeptRecords::Committed(bound.0)));
    assert_eq!(refused(end.0 + 1), Some(KeptRecords::AtEnd(end.0)));
    for at in (bound.0 + 1..end.0).filter(|&at| at != before.0) {
        assert_eq!(refused(at), Some(KeptRecords::InRecord), "at {at}");
    }
    assert_eq!(refused(end.0), None, "nothing is above its end");
    assert_eq!(refused(before.0), None);
    assert_eq!(one.log.end(), before);
    assert_eq!(
        std::fs::read_dir(&one.directory)
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("truncating") })
            .count(),
        0
    );
}

#[test]
fn the_next_epoch_is_above_those_that_were_cut() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    one.log.write().unwrap();
    let kept = one.log.end();
    one.append(&Step::Epoch);
    one.append(&publish(1));
    one.log.write().unwrap();
    one.truncate_to(kept);
    assert_eq!(one.log.epochs().iter().last().unwrap().0, epoch(1));
    one.reopen();

    let refused = one.log.follow_epoch(epoch(2), 0, Begun::default());
    assert!(matches!(refused, Err(LogError::OldEpoch { .. })), "{refused:?}");
    let mut opened = Log::open(&one.directory, LogOptions { is_bounded: true, ..small_segments() }).unwrap();
    opened.begin_epoch(Begun::default()).unwrap();
    assert!(opened.log.epochs().iter().last().unwrap().0 > epoch(2));
}

#[test]
fn only_the_newest_epoch_goes_on_and_none_that_was_cut() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    one.append(&publish(1));
    let kept = one.log.write().unwrap();
    one.append(&publish(2));
    one.log.write().unwrap();
    let goes_on = |log: &mut Log, count: u64| log.go_on_in_epoch(epoch(count));
    one.reopen();
    for count in [0, 2] {
        let refused = goes_on(&mut one.log, count);
        assert!(matches!(refused, Err(LogError::OtherEpoch { .. })), "{refused:?}");
    }
    one.truncate_to(kept);
    assert!(is_refused(goes_on(&mut one.log, 1)), "the bytes of another record may be there");

    one.append(&Step::Epoch);
    one.log.write().unwrap();
    one.truncate_to(kept);
    one.reopen();

    let refused = goes_on(&mut one.log, 1);
    assert!(matches!(refused, Err(LogError::OtherEpoch { newest, .. }) if newest == epoch(2)), "{refused:?}");
    one.log.close().unwrap();
    assert!(matches!(goes_on(&mut one.log, 1), Err(LogError::Closed { .. })));
}

/// It said that the log was on the disk up to an end that is cut meanwhile, and later records there would have counted as
/// synced.
#[test]
fn a_sync_that_began_before_a_cut_says_nothing_about_later_records() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    one.log.write().unwrap();
    let kept = one.log.end();
    one.append_all(&[publish(1), publish(2), publish(3)]);
    let (early, late) = (one.log.begin_sync().unwrap(), one.log.begin_sync().unwrap());
    let early = early.perform().unwrap();
    one.truncate_to(kept);
    one.append(&Step::Epoch);
    one.append_all(&[publish(4), publish(5), publish(6), publish(7)]);
    let synced = one.log.synced();
    assert!(synced <= kept);

    one.log.finish_sync(early);
    let late = late.perform().unwrap();
    one.log.finish_sync(late);

    assert_eq!(one.log.synced(), synced);
    // A power failure takes all of it, and nothing that was synced is missing.
    for file in std::fs::read_dir(&one.directory).unwrap().map(|entry| entry.unwrap().path()) {
        let bytes = std::fs::read(&file).unwrap();
        if bytes.starts_with(b"PNSTKSEG") && u64::from_le_bytes(bytes[40..48].try_into().unwrap()) >= kept.0 {
            std::fs::remove_file(file).unwrap();
        }
    }
    let opened = Log::open(&one.directory, LogOptions { raise: true, ..small_segments() }).unwrap();
    assert_eq!((opened.log.end(), &opened.quarantined[..]), (kept, &[][..]));
}

#[test]
fn the_bound_never_goes_back_and_never_above_the_end() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    one.append_all(&[publish(1), publish(2)]);
    let end = one.log.end();
    let start = one.log.bound();
    assert!(matches!(one.log.set_bound(Position(end.0 + 1)), Err(LogError::BoundOutOfRange { .. })));
    one.log.set_bound(end).unwrap();

    assert!(matches!(one.log.set_bound(start), Err(LogError::BoundOutOfRange { .. })));
    assert_eq!(one.log.bound(), end);
    sync(&mut one.log);
    one.reopen();
    assert_eq!(one.log.bound(), end, "a sync keeps it");
}

#[test]
fn a_log_without_a_bound_has_its_end_in_its_place() {
    let directory = directory();
    let mut log = open_with(directory.path(), LogOptions { format: Format::Two, ..small_segments() }).unwrap().log;
    let mut model = Model::default();
    model.publish(&mut log, &[1], message(10, 1)).unwrap();
    let end = log.write().unwrap();

    assert_eq!(log.bound(), end);
    assert!(matches!(log.set_bound(end), Err(LogError::Unbounded { .. })));
    assert!(matches!(log.truncate_to(Position(end.0 - 10)), Err(LogError::NotTruncated { .. })));
    sync(&mut log);
    drop(log);
    let opened = Log::open(directory.path(), LogOptions { is_bounded: true, ..small_segments() }).unwrap();
    assert_eq!(opened.log.bound(), end, "all that a single log has synced is committed");
}

#[test]
fn a_log_of_format_1_refuses_all_of_it() {
    let directory = directory();
    let mut log = open_with(directory.path(), LogOptions { format: Format::One, ..small_segments() }).unwrap().log;
    let end = log.end();
    let is_refused = |result: Result<(), LogError>| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("format 1"), "{error}");
        matches!(error, LogError::NotInFormat { .. })
    };

    assert!(is_refused(log.set_bound(end)));
    assert!(is_refused(log.truncate_to(Position(0))));
    assert!(is_refused(log.follow_epoch(epoch(1), 0, Begun::default()).map(|_| ())));
    assert!(is_refused(log.begin_checksums(Position(0)..end).map(|_| ())));
    drop(log);
    let bounded = LogOptions { format: Format::One, is_bounded: true, ..small_segments() };
    assert!(is_refused(Log::open(directory.path(), bounded).map(|_| ())));
}

/// Bytes of cut records lay behind the new ones, and a record in them that fitted would have been read.
#[test]
fn no_byte_of_a_cut_record_is_left() {
    let (_directories, mut one) = one((1 << 16, 1 << 16));
    one.append(&Step::Epoch);
    one.log.write().unwrap();
    let kept = one.log.end();
    let payload = Payload::new(b"", b"", b"", &[0xab; 3000]).unwrap();
    let target = |sequence| [Target { queue: QueueId(1), sequence: Sequence(sequence) }];
    one.log.append_message(&payload, 1, &target(1)).unwrap();
    one.log.append_envelope(&[Operation::Message { payload, stored_at_ms: 1, targets: &target(2) }]).unwrap();
    one.log.write().unwrap();
    one.log.truncate_to(kept).unwrap();

    for file in std::fs::read_dir(&one.directory).unwrap().map(|entry| entry.unwrap().path()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(8).any(|window| window == [0xab; 8]), "{}", file.display());
    }
}

/// A deadline came while its message could still be cut, nobody found the message, and it never came again.
#[test]
fn a_deadline_comes_once_its_message_is_below_the_bound_and_never_if_that_is_cut() {
    let (_directories, mut one) = one((512, 4096));
    one.append(&Step::Epoch);
    let log = &mut one.log;
    let mut ends = Vec::new();
    for sequence in 1..=30 {
        let attributes = Attributes { expires_at_ms: Some(1000 - sequence), ..Attributes::default() };
        let payload = Payload::new(b"", b"", b"", &[7; 60]).unwrap().with_attributes(&attributes);
        ends.push(
            log.append_message(&payload, 1, &[Target { queue: QueueId(1), sequence: Sequence(sequence) }]).unwrap(),
        );
    }
    log.write().unwrap();
    let take = |log: &mut Log| {
        let mut found = Vec::new();
        while let Some(ticket) = log.begin_deadlines(u64::MAX, 4) {
            let read = ticket.perform().unwrap();
            found.extend(log.finish_deadlines(read).into_iter().map(|deadline| deadline.sequence.0));
        }
        found.sort_unstable();
        found
    };

    assert_eq!(take(log), []);
    log.set_bound(ends[4]).unwrap();
    assert_eq!(take(log), [1, 2, 3, 4, 5]);
    log.set_bound(ends[9]).unwrap();
    assert_eq!(take(log), [6, 7, 8, 9, 10]);
    log.truncate_to(ends[19]).unwrap();
    log.set_bound(ends[19]).unwrap();
    let found = take(log);
    assert!(found.ends_with(&(11..=20).collect::<Vec<_>>()), "{found:?}");
}
