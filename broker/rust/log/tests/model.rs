//! Random use of a log, with kills, power failures and closes in between, against a plain model of its queues.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{Format, Log, LogOptions, Opened, Outcome, Position};
use proptest::prelude::*;
use support::{ForgetfulDisk, Model, epoch_record_bytes, fold, message, open_with, small_segments, sync};

#[derive(Clone, Debug)]
enum Step {
    Publish { queues: Vec<u64>, body_bytes: usize, seed: u8 },
    Settle { queue: u64, outcome: Outcome, picks: Vec<usize> },
    Purge { queue: u64 },
    Delete { queue: u64 },
    Write,
    Sync,
    Fold { removes: bool },
    Compact { bytes: u64 },
    CompactUntilPowerFails { steps: usize },
    UnmapIdle,
    Kill,
    FailPower,
    Close,
    KillAndRaise,
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::One), Just(Format::Two)]
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Ack), Just(Outcome::Drop), Just(Outcome::Expire), Just(Outcome::Requeue)]
}

fn steps(removes: bool) -> impl Strategy<Value = Vec<Step>> {
    let queues = prop::sample::subsequence(vec![1_u64, 2, 3, 4], 1..=4);
    let body = prop_oneof![20 => 0..200_usize, 1 => 3000..6000_usize];
    let step = prop_oneof![
        12 => (queues, body, any::<u8>()).prop_map(|(queues, body_bytes, seed)| Step::Publish { queues, body_bytes, seed }),
        6 => (1..5_u64, outcomes(), prop::collection::vec(0..40_usize, 1..12))
            .prop_map(|(queue, outcome, picks)| Step::Settle { queue, outcome, picks }),
        1 => (1..5_u64).prop_map(|queue| Step::Purge { queue }),
        1 => (1..5_u64).prop_map(|queue| Step::Delete { queue }),
        6 => Just(Step::Write),
        2 => Just(Step::Sync),
        3 => Just(Step::Fold { removes }),
        3 => (1..2000_u64).prop_map(|bytes| Step::Compact { bytes }),
        1 => (0..40_usize).prop_map(|steps| Step::CompactUntilPowerFails { steps }),
        1 => Just(Step::UnmapIdle),
        1 => Just(Step::Kill),
        1 => Just(Step::FailPower),
        1 => Just(Step::Close),
        1 => Just(Step::KillAndRaise),
    ];
    prop::collection::vec(step, 1..120)
}

/// The log under test with its expected state after each record.
struct Run<'a> {
    directory: &'a Path,
    format: Format,
    disk: Arc<ForgetfulDisk>,
    log: Option<Log>,
    model: Model,
    history: Vec<(Position, Model)>,
    /// Queue numbers are never reused, so a deleted one's is replaced by a new one.
    ids: [u64; 5],
}

impl<'a> Run<'a> {
    fn new(directory: &'a Path, format: Format, keeps_renames: bool) -> Run<'a> {
        let disk = Arc::new(ForgetfulDisk::default());
        disk.keeps_renames.store(keeps_renames, Ordering::SeqCst);
        let mut run = Run {
            directory,
            format,
            disk,
            log: None,
            model: Model::default(),
            history: Vec::new(),
            ids: first_ids(format),
        };
        run.history.push((Position(0), Model::default()));
        run.reopen(false);
        run
    }

    fn options(&self, raise: bool) -> LogOptions {
        let disk = Arc::clone(&self.disk);
        LogOptions { raise, disk, format: self.format, ..small_segments() }
    }

    fn reopen(&mut self, raise: bool) -> Position {
        let Opened { log, state, recovery, quarantined, .. } = open_with(self.directory, self.options(raise)).unwrap();
        assert_eq!(quarantined, [], "no disk changed a byte");
        let end = Position(state.position.0 - epoch_record_bytes(self.format));
        let (_, model) = self.history.iter().rev().find(|(position, _)| *position == end).expect("a record ends there");
        self.model = model.clone();
        if raise || recovery.torn_bytes > 0 {
            self.model.raise();
        }
        self.model.check_state(&state);
        self.model.check_messages(&log);
        self.history.push((state.position, self.model.clone()));
        self.log = Some(log);
        end
    }

    fn step(&mut self, step: Step) {
        let log = self.log.as_mut().unwrap();
        let id = |queue: u64| self.ids[queue as usize];
        match step {
            Step::Publish { queues, body_bytes, seed } => {
                let queues: Vec<u64> = queues.into_iter().map(id).collect();
                self.model.publish(log, &queues, message(body_bytes, seed)).unwrap();
            }
            Step::Settle { queue, outcome, picks } => self.model.settle(log, id(queue), outcome, &picks),
            Step::Purge { queue } => self.model.purge(log, id(queue)),
            Step::Delete { queue } => {
                self.model.delete(log, id(queue));
                self.ids[queue as usize] = self.ids.iter().max().unwrap() + 1;
            }
            Step::Write => {
                assert_eq!(log.write().unwrap(), log.end());
                self.model.check_messages(log);
            }
            Step::Sync => sync(log),
            Step::Fold { removes } => {
                let before = log.synced();
                let retired = fold(log);
                assert!(log.synced() >= before);
                if removes {
                    retired.map(penstock_log::Retired::perform).transpose().unwrap();
                }
            }
            Step::Compact { bytes } => {
                support::compact(log, bytes).unwrap();
                log.write().unwrap();
                self.model.check_messages(log);
            }
            Step::UnmapIdle => drop(log.unmap_idle()),
            Step::CompactUntilPowerFails { .. } | Step::Kill | Step::KillAndRaise | Step::FailPower | Step::Close => {
                self.stop(&step)
            }
        }
        if let Some(log) = &self.log {
            assert!(log.synced() <= log.end());
            self.history.push((log.end(), self.model.clone()));
        }
    }

    fn stop(&mut self, step: &Step) {
        let mut log = self.log.take().unwrap();
        let (synced, end) = (log.synced(), log.end());
        match step {
            Step::Close => {
                log.close().unwrap();
                assert_eq!(self.reopen(false), end);
            }
            Step::FailPower | Step::CompactUntilPowerFails { .. } => {
                if let Step::CompactUntilPowerFails { steps } = step {
                    self.disk.fail_after(*steps);
                    let folded = log.begin_fold().map_or(Ok(()), |ticket| log.finish_fold(ticket.perform()?).perform());
                    while folded.is_ok() && support::compact(&mut log, 700).is_ok_and(|more| more) {}
                }
                drop(log);
                self.disk.fail_power(self.directory);
                assert!(self.reopen(true) >= synced, "something confirmed as synced is gone");
            }
            _ => {
                drop(log);
                assert!(self.reopen(matches!(step, Step::KillAndRaise)) >= synced);
            }
        }
    }
}

/// Numbers on both sides of 2^32, where the format has them.
fn first_ids(format: Format) -> [u64; 5] {
    [0, 1, 2, 3, 4].map(|place| if format == Format::One { place } else { (1 << 32) - 3 + place })
}

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(64)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn after_any_stop_the_log_holds_what_the_model_does(
        steps in steps(true), keeps_renames in any::<bool>(), format in formats(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut run = Run::new(directory.path(), format, keeps_renames);
        for step in steps {
            run.step(step);
        }
        run.stop(&Step::Close);
    }

    #[test]
    fn folding_from_the_beginning_gives_what_the_checkpoints_do(steps in steps(false), format in formats()) {
        let directory = tempfile::tempdir().unwrap();
        let mut run = Run::new(directory.path(), format, false);
        let forgets = |step: &Step| {
            matches!(
                step,
                Step::FailPower | Step::Close | Step::Compact { .. } | Step::CompactUntilPowerFails { .. }
            )
        };
        for step in steps.into_iter().filter(|step| !forgets(step)) {
            run.step(step);
        }
        let mut log = run.log.take().unwrap();
        log.write().unwrap();
        drop(log);
        let copy = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !name.starts_with("checkpoint") && !name.ends_with(".idx") {
                std::fs::copy(&path, copy.path().join(name)).unwrap();
            }
        }

        // Epochs that begin now would differ.
        let [with, without] = [&directory, &copy].map(|at| Log::open(at.path(), small_segments()).unwrap());

        prop_assert_eq!(&with.state, &without.state);
        run.model.check_state(&without.state);
        run.model.check_messages(&without.log);
    }
}
