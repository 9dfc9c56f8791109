//! Replicas of a log: each gets the same records and epochs, in segments of its own sizes.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Begun, Disk, Format, Log, LogOptions, Outcome, Position};
use proptest::prelude::*;
use tempfile::TempDir;

use super::{Model, compact_all, message, open_with, sync};

/// A record.
#[derive(Clone, Debug)]
pub enum Step {
    Publish {
        queues: Vec<u64>,
        body_bytes: usize,
        seed: u8,
    },
    Settle {
        queue: u64,
        outcome: Outcome,
        picks: Vec<usize>,
    },
    /// An envelope.
    Move {
        from: u64,
        to: u64,
        pick: usize,
    },
    Delete {
        queue: u64,
    },
    Mark {
        seed: u8,
    },
    Epoch,
}

pub fn steps(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let queues = prop::sample::subsequence(vec![1_u64, 2, 3, 4], 1..=4);
    let body = prop_oneof![20 => 0..200_usize, 1 => 3000..6000_usize];
    let outcome = prop_oneof![4 => Just(Outcome::Ack), 1 => Just(Outcome::Requeue)];
    let step = prop_oneof![
        12 => (queues, body, any::<u8>()).prop_map(|(queues, body_bytes, seed)| Step::Publish { queues, body_bytes, seed }),
        8 => (1..5_u64, outcome, prop::collection::vec(0..40_usize, 1..12))
            .prop_map(|(queue, outcome, picks)| Step::Settle { queue, outcome, picks }),
        3 => (1..5_u64, 1..5_u64, 0..40_usize).prop_map(|(from, to, pick)| Step::Move { from, to, pick }),
        1 => (1..5_u64).prop_map(|queue| Step::Delete { queue }),
        1 => any::<u8>().prop_map(|seed| Step::Mark { seed }),
        1 => Just(Step::Epoch),
    ];
    prop::collection::vec(step, count)
}

/// Segments of a sector and more, or of pages.
pub fn sizes() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![Just((512, 4096)), Just((4096, 32 << 10))]
}

/// The number of an epoch that a leader begins.
pub fn epoch(count: u64) -> u64 {
    ((count + 10) << 32) | (count * 7919 % 1000)
}

/// In memory where possible: these tests do not depend on the machine's disk.
pub fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// A directory with a log that has one epoch, to be copied: replicas have the log's id from there.
pub fn first_of_all() -> TempDir {
    let directory = directory();
    let options = LogOptions { format: Format::Two, ..LogOptions::default() };
    open_with(directory.path(), options).unwrap().log.close().unwrap();
    directory
}

/// A log that follows; see the module.
pub struct Replica {
    pub directory: PathBuf,
    options: LogOptions,
    pub log: Log,
    /// The content at the ends of records.
    pub past: BTreeMap<Position, Model>,
    epochs: u64,
}

impl Replica {
    /// Opens a copy of a directory.
    pub fn copy_of(first: &Path, directory: &Path, sizes: (u64, u64)) -> Replica {
        for entry in std::fs::read_dir(first).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), directory.join(entry.file_name())).unwrap();
        }
        Replica::open(directory, sizes, Arc::new(penstock_log::RealDisk))
    }

    pub fn open(directory: &Path, (segment_bytes_min, segment_bytes_max): (u64, u64), disk: Arc<dyn Disk>) -> Replica {
        let format = Format::Two;
        let options = LogOptions {
            segment_bytes_min,
            segment_bytes_max,
            format,
            is_bounded: true,
            disk,
            ..LogOptions::default()
        };
        let log = Log::open(directory, options.clone()).unwrap().log;
        let past = BTreeMap::from([(log.end(), Model::default())]);
        Replica { directory: directory.to_owned(), options, log, past, epochs: 0 }
    }

    pub fn model(&self) -> &Model {
        self.past.last_key_value().unwrap().1
    }

    /// The content below a position.
    pub fn model_at(&self, position: Position) -> &Model {
        self.past.range(..=position).next_back().unwrap().1
    }

    /// The ends of records from a position on.
    pub fn ends(&self, from: Position) -> Vec<Position> {
        self.past.range(from..).map(|(&end, _)| end).collect()
    }

    pub fn append_all(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.append(step));
        self.log.write().unwrap();
    }

    pub fn append(&mut self, step: &Step) {
        let mut model = self.model().clone();
        let log = &mut self.log;
        match step {
            Step::Publish { queues, body_bytes, seed } => {
                let queues: Vec<u64> = queues.iter().copied().filter(|id| !model.deleted.contains(id)).collect();
                if !queues.is_empty() {
                    model.publish(log, &queues, message(*body_bytes, *seed)).unwrap();
                }
            }
            Step::Settle { queue, outcome, picks } => model.settle(log, *queue, *outcome, picks),
            Step::Move { from, to, pick } if !model.deleted.contains(to) => {
                model.try_move(log, *from, *to, *pick).unwrap()
            }
            Step::Move { .. } => {}
            Step::Delete { queue } => model.delete(log, *queue),
            Step::Mark { seed } => model.put_mark(log, b"x", &[*seed % 3], &[*seed]).unwrap(),
            Step::Epoch => {
                self.epochs += 1;
                log.follow_epoch(epoch(self.epochs), 0, Begun::default()).unwrap();
            }
        }
        self.past.insert(self.log.end(), model);
    }

    /// Skips the epochs that another replica has had meanwhile.
    pub fn skip_epochs_to(&mut self, other: &Replica) {
        self.epochs = self.epochs.max(other.epochs);
    }

    pub fn truncate_to(&mut self, position: Position) {
        self.log.truncate_to(position).unwrap();
        self.past.split_off(&Position(position.0 + 1));
        assert_eq!(self.log.end(), position);
    }

    /// Goes on in the epoch that it was in, after a start.
    pub fn go_on(&mut self) {
        let end = self.log.end();
        assert_eq!(self.log.go_on_in_epoch(epoch(self.epochs)).unwrap(), end);
    }

    /// Opens it again as after a kill, or a close; returns the position of its state, which has the content there.
    pub fn reopen(&mut self) -> Position {
        let opened = Log::open(&self.directory, self.options.clone()).unwrap();
        assert_eq!(opened.quarantined, []);
        assert_eq!(opened.set_aside, Vec::<String>::new());
        assert_eq!(opened.recovery.torn_bytes, 0);
        self.model_at(opened.state.position).check_state(&opened.state);
        self.log = opened.log;
        opened.state.position
    }

    /// Everything is committed; folds and rewrites what it can.
    pub fn compact(&mut self) {
        self.log.write().unwrap();
        self.log.set_bound(self.log.end()).unwrap();
        sync(&mut self.log);
        for _ in 0..2 {
            if let Some(ticket) = self.log.begin_whole_fold().unwrap() {
                let folded = ticket.perform().unwrap();
                self.log.finish_fold(folded).perform().unwrap();
            }
        }
        compact_all(&mut self.log);
    }

    /// Positions and checksums of all records.
    pub fn list(&self) -> BTreeMap<Position, u32> {
        let ticket = self.log.begin_checksums(Position(0)..Position(u64::MAX)).unwrap();
        ticket.perform().unwrap().into_iter().collect()
    }

    /// Checks that exactly the messages below the bound can be found.
    pub fn check_bound(&self) {
        let bound = self.log.bound();
        self.model_at(bound).check_messages(&self.log);
        for (_, model) in self.past.range((Excluded(bound), Unbounded)) {
            self.check_hidden(model, self.model_at(bound));
        }
    }

    /// Checks that messages of a later content are not found.
    fn check_hidden(&self, later: &Model, at_bound: &Model) {
        use penstock_queue::{QueueId, Sequence};
        for (&queue, messages) in &later.queues {
            let next = at_bound.queues.get(&queue).map_or(1, |queue| queue.next);
            let id = QueueId(queue);
            for &number in messages.messages.keys().filter(|&&number| number >= next) {
                let from = Sequence(number);
                assert!(
                    self.log.locate(id, from, 9).unwrap().is_none(),
                    "message {number} of {queue} is above the bound"
                );
                assert!(self.log.seek(id, from, 9, 0).unwrap().is_none());
                assert_eq!(self.log.next_stored(id, from).unwrap(), None);
                assert!(self.log.portion(id, from).unwrap().is_none());
            }
        }
    }
}
