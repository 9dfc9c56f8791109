//! The log of a backup becomes that of a new replica: with an identity of its own, an epoch above all of the backup, and raised
//! sequences. A log that is not whole, or of another shard, is refused.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use penstock_log::{Begun, Log, LogOptions, Payload, Position, Target};
use penstock_queue::{QueueId, Sequence};
use penstock_replica::Settings;
use penstock_replication::{Identity, Now, OpenError, Options, ReplicatedLog, Restoring, prepare_restored};

const LOG_ID: [u8; 16] = [9; 16];
const QUEUE: QueueId = QueueId(1);
const OLD_EPOCH: u64 = (7 << 20) + 5;

fn restoring(jump: u32) -> Restoring {
    Restoring { log_id: LOG_ID, replica: 42, jump, raises_sequences: true, unix_ms: 1 }
}

/// A backup with three messages, and another message that came later; returns the position of the backup.
fn back_up(log: &Path, target: &Path) -> Position {
    let options = LogOptions { log_id: Some(LOG_ID), is_bounded: true, ..LogOptions::default() };
    let mut log = Log::open(log, options).unwrap().log;
    log.follow_epoch(OLD_EPOCH, 0, Begun::default()).unwrap();
    for sequence in 1..=3 {
        append(&mut log, sequence);
    }
    let ticket = log.begin_backup().unwrap();
    let position = ticket.position();
    append(&mut log, 4);
    ticket.perform(target).unwrap();
    position
}

fn append(log: &mut Log, sequence: u64) {
    let payload = Payload::new(b"", b"", b"", b"body").unwrap();
    log.append_message(&payload, 1, &[Target { queue: QUEUE, sequence: Sequence(sequence) }]).unwrap();
    let end = log.write().unwrap();
    log.set_bound(end).unwrap();
}

fn open(directory: &Path) -> Result<ReplicatedLog, OpenError> {
    let options = Options {
        broker: 1,
        boot: 7,
        new_replica: 1,
        log_id: LOG_ID,
        log: LogOptions { raise: true, ..LogOptions::default() },
        settings: Settings::default(),
    };
    Ok(ReplicatedLog::open(directory, options, Now::default())?.0)
}

#[test]
fn a_restored_log_is_of_a_new_replica_with_a_higher_epoch_and_raised_sequences() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let position = back_up(from.path(), to.path());

    let epoch = prepare_restored(to.path(), restoring(3)).unwrap();

    assert_eq!(epoch, (7 + 1 + 3) << 20);
    assert_eq!(Identity::read(to.path()).unwrap(), Some(Identity { replica: 42, promised: 0 }));
    let mut replica = open(to.path()).unwrap();
    assert_eq!((replica.id(), replica.replicator().promised()), (42, epoch));
    assert_eq!(replica.log().bound(), position);
    let state = replica.log().begin_state().unwrap().perform().unwrap();
    assert!(state.queues[&QUEUE].next > Sequence(1 << 32), "{:?}", state.queues[&QUEUE].next);
}

#[test]
fn two_restores_of_a_backup_have_different_epochs() {
    let from = tempfile::tempdir().unwrap();
    let epochs: Vec<u64> = [0, (1 << 20) - 1, u32::MAX]
        .into_iter()
        .map(|jump| {
            let to = tempfile::tempdir().unwrap();
            let source = tempfile::tempdir_in(from.path()).unwrap();
            back_up(source.path(), to.path());
            prepare_restored(to.path(), restoring(jump)).unwrap()
        })
        .collect();

    assert_eq!(epochs[0], 8 << 20);
    assert_eq!(epochs[1], (8 + (1 << 20) - 1) << 20);
    assert_eq!(epochs[2], epochs[1], "higher bits do not count");
}

#[test]
fn a_log_of_another_shard_is_refused_and_gets_no_identity() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    back_up(from.path(), to.path());

    let refused = prepare_restored(to.path(), Restoring { log_id: [8; 16], ..restoring(0) });

    assert!(matches!(refused, Err(OpenError::Log(_))), "{refused:?}");
    assert_eq!(Identity::read(to.path()).unwrap(), None);
}
