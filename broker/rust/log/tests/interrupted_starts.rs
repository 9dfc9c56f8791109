//! Starts that the power ends: what they removed and renamed may be on the disk without what the process before them did.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Log, Outcome, Retired};
use support::crashed::{Crash, Crashable};
use support::dice::Dice;
use support::load::{Sizes, options};
use support::recorder::{Recorder, Step};
use support::{Model, compact, fold, message, sync};

const SLOW: u32 = 1;
const FAST: u32 = 2;

/// A log of which few messages live, and which was compacted.
fn compacted_log(directory: &Path, recorder: &Arc<Recorder>) -> Model {
    let mut log = Log::open(directory, options(Sizes::of(2), false, recorder)).unwrap().log;
    let mut model = Model::default();
    for seed in 0..200 {
        let queue = if seed % 10 == 0 { SLOW } else { FAST };
        model.publish(&mut log, &[queue], message(100, seed)).unwrap();
        model.settle(&mut log, FAST, Outcome::Ack, &[0]);
        log.write().unwrap();
        fold(&mut log).map(Retired::perform).transpose().unwrap();
    }
    sync(&mut log);
    while compact(&mut log, 1 << 20).unwrap() {}
    model
}

/// A killed process had renamed a manifest whose name was not on the disk yet. The start after it removed the segments that
/// this manifest replaces; the power failed and left the older manifest, or none, and messages that lived were gone.
#[test]
fn a_start_removes_what_a_manifest_replaces_when_the_manifest_is_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let mut model = compacted_log(directory.path(), &recorder);
    let steps = recorder.steps();
    let is_renamed = |step: &Step| matches!(step, Step::Rename { to, .. } if to == "manifest");
    let renamed = steps.iter().position(is_renamed).expect("segments were rewritten");
    let mut disk = Crashable::default();
    steps[..=renamed].iter().for_each(|step| disk.apply(step));
    let mut dice = Dice::new(1);
    let image = disk.crash(Crash::Kill, &mut dice);
    let mut disk = disk.of_next_life(&image, Crash::Kill);
    let killed = tempfile::tempdir().unwrap();
    image.write_to(killed.path());
    let recorder = Arc::new(Recorder::after_files(&image, killed.path(), disk.file_count()));
    drop(Log::open(killed.path(), options(Sizes::of(2), false, &recorder)).unwrap());
    let removed = recorder.steps().iter().filter(|step| matches!(step, Step::Unlink { .. })).count();
    assert!(removed > 0, "the start had something to remove");
    model.raise();

    for step in recorder.steps() {
        disk.apply(&step);
        for _ in 0..8 {
            let left = tempfile::tempdir().unwrap();
            let image = disk.crash(Crash::PowerKeepsSome, &mut dice);
            image.write_to(left.path());
            let recorder = Arc::new(Recorder::after(&image, left.path()));

            let opened = Log::open(left.path(), options(Sizes::of(2), true, &recorder)).unwrap();

            assert_eq!(opened.quarantined, []);
            model.check_state(&opened.state);
            model.check_messages(&opened.log);
        }
    }
}
