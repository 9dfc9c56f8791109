//! A replica that owns its log.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_log::{CheckedRecords, DecodeError, FoldState, Format, Log, LogError, LogOptions, Position};
use penstock_replica::{Message, ReplicaId, Role, ShardRecord};

use crate::error::OpenError;
use crate::install;
use crate::promise_file::PromiseFile;
use crate::publishes::Token;
use crate::replicator::{Input, Now, Options, Output, Replicator};
use crate::shipping::{Sent, Shipment, Shipped};

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("this replica takes no publishes: another one leads the shard, or is about to")]
    NotLeading,
    #[error(transparent)]
    Log(#[from] LogError),
}

/// One replica of a shard; see the crate.
#[derive(Debug)]
pub struct ReplicatedLog {
    log: Log,
    replicator: Replicator,
}

impl ReplicatedLog {
    /// Opens the replica in a directory; returns it with the state of its queues at the high watermark.
    ///
    /// # Errors
    /// `RecordsLost` and `LogGone` where the disk has lost what it had: such a replica may lack committed records, so it has to begin anew.
    pub fn open(directory: &Path, options: Options, now: Now) -> Result<(ReplicatedLog, FoldState), OpenError> {
        let disk = Arc::clone(&options.log.disk);
        install::complete(disk.as_ref(), directory)?;
        let promise_file = PromiseFile::find(directory, &disk)?;
        let promised = promise_file.as_ref().map_or(0, PromiseFile::promised);
        // Before it makes files. Without a promise it has acknowledged nothing.
        if promised > 0 && !install::has_log(directory)? {
            return Err(OpenError::LogGone { path: directory.to_owned(), promised });
        }
        let log_id = Some(options.log_id);
        let log_options = LogOptions { is_bounded: true, format: Format::Two, log_id, ..options.log };
        let opened = Log::open(directory, log_options)?;
        if let Some(lost) = opened.quarantined.first() {
            let (file, at) = (lost.file.clone(), lost.at);
            return Err(OpenError::RecordsLost { path: directory.to_owned(), file, at });
        }
        let promise_file = match promise_file {
            Some(found) => found,
            None => {
                opened.log.store_synced()?;
                PromiseFile::make(directory, disk, options.new_replica)?
            }
        };
        let me = (options.broker, options.boot);
        let replicator = Replicator::new(&opened.log, promise_file, me, options.settings, now);
        Ok((ReplicatedLog { log: opened.log, replicator }, opened.state))
    }

    /// A replica and the log that it was opened with, which another owner had meanwhile.
    #[must_use]
    pub fn of(log: Log, replicator: Replicator) -> ReplicatedLog {
        ReplicatedLog { log, replicator }
    }

    /// The log, for another owner, and the replica that goes on with it.
    #[must_use]
    pub fn into_parts(self) -> (Log, Replicator) {
        (self.log, self.replicator)
    }

    /// The log, and the replica beside it.
    pub fn parts(&mut self) -> (&mut Log, &mut Replicator) {
        (&mut self.log, &mut self.replicator)
    }

    #[must_use]
    pub fn replicator(&self) -> &Replicator {
        &self.replicator
    }

    /// The log, to read messages below the high watermark, and to fold and compact it.
    pub fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    /// The identity of the replica's disk.
    #[must_use]
    pub fn id(&self) -> ReplicaId {
        self.replicator.id()
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.replicator.role()
    }

    /// The record of the shard, as last read or watched.
    #[must_use]
    pub fn record(&self) -> Option<&ShardRecord> {
        self.replicator.record()
    }

    /// Checks the bytes that came beside a message. This needs no lock. `None` where none belong to it.
    ///
    /// # Errors
    /// Why they are not the records that the message names. Drop both then; they are sent again.
    pub fn check(log_id: &[u8; 16], message: &Message, bytes: Bytes) -> Result<Option<CheckedRecords>, DecodeError> {
        let &Message::Append { after, until, of, .. } = message else { return Ok(None) };
        let records = CheckedRecords::check(log_id, of, Position(after), bytes)?;
        if records.until().0 == until { Ok(Some(records)) } else { Err(DecodeError::Length) }
    }

    /// Appends records as the leader. The publish ends by [`Output::Ended`] with its token; [`ReplicatedLog::flush`] sends it on its way, after
    /// one or many.
    ///
    /// # Errors
    /// `NotLeading` where another replica leads; those of the log.
    pub fn append(
        &mut self,
        publish: Token,
        append: impl FnOnce(&mut Log) -> Result<Position, LogError>,
    ) -> Result<Position, AppendError> {
        if !matches!(self.role(), Role::Leader { appends: true, .. }) {
            return Err(AppendError::NotLeading);
        }
        let end = append(&mut self.log)?;
        self.replicator.await_outcome(end, publish);
        Ok(end)
    }

    /// Writes what was appended, and has it synced and sent.
    pub fn flush(&mut self, now: Now) -> Vec<Output> {
        self.replicator.flush(&mut self.log, now)
    }

    /// Takes an event; returns what is to be done, in order.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Output> {
        self.replicator.step(&mut self.log, now, input)
    }

    /// See [`Replicator::begin_shipment`].
    pub fn begin_shipment(&mut self, to: ReplicaId) -> (Option<Shipment>, Vec<Output>) {
        self.replicator.begin_shipment(&mut self.log, to)
    }

    /// See [`Replicator::finish_shipment`].
    pub fn finish_shipment(&mut self, now: Now, shipped: Shipped) -> (Option<Sent>, Vec<Output>) {
        self.replicator.finish_shipment(&mut self.log, now, shipped)
    }
}
