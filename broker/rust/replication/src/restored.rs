//! The log of a backup, made the log of a replica on a new disk.
//!
//! Invariants: the replica has a new identity, and its log ends with an epoch that is above all others of the log by far: what the
//! shard had after the backup was written in epochs below. The identity is written last, so that a log that is not prepared is
//! of no replica.

use std::path::Path;
use std::sync::Arc;

use penstock_log::{Begun, Format, Log, LogOptions};
use penstock_replica::{Epoch, ReplicaId};

use crate::error::OpenError;
use crate::promise_file::PromiseFile;

/// An epoch by a restore is above those before by at least 2 to the power of this, as no count of elections is.
const EPOCH_BITS: u32 = 20;

/// How a log is prepared.
#[derive(Clone, Copy, Debug)]
pub struct Restoring {
    /// The id that the logs of all replicas of the shard have.
    pub log_id: [u8; 16],
    /// The identity of the disk. It is drawn.
    pub replica: ReplicaId,
    /// Drawn, too: two restores of one backup do not have the same epochs. Higher bits than [`EPOCH_BITS`] do not count.
    pub jump: u32,
    /// Whether the next sequence of every queue is raised: consumers may have seen messages that were stored after the backup.
    pub raises_sequences: bool,
    /// Since 1970.
    pub unix_ms: u64,
}

/// Prepares the log in a directory, which no replica has; returns the epoch that it ends with. Blocks until all is on the disk.
///
/// # Errors
/// `RecordsLost` where the backup is damaged; those of the log.
pub fn prepare_restored(directory: &Path, restoring: Restoring) -> Result<Epoch, OpenError> {
    let Restoring { log_id, replica, jump, raises_sequences, unix_ms } = restoring;
    let options = LogOptions {
        is_bounded: true,
        format: Format::Two,
        log_id: Some(log_id),
        raise: true,
        ..LogOptions::default()
    };
    let disk = Arc::clone(&options.disk);
    let mut opened = Log::open(directory, options)?;
    if let Some(lost) = opened.quarantined.first() {
        let (file, at) = (lost.file.clone(), lost.at);
        return Err(OpenError::RecordsLost { path: directory.to_owned(), file, at });
    }
    let newest = opened.log.epochs().iter().last().map_or(0, |(epoch, _)| epoch);
    let jump = u64::from(jump & ((1 << EPOCH_BITS) - 1));
    let epoch = ((newest >> EPOCH_BITS) + 1 + jump) << EPOCH_BITS;
    let begun = Begun { at_ms: unix_ms, leader: replica.to_le_bytes() };
    opened.log.follow_epoch(epoch, u8::from(raises_sequences), begun)?;
    opened.log.close()?;
    PromiseFile::make(directory, disk, replica)?;
    Ok(epoch)
}
