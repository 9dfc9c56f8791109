//! A start gives the positions of removed segments to the segment before them, which may have a torn tail: nothing takes that for corruption, nor for
//! records.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{CorruptAt, Log, LogError, Outcome, Position, RealDisk, Records, ScrubPlace};
use support::replicas::{Replica, Step, directory};
use support::vanished::segment;
use tempfile::TempDir;

const SIZES: (u64, u64) = (512, 4096);

struct Gap {
    directory: TempDir,
    /// Started again after segments were removed.
    replica: Replica,
    /// Where the records of the segment with the torn tail end, and the next ones that the log still has begin.
    from: Position,
    to: Position,
    /// The segment with the torn tail, and where its last message begins: in it, and in the log.
    path: PathBuf,
    last: u64,
    last_position: Position,
}

fn publish(queue: u64, seed: u8) -> Step {
    Step::Publish { queues: vec![queue], body_bytes: 200, seed }
}

/// A log whose power failed in the middle of a write: of the last message, only the body is torn. What was appended afterwards was removed.
fn with_gap() -> Gap {
    let (before, directory) = (directory(), directory());
    let mut replica = Replica::open(before.path(), SIZES, Arc::new(RealDisk));
    replica.append_all(&[Step::Epoch]);
    replica.append_all(&(0..5).map(|seed| publish(1, seed)).collect::<Vec<_>>());
    support::sync(&mut replica.log);
    let last = *replica.past.keys().rev().nth(1).unwrap();
    let torn = replica.log.end();
    replica.append_all(&[publish(1, 5)]);
    for entry in std::fs::read_dir(before.path()).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
    }
    let path = (1..20).map(|number| segment(directory.path(), number)).rfind(|path| path.exists()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let first = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let end = (64 + replica.log.end().0 - first) as usize;
    bytes[end - 50..end].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let mut started = Replica::open(directory.path(), SIZES, Arc::new(RealDisk));
    assert_eq!(started.log.end(), torn, "a torn tail");
    started.skip_epochs_to(&replica);
    started.past = replica.past.range(..=torn).map(|(&end, model)| (end, model.clone())).collect();
    started.append_all(&[Step::Epoch]);
    started.append_all(&(0..90).map(|seed| publish(2, seed)).collect::<Vec<_>>());
    started.append_all(&[Step::Settle { queue: 2, outcome: Outcome::Ack, picks: (0..90).collect() }]);
    let to = started.log.end();
    started.append_all(&(0..90).map(|seed| publish(3, seed)).collect::<Vec<_>>());
    remove_dead(&mut started.log);
    started.reopen();
    Gap { directory, replica: started, from: torn, to, path, last: 64 + last.0 - first, last_position: last }
}

/// Removes segments without a live message, and rewrites none.
fn remove_dead(log: &mut Log) {
    log.set_bound(log.end()).unwrap();
    support::sync(log);
    for _ in 0..2 {
        if let Some(ticket) = log.begin_whole_fold().unwrap() {
            log.finish_fold(ticket.perform().unwrap()).perform().unwrap();
        }
    }
}

/// A whole round.
fn scrub(log: &Log, bytes_max: usize) -> Result<(), CorruptAt> {
    let mut place = ScrubPlace::default();
    while let Some(ticket) = log.begin_scrub(place)? {
        place = ticket.perform(bytes_max)?.0;
    }
    Ok(())
}

/// The check of a leader before it sends its files.
fn check_files(log: &mut Log) -> Result<(), CorruptAt> {
    let mut reader = log.begin_backup().unwrap().open().unwrap();
    (0..reader.files().len()).try_for_each(|index| reader.check(index, u64::MAX))
}

fn records(log: &Log, after: Position) -> Result<Option<Records>, LogError> {
    let ticket = log.begin_records(after, log.end())?;
    Ok(ticket.map(|ticket| ticket.perform(1 << 20)).transpose()?.flatten())
}

fn change(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn checks_of_the_disk_take_no_torn_tail_for_corruption() {
    let mut gap = with_gap();

    for bytes_max in [1, 500, 1 << 20] {
        scrub(&gap.replica.log, bytes_max).unwrap();
    }
    check_files(&mut gap.replica.log).unwrap();

    change(&gap.path, gap.last + 100);
    let found = scrub(&gap.replica.log, 1 << 20).unwrap_err();
    assert_eq!((found.at, segment_of(&gap, &found)), (gap.last, gap.path.clone()));
    assert_eq!(check_files(&mut gap.replica.log).unwrap_err().at, gap.last);
}

fn segment_of(gap: &Gap, found: &CorruptAt) -> PathBuf {
    gap.directory.path().join(&found.file)
}

#[test]
fn a_check_ends_well_whose_segment_is_removed_meanwhile() {
    let mut gap = with_gap();
    let mut place = ScrubPlace::default();
    let ticket = loop {
        let ticket = gap.replica.log.begin_scrub(place).unwrap().unwrap();
        if format!("{ticket:?}").contains(&format!("{:?}", gap.path)) {
            break ticket;
        }
        place = ticket.perform(1 << 20).unwrap().0;
    };

    gap.replica.append_all(&[Step::Epoch]);
    gap.replica.append_all(&[Step::Delete { queue: 1 }]);
    gap.replica.append_all(&(0..90).map(|seed| publish(3, seed)).collect::<Vec<_>>());
    remove_dead(&mut gap.replica.log);

    assert!(!gap.path.exists());
    ticket.perform(1 << 20).unwrap();
}

/// Its head is whole, and another replica has another record there.
#[test]
fn lists_have_no_record_of_a_torn_tail() {
    let gap = with_gap();
    let log = &gap.replica.log;

    let (mut from, mut listed) = (Position(0), Vec::new());
    loop {
        let found = log.begin_listing(from..log.end()).unwrap().perform(1000).unwrap();
        if found.until == from {
            break;
        }
        from = found.until;
        listed.extend(found.records);
    }

    assert!(listed.iter().any(|(position, _)| *position < gap.from));
    assert!(listed.iter().all(|(position, _)| *position < gap.from || *position >= gap.to), "{listed:?}");
    assert_eq!(log.begin_checksums(Position(0)..log.end()).unwrap().perform().unwrap(), listed);
}

/// A follower that lags wants records that are gone. Its leader halted with a corrupt log.
#[test]
fn records_of_removed_segments_are_not_there() {
    let gap = with_gap();
    let log = &gap.replica.log;

    for after in (gap.from.0..gap.to.0).step_by(97) {
        assert_eq!(records(log, Position(after)).unwrap(), None, "{after}");
    }
    let found = records(log, gap.last_position).unwrap().unwrap();
    assert_eq!((found.after, found.until), (gap.last_position, gap.from));
}
