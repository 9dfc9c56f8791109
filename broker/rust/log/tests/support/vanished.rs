//! Logs whose segments vanish while they are stopped, and the reports of starts.

use std::path::{Path, PathBuf};

use penstock_log::{Corruption, Log, Opened, Outcome, Quarantined, Retired};
use penstock_queue::{QueueId, Sequence};

use super::{Model, compact_all, fold, message, open};

pub fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

/// A closed log of two queues in several segments.
pub fn closed(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..100 {
        model.publish(&mut log, &[1 + u64::from(seed % 2)], message(100, seed)).unwrap();
    }
    log.close().unwrap();
    model
}

/// How many of the model's messages have a record.
pub fn stored(opened: &Opened, model: &Model) -> u64 {
    let all = model.queues.iter().flat_map(|(&id, queue)| queue.messages.keys().map(move |&number| (id, number)));
    let is_stored = |&(id, number): &(u64, u64)| opened.log.locate(QueueId(id), Sequence(number), 1).unwrap().is_some();
    all.filter(is_stored).count() as u64
}

/// The files that a start reports as missing, with the number of their messages.
pub fn gone(opened: &Opened) -> Vec<(String, u64)> {
    let report = |found: &Quarantined| match found.why {
        Corruption::Gone(missing) => (found.file.clone(), missing.messages),
        _ => panic!("{found:?}"),
    };
    opened.quarantined.iter().map(report).collect()
}

/// Settles three in four of the first queue and compacts the rest.
pub fn thin(log: &mut Log, model: &mut Model) {
    let count = model.queues[&1].messages.len();
    let picks: Vec<usize> = (0..count).filter(|at| at % 4 != 0).collect();
    model.settle(log, 1, Outcome::Ack, &picks);
    for seed in 0..30 {
        model.publish(log, &[2], message(100, seed)).unwrap();
    }
    for _ in 0..3 {
        for seed in 0..30 {
            model.publish(log, &[2], message(100, seed)).unwrap();
        }
        log.write().unwrap();
        fold(log).map(Retired::perform).transpose().unwrap();
        compact_all(log);
    }
}
