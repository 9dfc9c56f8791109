//! Any one disk step fails, or all from it on, in each way that steps fail: the log refuses or stops, a later start
//! finds everything that was promised, and the log goes on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::LogError;
use support::crashed::{Crash, Crashable};
use support::dice::Dice;
use support::load::{Load, Sizes, options, step};
use support::open_with;
use support::past::{At, Past};
use support::recorder::{Fault, Kind, Recorder};
use tempfile::TempDir;

const STEPS: usize = 40;
/// Where queues are many, each case takes longer.
const WIDE_STEPS: usize = 6;

fn directory() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Prints the injected fault when a check fails.
struct Case(u64, Fault);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: {:?}", self.0, self.1);
        }
    }
}

/// A load whose disk fails; returns the promises until it stopped or ended.
fn live(directory: &Path, recorder: &Arc<Recorder>, seed: u64) -> Past {
    let (load, _) = Load::begin(directory, recorder, seed, Past::default(), Crash::Kill);
    let is_wide = Sizes::of(seed).wide_queues > 0;
    for _ in 0..if is_wide { WIDE_STEPS } else { STEPS } {
        if load.lock().unwrap().is_over() {
            break;
        }
        // A step that fails for another reason may be retried.
        if let Err(LogError::Stopped { .. }) = step(&load) {
            break;
        }
    }
    recorder.set_between(None);
    load.lock().unwrap().past().clone()
}

/// Checks a start after a kill, and after some power failures; then the log goes on where the process died.
fn check(directory: &Path, recorder: &Arc<Recorder>, seed: u64, past: &Past) {
    let steps = recorder.count();
    let mut disk = Crashable::default();
    recorder.steps().iter().for_each(|step| disk.apply(step));
    let mut dice = Dice::new(seed);
    for crash in [Crash::PowerKeepsNothing, Crash::PowerKeepsSome] {
        let left = self::directory();
        let image = disk.crash(crash, &mut dice);
        image.write_to(left.path());
        let after = Arc::new(Recorder::after(&image, left.path()));
        let mut opened = open_with(left.path(), options(Sizes::of(seed), true, &after)).unwrap();
        let (_, mut model) = past.check(&opened, At::after(steps), crash);
        past.send_again(&mut model, &mut opened.log, At::after(steps));
    }
    let past = past.of_next_boot(At::after(steps), Crash::Kill);
    let (load, opened) = Load::begin(directory, recorder, seed, past, Crash::Kill);
    opened.unwrap();
    (0..8).for_each(|_| step(&load).unwrap());
    recorder.set_between(None);
    // Pages in the page cache after a failed sync are on the disk by now, or were never confirmed.
    let past = load.lock().unwrap().past().clone();
    recorder.steps().iter().skip(steps).for_each(|step| disk.apply(step));
    let left = self::directory();
    let image = disk.crash(Crash::PowerKeepsNothing, &mut dice);
    image.write_to(left.path());
    let after = Arc::new(Recorder::after(&image, left.path()));
    let mut opened = open_with(left.path(), options(Sizes::of(seed), true, &after)).unwrap();
    let at = At::after(recorder.count());
    let (_, mut model) = past.check(&opened, at, Crash::PowerKeepsNothing);
    past.send_again(&mut model, &mut opened.log, at);
}

/// The names of the steps that were made to fail.
fn sweep(seed: u64, times: usize) -> BTreeSet<&'static str> {
    let begun_count = {
        let (directory, recorder) = (directory(), Arc::new(Recorder::default()));
        live(directory.path(), &recorder, seed);
        recorder.begun_count()
    };
    let mut failed = BTreeSet::new();
    for after in 0..begun_count {
        for kind in Kind::ALL {
            let (directory, recorder) = (directory(), Arc::new(Recorder::default()));
            let case = Case(seed, Fault { after, times, kind });
            recorder.set_fault(Some(case.1));
            let past = live(directory.path(), &recorder, seed);
            recorder.set_fault(None);
            check(directory.path(), &recorder, seed, &past);
            failed.extend(recorder.failed());
        }
    }
    failed
}

#[test]
fn whichever_step_fails_once_nothing_promised_is_lost() {
    let mut failed = sweep(3, 1);
    failed.extend(sweep(6, 1));
    failed.extend(sweep(4, 1));

    let all = ["create", "open", "rename", "reserve", "sync", "sync of the directory", "unlink", "write"];
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), all, "each kind of step was met");
}

#[test]
fn a_disk_that_fails_from_some_step_on_loses_nothing_promised() {
    let mut failed = sweep(2, usize::MAX);
    failed.extend(sweep(4, usize::MAX));

    assert!(failed.len() > 4, "{failed:?}");
}
