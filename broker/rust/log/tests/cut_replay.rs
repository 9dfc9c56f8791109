//! Every crash while a log is cut: after each disk step directories are made as a kill or a power failure may leave them,
//! opened, and compared with the content that the log had at its end. Afterwards the cut is repeated and the log goes on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Begun, Disk, Format, Log, LogOptions, Outcome, Position};
use support::crashed::{Crash, Crashable, Image};
use support::dice::Dice;
use support::recorder::{Recorder, Step as DiskStep};
use support::replicas::{Replica, Step, directory, epoch};
use support::sync;

/// When the log synced its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    Nothing,
    Committed,
    All,
}

/// A log that is about to be cut.
struct Before {
    replica: Replica,
    recorder: Arc<Recorder>,
    synced: Position,
    position: Position,
}

fn publish(seed: u8) -> Step {
    Step::Publish { queues: vec![1, 2], body_bytes: 90, seed }
}

/// Records below the bound, a few above it that stay, and several segments that do not.
fn before(directory: &Path, syncs: Syncs, kept: u8) -> Before {
    let recorder = Arc::new(Recorder::default());
    let mut replica = Replica::open(directory, (512, 4096), Arc::clone(&recorder) as Arc<dyn Disk>);
    replica.append(&Step::Epoch);
    (0..9).for_each(|seed| replica.append(&publish(seed)));
    replica.append(&Step::Settle { queue: 1, outcome: Outcome::Ack, picks: vec![1, 3] });
    replica.log.write().unwrap();
    replica.log.set_bound(replica.log.end()).unwrap();
    if syncs != Syncs::Nothing {
        sync(&mut replica.log);
    }
    (0..kept).for_each(|seed| replica.append(&publish(seed)));
    replica.log.write().unwrap();
    let position = replica.log.end();
    (0..5).for_each(|seed| replica.append(&publish(seed)));
    replica.append(&Step::Move { from: 1, to: 3, pick: 2 });
    replica.append(&Step::Epoch);
    (0..20).for_each(|seed| replica.append(&publish(seed)));
    replica.log.write().unwrap();
    if syncs == Syncs::All {
        sync(&mut replica.log);
    }
    let synced = match syncs {
        Syncs::Nothing => Position(0),
        Syncs::Committed => replica.log.bound(),
        Syncs::All => replica.log.end(),
    };
    Before { replica, recorder, synced, position }
}

fn options(disk: Arc<dyn Disk>, crash: Crash, is_bounded: bool) -> LogOptions {
    let raise = crash.loses_page_cache();
    LogOptions {
        segment_bytes_min: 512,
        segment_bytes_max: 4096,
        format: Format::Two,
        raise,
        is_bounded,
        disk,
        ..LogOptions::default()
    }
}

/// Opens what a crash left, and again what a crash of that start left.
struct Case<'a> {
    before: &'a Before,
    crash: Crash,
    /// Whether the cut was done.
    is_done: bool,
}

impl Case<'_> {
    fn open(&self, image: &Image, dice: &mut Dice) {
        self.open_in(image, true);
        self.open_in(image, false);
        let has_intention = image.files.contains_key("truncating");
        if has_intention {
            self.crash_while_completing(image, dice);
        }
    }

    fn open_in(&self, image: &Image, is_bounded: bool) {
        let directory = directory();
        image.write_to(directory.path());
        let Before { replica, position, synced, .. } = self.before;
        let disk = Arc::new(penstock_log::RealDisk);
        let opened = Log::open(directory.path(), options(Arc::clone(&disk) as _, self.crash, is_bounded)).unwrap();
        assert_eq!(opened.quarantined, [], "no disk changed a byte");
        let (end, mut log) = (opened.log.end(), opened.log);
        let must_be_cut = self.is_done || image.files.contains_key("truncating");
        assert!(end >= *synced.min(position), "the log ends at {} of {}", end.0, synced.0);
        assert!(!must_be_cut || end <= *position, "the log is cut and ends at {}", end.0);
        assert!(!directory.path().join("truncating").exists());
        let expected = if is_bounded { end.min(replica.log.bound()) } else { end };
        assert!(opened.state.position <= expected);
        assert!(is_bounded || opened.state.position == end);
        replica.model_at(opened.state.position).check_state(&opened.state);
        assert!(replica.past.contains_key(&end), "no record ends at {}", end.0);
        if is_bounded && end >= *position {
            log.truncate_to(*position).unwrap();
            log.follow_epoch(epoch(9), 0, Begun::default()).unwrap();
            let mut model = replica.model_at(*position).clone();
            model.publish(&mut log, &[1, 4], support::message(300, 7)).unwrap();
            log.write().unwrap();
            let end = log.end();
            log.set_bound(end).unwrap();
            model.check_messages(&log);
            sync(&mut log);
            drop(log);
            let again = Log::open(directory.path(), options(disk, Crash::Kill, true)).unwrap();
            assert_eq!((again.log.end(), &again.quarantined[..]), (end, &[][..]));
            model.check_state(&again.state);
            model.check_messages(&again.log);
        }
    }

    fn crash_while_completing(&self, image: &Image, dice: &mut Dice) {
        let directory = directory();
        image.write_to(directory.path());
        let recorder = Arc::new(Recorder::after(image, directory.path()));
        drop(Log::open(directory.path(), options(Arc::clone(&recorder) as _, self.crash, true)).unwrap());
        let mut disk = Crashable::of(image);
        for step in recorder.steps() {
            if dice.once_in(2) {
                let crash =
                    [Crash::Kill, Crash::PowerKeepsNothing, Crash::PowerKeepsAll, Crash::PowerKeepsSome][dice.below(4)];
                let image = disk.crash(crash, dice);
                // A start that ends before its log is open passes its knowledge of the page cache to the next one.
                let crash = if self.crash.loses_page_cache() { self.crash } else { crash };
                Case { crash, is_done: true, ..*self }.open_in(&image, dice.once_in(2));
            }
            disk.apply(&step);
        }
    }
}

fn replay(syncs: Syncs, kept: u8) {
    let directory = directory();
    let mut before = before(directory.path(), syncs, kept);
    let from = before.recorder.count();
    // The content above is still that of directories that a crash leaves.
    before.replica.log.truncate_to(before.position).unwrap();
    let steps = before.recorder.steps();
    let (mut disk, mut dice) = (Crashable::default(), Dice::new(u64::from(kept) + 1));
    let mut directories = 0;
    for done in 0..=steps.len() {
        if done >= from {
            let mut crashes = vec![Crash::Kill, Crash::PowerKeepsNothing, Crash::PowerKeepsAll];
            crashes.extend([Crash::PowerKeepsSome; 3]);
            if matches!(steps[done - 1], DiskStep::Write { .. }) {
                crashes.push(Crash::KillInWrite);
            }
            for crash in crashes {
                let image = disk.crash(crash, &mut dice);
                let case = Case { before: &before, crash, is_done: done == steps.len() };
                eprintln!(
                    "{syncs:?}, {kept}: {crash:?} after {} of {} steps: {}",
                    done - from,
                    steps.len() - from,
                    steps[done - 1]
                );
                case.open(&image, &mut dice);
                directories += 1;
            }
        }
        steps.get(done).into_iter().for_each(|step| disk.apply(step));
    }
    assert!(directories > 100, "{directories}");
}

#[test]
fn a_cut_of_synced_records_may_be_interrupted_anywhere() {
    (0..3).for_each(|kept| replay(Syncs::All, kept));
}

#[test]
fn a_cut_of_records_that_were_not_synced_may_be_interrupted_anywhere() {
    (0..3).for_each(|kept| replay(Syncs::Committed, kept));
    replay(Syncs::Nothing, 2);
}

#[test]
fn an_intention_that_cannot_be_read_refuses_the_start_and_nothing_is_changed() {
    let directory = directory();
    drop(before(directory.path(), Syncs::All, 1));
    let content = |at: &Path| {
        let files = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (std::fs::read(&path).unwrap(), path)).collect::<std::collections::BTreeSet<_>>()
    };
    std::fs::write(directory.path().join("truncating"), [7; 36]).unwrap();
    let found = content(directory.path());

    let refused =
        Log::open(directory.path(), options(Arc::new(penstock_log::RealDisk), Crash::Kill, true)).unwrap_err();

    assert!(refused.to_string().contains("truncat"), "{refused}");
    assert_eq!(content(directory.path()), found);
}

/// Refused for lack of space, and after any other failure that leaves the log as it was.
#[test]
fn a_cut_that_cannot_begin_changes_nothing_and_one_that_fails_stops_the_log() {
    use support::recorder::{Fault, Kind};
    let mut outcomes = [0, 0, 0];
    for after in 0..200 {
        let directory = directory();
        let mut before = before(directory.path(), Syncs::All, 1);
        let end = before.replica.log.end();
        before.recorder.set_fault(Some(Fault { after, times: 1, kind: Kind::Full }));
        let cut = before.replica.log.truncate_to(before.position);
        before.recorder.set_fault(None);
        let has_failed = !before.recorder.failed().is_empty();
        let log = &mut before.replica.log;
        let expected = match (&cut, log.write()) {
            (Ok(()), Ok(end)) => {
                outcomes[0] += 1;
                assert_eq!(end, before.position);
                end
            }
            (Err(_), Ok(found)) => {
                outcomes[1] += 1;
                assert_eq!(found, end);
                assert!(log.append_delete(penstock_queue::QueueId(9)).is_ok());
                end
            }
            (Err(_), Err(_)) => {
                outcomes[2] += 1;
                assert!(log.append_delete(penstock_queue::QueueId(9)).is_err());
                before.position
            }
            (Ok(()), Err(error)) => panic!("{error}"),
        };
        let opened =
            Log::open(directory.path(), options(Arc::new(penstock_log::RealDisk), Crash::Kill, false)).unwrap();
        assert_eq!((opened.log.end(), &opened.quarantined[..]), (expected, &[][..]), "step {after} failed");
        before.replica.model_at(expected).check_state(&opened.state);
        if !has_failed {
            break;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}
