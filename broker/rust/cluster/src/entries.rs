//! A shard whose log has no queues but entries: contents in their order, as the metadata of a cluster is.
//!
//! An entry is a message for one queue of the log, and its sequence follows from its position: so a new leader needs no count. Other
//! records, as the beginning of an epoch, are read as entries without content: a reader then knows that nothing is missing.
//!
//! Invariants: what is read is committed. Nothing is appended in another epoch than the one that the caller names. Entries that were
//! removed are never passed over.

use penstock_log::{Coding, DecodeError, Log, LogError, Payload, Position, Record, Target, decode_record};
use penstock_queue::{QueueId, Sequence};
use penstock_replica::{Epoch, Role};
use penstock_replication::{AppendError, Token};

use crate::place::Place;
use crate::shard::Shard;

/// The queue that has all entries of a log.
pub(crate) const QUEUE: QueueId = QueueId(1);

/// A record of the log, up to this position. One without content may stand for several records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub until: Position,
    /// `None` where the record is no entry.
    pub content: Option<Vec<u8>>,
}

/// The part of a replica in its shard, and how far its log is: all of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    /// Everything below is committed.
    pub committed: Position,
    pub end: Position,
    /// The highest epoch that the replica has promised.
    pub promised: Epoch,
    /// The epoch of the newest record of its log; 0 in an empty one.
    pub log_epoch: Epoch,
}

/// Why entries cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EntriesError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the log does not have the entries from {0} on any more")]
    Removed(u64),
    #[error("the record at {0} cannot be read: {1}")]
    Record(u64, DecodeError),
}

impl Shard {
    /// `None` where the replica is not open.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        self.lock().as_mut()?.act(|replicator, log| {
            Some(Standing {
                role: replicator.role(),
                committed: log.bound(),
                end: log.end(),
                promised: replicator.promised(),
                log_epoch: log.epochs().iter().last().map_or(0, |(epoch, _)| epoch),
            })
        })
    }

    /// Appends entries as the leader of an epoch, and sends them on their way. [`crate::Events::ended`] says how that ended for all of
    /// them. Without contents it appends an entry without content: once that is committed, this replica has led until then.
    ///
    /// # Errors
    /// `NotLeading` where nothing was appended, and nothing will be, as where queues have the log; those of the log, where some of the entries may be appended.
    pub fn append_entries(&self, epoch: Epoch, publish: Token, contents: &[&[u8]]) -> Result<Position, AppendError> {
        let without: &[&[u8]] = &[&[]];
        let contents = if contents.is_empty() { without } else { contents };
        self.append_in(epoch, publish, |log, now_ms| {
            contents.iter().try_fold(log.end(), |_, content| append_entry(log, now_ms, content))
        })
    }

    /// Appends to the log as the leader of an epoch, where no queues have it.
    pub(crate) fn append_in(
        &self,
        epoch: Epoch,
        publish: Token,
        append: impl FnOnce(&mut Log, u64) -> Result<Position, LogError>,
    ) -> Result<Position, AppendError> {
        let mut guard = self.lock();
        let leads = |role: Role| matches!(role, Role::Leader { epoch: led, .. } if led == epoch);
        let Some(Place::Here(replicated)) = guard.as_mut() else { return Err(AppendError::NotLeading) };
        if !leads(replicated.role()) {
            return Err(AppendError::NotLeading);
        }
        let now = self.shared.now();
        let appended = replicated.append(publish, |log| append(log, now.unix_ms));
        let outputs = replicated.flush(now);
        self.hand_over_outputs(&mut guard, outputs);
        appended
    }

    /// Reads committed records from a position on, where one begins: as many as have so many bytes, and at least one. There are none
    /// when everything was read. Where the log has no records any more because none of them was an entry, one without content stands for them.
    /// Blocks.
    ///
    /// # Errors
    /// `Removed` where entries from there on were removed; those of the log.
    pub fn read_entries(&self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EntriesError> {
        let mut bytes_max = bytes_max;
        loop {
            match self.read_some(after, bytes_max) {
                // After a start, a gap between two segments counts as a part of the first of them: less of it is read.
                Err(EntriesError::Log(LogError::Corrupt { .. })) if bytes_max > 1 => bytes_max /= 2,
                read => return read,
            }
        }
    }

    fn read_some(&self, after: Position, bytes_max: usize) -> Result<Vec<Entry>, EntriesError> {
        let begin = |log: &mut Log| -> Result<_, LogError> {
            let bound = log.bound();
            let epoch = log.epochs().of(after).unwrap_or_default();
            let ticket = if after < bound { Some(log.begin_records(after, bound)?) } else { None };
            Ok((ticket, Coding::of_epoch(&log.id(), epoch)))
        };
        let Some((Some(ticket), coding)) = self.with_log(begin).transpose()? else { return Ok(Vec::new()) };
        let read = ticket.map(|ticket| ticket.perform(bytes_max)).transpose()?.flatten();
        match read {
            Some(records) => entries_in(&records.bytes, after, coding),
            None => Ok(self.pass_over(after)?.into_iter().collect()),
        }
    }
}

fn append_entry(log: &mut Log, stored_at_ms: u64, content: &[u8]) -> Result<Position, LogError> {
    let payload = Payload::new(b"", b"", b"", content)?;
    // No sequence is 0.
    let sequence = Sequence(log.end().0.saturating_add(1));
    log.append_message(&payload, stored_at_ms, &[Target { queue: QUEUE, sequence }])
}

fn entries_in(bytes: &[u8], after: Position, coding: Coding) -> Result<Vec<Entry>, EntriesError> {
    let (mut entries, mut until, mut rest) = (Vec::new(), after, bytes);
    while !rest.is_empty() {
        let decoded = decode_record(rest, coding).map_err(|error| EntriesError::Record(until.0, error))?;
        let content = match decoded.record {
            Record::Message(message) if !message.body.is_empty() => Some(message.body.to_vec()),
            _ => None,
        };
        until.0 += u64::from(decoded.length);
        rest = rest.get(decoded.length as usize..).unwrap_or_default();
        entries.push(Entry { until, content });
    }
    Ok(entries)
}
