//! A recorded run of a log, and the result of every crash in it: after each disk step directories are made as a power
//! failure or a kill may leave them, opened, and compared with the promises up to then.
//!
//! `REPLAY_CASES` sets how many directories are opened, `REPLAY_SEED` the first seed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Format, Log, LogOptions, Opened, Payload, inspect};
use support::crashed::{Crash, Crashable, Image};
use support::dice::Dice;
use support::load::{Load, Shared, Sizes, options, step};
use support::past::{At, Past, check_messages};
use support::recorder::{Recorder, Step};
use support::{Model, epoch_record_bytes, message, open_with, sync};
use tempfile::TempDir;

const STEPS_OF_A_LOAD: usize = 60;
/// Where queues are many, each directory takes longer.
const STEPS_OF_A_WIDE_LOAD: usize = 12;
const STEPS_OF_A_LATER_BOOT: usize = 15;
const STEPS_OF_AN_UPGRADE: usize = 6;
const BOOTS_MAX: usize = 3;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|set| set.parse().ok()).unwrap_or(default)
}

/// In memory where possible: these tests do not depend on the machine's disk.
fn directory() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// The steps from a start to a crash.
struct Boot {
    number: usize,
    steps: Vec<Step>,
    past: Past,
}

/// A crash in it; describes itself when a check fails.
struct Case<'a> {
    seed: u64,
    boot: &'a Boot,
    steps: usize,
    crash: Crash,
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { seed, boot, steps, crash } = self;
            eprintln!("seed {seed}: boot {}, {crash:?} after these {steps} steps", boot.number);
            boot.steps.iter().take(*steps).enumerate().for_each(|(at, step)| eprintln!("  {at}: {step}"));
        }
    }
}

/// One seed's replays.
struct Replay {
    seed: u64,
    dice: Dice,
    cases: u64,
}

impl Replay {
    fn of(seed: u64) -> Replay {
        let mut replay = Replay { seed, dice: Dice::new(!seed), cases: 0 };
        let directory = directory();
        let recorder = Arc::new(Recorder::default());
        let (load, opened) = Load::begin(directory.path(), &recorder, seed, Past::default(), Crash::Kill);
        opened.unwrap();
        let is_wide = Sizes::of(seed).wide_queues > 0;
        let boot = live(1, &load, &recorder, if is_wide { STEPS_OF_A_WIDE_LOAD } else { STEPS_OF_A_LOAD });
        let mut disk = Crashable::default();
        for steps in 0..=boot.steps.len() {
            replay.crash_after(&disk, &boot, steps);
            boot.steps.get(steps).into_iter().for_each(|step| disk.apply(step));
        }
        replay
    }

    /// Some of the possible results after so many steps.
    fn crash_after(&mut self, disk: &Crashable, boot: &Boot, steps: usize) {
        self.crash(disk, boot, steps, Crash::Kill);
        if steps > 0 && matches!(boot.steps[steps - 1], Step::Write { .. }) {
            self.crash(disk, boot, steps, Crash::KillInWrite);
        }
        self.crash(disk, boot, steps, Crash::PowerKeepsNothing);
        self.crash(disk, boot, steps, Crash::PowerKeepsAll);
        // Names that are kept and lost in the wrong order show only in a few of many combinations.
        let throws = 3 + 2 * disk.unsynced_names().min(4);
        (0..throws).for_each(|_| self.crash(disk, boot, steps, Crash::PowerKeepsSome));
    }

    fn crash(&mut self, disk: &Crashable, boot: &Boot, steps: usize, crash: Crash) {
        let case = Case { seed: self.seed, boot, steps, crash };
        let image = disk.crash(crash, &mut self.dice);
        self.cases += 1;
        let done = if crash == Crash::KillInWrite { steps - 1 } else { steps };
        let at = At { done, begun: steps };
        if boot.number < BOOTS_MAX && self.dice.once_in(20) {
            let next = disk.of_next_boot(&image, crash);
            let past = boot.past.of_next_boot(at, crash);
            self.live_on((&image, next), past, crash, (boot.number + 1, STEPS_OF_A_LATER_BOOT));
        } else {
            self.open_twice(&image, &boot.past, at, crash);
        }
        drop(case);
    }

    fn open_twice(&mut self, image: &Image, past: &Past, at: At, crash: Crash) {
        let directory = directory();
        image.write_to(directory.path());
        let recorder = Arc::new(Recorder::after(image, directory.path()));
        let options = options(Sizes::after(self.seed, past), crash.loses_page_cache(), &recorder);
        let opened = open_with(directory.path(), options).unwrap();
        let (_, mut model) = past.check(&opened, at, crash);
        let Opened { state: first, mut log, .. } = opened;
        past.send_again(&mut model, &mut log, at);
        let end = log.end();
        drop(log);

        let mut again = open_with(directory.path(), LogOptions::default()).unwrap();

        assert_eq!(again.recovery.torn_bytes, 0, "the first start left nothing torn");
        assert_eq!((again.state.first_sequence, &again.quarantined[..]), (first.first_sequence, &[][..]));
        assert_eq!(again.state.position.0, end.0 + epoch_record_bytes(again.log.format()));
        model.check_state(&again.state);
        check_messages(&model, &again.log);
        if self.dice.once_in(4) {
            again.log.close().unwrap();
            let told = inspect(directory.path(), true).unwrap().into_iter().find(|report| report.error.is_some());
            assert_eq!(told, None);
        }
    }

    /// The next boot begins with the result of a crash, and ends in one, too.
    fn live_on(
        &mut self,
        (image, disk): (&Image, Crashable),
        past: Past,
        crash: Crash,
        (number, steps): (usize, usize),
    ) {
        let seed = self.seed + 4 * self.dice.below(1 << 20) as u64;
        let boot = boot((image, &disk), past, crash, (number, steps), seed);
        let crashes: Vec<usize> = (0..4).map(|_| self.dice.below(boot.0.steps.len() + 1)).collect();
        self.cut_short(disk, boot, &crashes);
    }

    /// Crashes after these steps of a boot.
    fn cut_short(&mut self, mut disk: Crashable, (boot, begun): (Boot, usize), crashes: &[usize]) {
        for steps in 0..=boot.steps.len() {
            if crashes.contains(&steps) {
                self.crash(&disk, &boot, steps, Crash::PowerKeepsSome);
                self.crash(&disk, &boot, steps, Crash::PowerKeepsNothing);
                if steps >= begun {
                    self.crash(&disk, &boot, steps, Crash::Kill);
                }
                if steps > begun && matches!(boot.steps[steps - 1], Step::Write { .. }) {
                    self.crash(&disk, &boot, steps, Crash::KillInWrite);
                }
            }
            boot.steps.get(steps).into_iter().for_each(|step| disk.apply(step));
        }
    }
}

/// The boot, and how many steps its start took, if that start knew of a lost page cache.
fn boot(
    (image, disk): (&Image, &Crashable),
    past: Past,
    crash: Crash,
    (number, steps): (usize, usize),
    seed: u64,
) -> (Boot, usize) {
    let directory = directory();
    image.write_to(directory.path());
    let recorder = Arc::new(Recorder::after_files(image, directory.path(), disk.file_count()));
    let (load, opened) = Load::begin(directory.path(), &recorder, seed, past, crash);
    opened.unwrap();
    // A start that ends before its log is open passes its knowledge of the page cache to the next one.
    let begun = if crash.loses_page_cache() { recorder.count() } else { 0 };
    (live(number, &load, &recorder, steps), begun)
}

fn live(number: usize, load: &Shared, recorder: &Recorder, steps: usize) -> Boot {
    (0..steps).for_each(|_| step(load).unwrap());
    recorder.set_between(None);
    let past = load.lock().unwrap().past().clone();
    Boot { number, steps: recorder.steps(), past }
}

/// Every crash in the first boot in format 2 of a log that was written in format 1. The start after it opens the log in
/// either format: one that has nothing of format 2 yet may go on in format 1.
#[test]
fn an_upgrade_may_be_cut_short_anywhere() {
    let mut cases = 0;
    for of_one in 2..4 {
        let of_two = of_one + 4;
        assert_eq!([of_one, of_two].map(|seed| Sizes::of(seed).format), [Format::One, Format::Two]);
        let before = directory();
        let recorder = Arc::new(Recorder::default());
        let (load, opened) = Load::begin(before.path(), &recorder, of_one, Past::default(), Crash::Kill);
        opened.unwrap();
        let older = live(1, &load, &recorder, STEPS_OF_A_WIDE_LOAD);
        let mut disk = Crashable::default();
        older.steps.iter().for_each(|step| disk.apply(step));
        for (crash, opens_as) in
            [Crash::Kill, Crash::PowerKeepsSome, Crash::PowerKeepsAll].into_iter().zip([of_two, of_one, of_two])
        {
            let mut replay = Replay { seed: opens_as, dice: Dice::new(of_one), cases: 0 };
            let image = disk.crash(crash, &mut replay.dice);
            let past = older.past.of_next_boot(At::after(older.steps.len()), crash);
            let next = disk.of_next_boot(&image, crash);
            let boot = boot((&image, &next), past, crash, (BOOTS_MAX, STEPS_OF_AN_UPGRADE), of_two);
            let crashes: Vec<usize> = (0..=boot.0.steps.len()).collect();
            replay.cut_short(next, boot, &crashes);
            cases += replay.cases;
        }
    }
    println!("{cases} directories were opened");
}

/// A start set segments aside that a power failure had cut, and was cut short itself before their names were on the
/// disk. The next one found them beside the segment at their positions, and reported corruption where nothing was lost.
#[test]
fn a_start_that_sets_segments_aside_may_be_cut_short_anywhere() {
    let before = directory();
    let recorder = Arc::new(Recorder::default());
    let (load, opened) = Load::begin(before.path(), &recorder, 2, Past::default(), Crash::Kill);
    opened.unwrap();
    let past = load.lock().unwrap().leave_two_segments();
    let mut disk = Crashable::default();
    recorder.steps().iter().for_each(|step| disk.apply(step));
    let mut image = disk.crash(Crash::PowerKeepsAll, &mut Dice::new(1));
    let names: Vec<String> = image.files.keys().filter(|name| name.len() == 15).cloned().collect();
    // The first of them never got its header.
    image.files.get_mut(&names[names.len() - 2]).unwrap().fill(0);
    let at = At::after(recorder.count());

    for seed in 0..60 {
        let mut replay = Replay { seed: 2, dice: Dice::new(seed), cases: 0 };
        let past = past.of_next_boot(at, Crash::PowerKeepsSome);
        replay.live_on((&image, Crashable::of(&image)), past, Crash::PowerKeepsSome, (BOOTS_MAX, 0));
    }
}

/// The same sizes in both formats.
const SMALL: [u64; 2] = [2, 6];

/// A log whose only queue got messages and was purged.
fn emptied(directory: &Path, options: LogOptions) -> (Log, Model) {
    let mut log = open_with(directory, options).unwrap().log;
    let mut model = Model::default();
    (0..60).for_each(|seed| model.publish(&mut log, &[1], message(200, seed)).unwrap());
    model.purge(&mut log, 1);
    (log, model)
}

/// Dead segments need not be on the disk. A close that did not sync their removal let some of them come back in part
/// after a power failure, and a start after a clean stop reported corruption.
#[test]
fn dead_segments_do_not_come_back_when_the_power_fails_after_a_close() {
    for sizes in SMALL.map(Sizes::of) {
        let before = directory();
        let recorder = Arc::new(Recorder::default());
        let (mut log, mut model) = emptied(before.path(), options(sizes, false, &recorder));
        // They go when the older of two checkpoints finds them dead: this one, once the close has made another.
        let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
        assert!(before.path().join("msgs.0000000001").exists());
        model.publish(&mut log, &[2], message(200, 1)).unwrap();
        log.close().unwrap();
        assert!(!before.path().join("msgs.0000000001").exists());
        let mut disk = Crashable::default();
        recorder.steps().iter().for_each(|step| disk.apply(step));

        for seed in 0..60 {
            let image = disk.crash(Crash::PowerKeepsSome, &mut Dice::new(seed));
            let after = directory();
            image.write_to(after.path());

            let opened = open_with(after.path(), LogOptions::default()).unwrap();

            assert_eq!(opened.quarantined, [], "seed {seed}");
            model.check_state(&opened.state);
        }
    }
}

/// The fold's thread removes dead segments when it gets to it; only the earlier close had synced the directory.
#[test]
fn dead_segments_that_go_after_a_close_do_not_come_back_either() {
    for sizes in SMALL.map(Sizes::of) {
        let before = directory();
        let recorder = Arc::new(Recorder::default());
        let (mut log, mut model) = emptied(before.path(), options(sizes, false, &recorder));
        let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
        model.publish(&mut log, &[2], message(200, 1)).unwrap();
        let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
        log.close().unwrap();
        assert!(before.path().join("msgs.0000000001").exists());

        log.finish_fold(folded).perform().unwrap();

        assert!(!before.path().join("msgs.0000000001").exists());
        let mut disk = Crashable::default();
        recorder.steps().iter().for_each(|step| disk.apply(step));
        assert_eq!(disk.unsynced_names(), 0);
    }
}

/// An emptied log had returned its space, and the clean stop that followed had nothing to fold: it left the segments
/// that had died since the older checkpoint, and the empty active one, unsynced in the page cache.
#[test]
fn a_close_after_a_whole_fold_leaves_nothing_that_a_power_failure_can_corrupt() {
    for sizes in SMALL.map(Sizes::of) {
        let before = directory();
        let recorder = Arc::new(Recorder::default());
        let (mut log, model) = emptied(before.path(), options(sizes, false, &recorder));
        for _ in 0..2 {
            let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
            log.finish_fold(folded).perform().unwrap();
        }
        log.close().unwrap();
        let mut disk = Crashable::default();
        recorder.steps().iter().for_each(|step| disk.apply(step));

        for seed in 0..200 {
            let image = disk.crash(Crash::PowerKeepsSome, &mut Dice::new(seed));
            let after = directory();
            image.write_to(after.path());

            let opened = open_with(after.path(), LogOptions::default()).unwrap();

            assert_eq!((&opened.quarantined[..], opened.recovery.torn_bytes), (&[][..], 0), "seed {seed}");
            model.check_state(&opened.state);
        }
    }
}

/// A power failure took the segments whose records were dead, and the one after them. The next start reused their
/// number, and an inspection missed their records after the segment before.
#[test]
fn segments_that_died_are_not_missed_when_the_log_goes_on_without_them() {
    let directory = directory();
    let mut log = open_with(directory.path(), LogOptions::default()).unwrap().log;
    let mut model = Model::default();
    for queue in [1, 2] {
        model.publish(&mut log, &[queue], message(200, 1)).unwrap();
        model.purge(&mut log, 2);
        let folded = log.begin_whole_fold().unwrap().unwrap().perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
    }
    drop(log);
    for number in [2, 3] {
        std::fs::remove_file(directory.path().join(format!("msgs.{number:010}"))).unwrap();
    }

    let mut log = open_with(directory.path(), LogOptions::default()).unwrap().log;
    log.close().unwrap();

    let told = inspect(directory.path(), true).unwrap().into_iter().find(|report| report.error.is_some());
    assert_eq!(told, None);
}

/// A start after a clean stop believes that the page cache was not lost, even when the power failed just after the
/// stop.
#[test]
fn a_close_leaves_nothing_that_a_power_failure_can_corrupt() {
    for seed in 1..=from_environment("REPLAY_CASES", 2000) / 50 {
        let before = directory();
        let recorder = Arc::new(Recorder::default());
        let (load, opened) = Load::begin(before.path(), &recorder, seed, Past::default(), Crash::Kill);
        opened.unwrap();
        let mut dice = Dice::new(seed);
        (0..dice.below(if Sizes::of(seed).wide_queues > 0 { 12 } else { 60 })).for_each(|_| step(&load).unwrap());
        recorder.set_between(None);
        let model = load.lock().unwrap().end();
        let mut disk = Crashable::default();
        recorder.steps().iter().for_each(|step| disk.apply(step));

        for crash in [Crash::PowerKeepsNothing, Crash::PowerKeepsAll].into_iter().chain([Crash::PowerKeepsSome; 6]) {
            let image = disk.crash(crash, &mut dice);
            let after = directory();
            image.write_to(after.path());
            let told = inspect(after.path(), true).unwrap().into_iter().find(|report| report.error.is_some());
            assert_eq!(told, None, "seed {seed}");

            let opened = open_with(after.path(), LogOptions::default()).unwrap();

            assert_eq!((&opened.quarantined[..], opened.recovery.torn_bytes), (&[][..], 0), "seed {seed}");
            model.check_state(&opened.state);
            check_messages(&model, &opened.log);
        }
    }
}

/// A disk on which a segment follows an empty one, and the content of the queues. The end of the segment before was
/// synced by the fold for which the log rolled, or by a sync that began before space was reserved that no record used.
fn with_an_empty_segment(sizes: Sizes, by_fold: bool, is_synced_after: bool) -> (Crashable, Model) {
    let directory = directory();
    let recorder = Arc::new(Recorder::default());
    let mut log = open_with(directory.path(), options(sizes, false, &recorder)).unwrap().log;
    let mut model = Model::default();
    (0..3).for_each(|seed| model.publish(&mut log, &[1], message(100, seed)).unwrap());
    let large = message(9000, 4);
    if by_fold {
        let ticket = log.begin_whole_fold().unwrap().unwrap();
        model.publish(&mut log, &[1], large).unwrap();
        let folded = ticket.perform().unwrap();
        log.finish_fold(folded).perform().unwrap();
    } else {
        log.write().unwrap();
        let position = log.begin_sync().unwrap().perform().unwrap();
        log.reserve(&Payload::new(b"", b"", b"", &[0; 3000]).unwrap(), 1).unwrap();
        model.publish(&mut log, &[1], large).unwrap();
        log.finish_sync(position);
    }
    log.write().unwrap();
    if is_synced_after {
        sync(&mut log);
    }
    let mut disk = Crashable::default();
    recorder.steps().iter().for_each(|step| disk.apply(step));
    (disk, model)
}

/// A segment in which nothing was written, as the next record did not fit, ends where it begins. A sync up to there did
/// not reach its header, and none after it did: a start after a power failure reported corruption where nothing was
/// lost.
#[test]
fn an_empty_segment_is_not_taken_for_a_corrupt_one_when_the_power_fails() {
    for sizes in SMALL.map(Sizes::of) {
        for (by_fold, is_synced_after) in [(true, true), (false, true), (true, false), (false, false)] {
            let (disk, model) = with_an_empty_segment(sizes, by_fold, is_synced_after);
            for seed in 0..200 {
                let image = disk.crash(Crash::PowerKeepsSome, &mut Dice::new(seed));
                let after = directory();
                image.write_to(after.path());

                let opened = open_with(after.path(), LogOptions { raise: true, ..LogOptions::default() }).unwrap();

                assert_eq!(opened.quarantined, [], "seed {seed}, fold {by_fold}, sync {is_synced_after}");
                if is_synced_after {
                    let mut model = model.clone();
                    model.raise();
                    model.check_state(&opened.state);
                    check_messages(&model, &opened.log);
                }
            }
        }
    }
}

#[test]
fn whatever_a_crash_leaves_holds_what_was_confirmed_and_nothing_that_was_not_written() {
    let (cases_min, first) = (from_environment("REPLAY_CASES", 2000), from_environment("REPLAY_SEED", 1));
    let (mut cases, mut seed) = (0, first);
    while cases < cases_min {
        cases += Replay::of(seed).cases;
        seed += 1;
    }
    println!("{cases} directories opened, of the runs of seeds {first} to {}", seed - 1);
}
