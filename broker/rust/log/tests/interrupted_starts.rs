//! Starts that end by a power failure: their removals and renames may be on the disk without those of the process
//! before them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Log, Outcome, Retired};
use penstock_queue::QueueId;
use support::crashed::{Crash, Crashable};
use support::dice::Dice;
use support::load::{Sizes, options};
use support::recorder::{Recorder, Step};
use support::{Model, ModelQueue, compact, fold, message, sync};

const SLOW: u64 = 1;
const FAST: u64 = 2;

/// A log with few live messages, which was compacted.
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

/// A killed process had renamed a manifest whose name was not on the disk yet. The start after it removed the segments
/// that this manifest replaces; the power failed and left the older manifest, or none, and live messages were lost.
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
    let mut disk = disk.of_next_boot(&image, Crash::Kill);
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

/// A start reported a corrupt record that no sync had covered and went on after it. Its position in `synced` was not on
/// the disk when the power failed: the next start took the record for the torn tail of the log, and dropped records
/// that had been confirmed since, without a report.
#[test]
fn what_was_confirmed_behind_corruption_is_there_when_the_power_fails() {
    let sizes = Sizes::of(2);
    let before = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::default());
    let mut log = Log::open(before.path(), options(sizes, false, &recorder)).unwrap().log;
    let mut model = Model::default();
    (0..10).for_each(|seed| model.publish(&mut log, &[SLOW], message(100, seed)).unwrap());
    log.write().unwrap();
    drop(log);
    let mut disk = Crashable::default();
    recorder.steps().iter().for_each(|step| disk.apply(step));
    let mut image = disk.crash(Crash::Kill, &mut Dice::new(1));
    image.files.get_mut("msgs.0000000001").unwrap()[120] ^= 1;
    let killed = tempfile::tempdir().unwrap();
    image.write_to(killed.path());
    // By then the system had written all of it back.
    let mut disk = Crashable::of(&image);
    let recorder = Arc::new(Recorder::after(&image, killed.path()));
    let mut opened = Log::open(killed.path(), options(sizes, false, &recorder)).unwrap();
    assert_eq!(opened.quarantined.len(), 1, "{:?}", opened.quarantined);
    let next = opened.state.queues[&QueueId(SLOW)].next.0;
    let mut since = Model::default();
    since.queues.insert(SLOW, Arc::new(ModelQueue { next, ..ModelQueue::default() }));
    (0..10).for_each(|seed| since.publish(&mut opened.log, &[SLOW], message(100, seed)).unwrap());
    opened.log.write().unwrap();
    sync(&mut opened.log);
    recorder.steps().iter().for_each(|step| disk.apply(step));

    let left = tempfile::tempdir().unwrap();
    let image = disk.crash(Crash::PowerKeepsNothing, &mut Dice::new(1));
    image.write_to(left.path());
    let opened = Log::open(left.path(), options(sizes, true, &Arc::new(Recorder::after(&image, left.path())))).unwrap();

    assert_eq!(opened.quarantined.len(), 1, "{:?}", opened.quarantined);
    assert_eq!(opened.set_aside, [""; 0]);
    since.check_messages(&opened.log);
}
