//! What a replica does about copies of its log: it offers one as the leader, and fetches one where it lacks records.
//!
//! Invariant: a replica takes a copy only from a broker that it is connected to, and its log is replaced only by a whole one. Its identity
//! and its promise stay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use penstock_log::{Log, LogError};
use penstock_replica::BrokerId;
use penstock_replication::wire::encode_copy;
use penstock_replication::{CopyError, CopyMessage, CopyTarget, OpenError, ReplicatedLog};

use crate::copies::Progress;
use crate::place::Place;
use crate::shard::Shard;

/// Why a copy of a log does not go on.
#[derive(Debug, thiserror::Error)]
enum CopyFailed {
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Shard {
    /// A message about a copy of the log. A thread for disks takes it.
    pub(crate) fn take_copy(&self, from: BrokerId, message: CopyMessage) {
        self.soon(move |shard| {
            if let Err(error) = shard.copy(from, &message) {
                shard.copies.disconnected(from);
                shard.shared.events.noticed(&format!("copying a log with broker {from}: {error}"));
            }
        });
    }

    fn copy(&self, from: BrokerId, message: &CopyMessage) -> Result<(), CopyFailed> {
        let now = self.shared.now().millis;
        let progress = match message {
            CopyMessage::Offer { .. } => {
                let disk = Arc::clone(&self.options.log.disk);
                let target = CopyTarget::begin(&self.directory, disk, message.clone())?;
                self.copies.begin(from, target, now)?
            }
            CopyMessage::Fetch { .. } => {
                if let Some(part) = self.copies.read(from, message, now)? {
                    self.send_copy(from, &part);
                }
                Progress::Nothing
            }
            CopyMessage::Part { .. } => self.copies.take(from, message, now)?,
            CopyMessage::Fetched { .. } => {
                self.copies.end(from);
                Progress::Nothing
            }
        };
        match progress {
            Progress::Ask(ask) => self.send_copy(from, &ask),
            Progress::Whole(whole) => {
                self.open_again()?;
                self.send_copy(from, &whole);
            }
            Progress::Nothing => {}
        }
        Ok(())
    }

    /// Offers a copy of the log at the high watermark to a broker whose replica lacks records.
    pub(crate) fn offer_copy(&self, to: BrokerId) {
        if self.copies.gives(to) {
            return;
        }
        let Some(ticket) = self.with_log(Log::begin_backup) else { return };
        let copy = self.copied.fetch_add(1, Ordering::Relaxed);
        match ticket.and_then(|ticket| self.copies.give(to, copy, ticket, self.shared.now().millis)) {
            Ok(offer) => self.send_copy(to, &offer),
            Err(error) => self.shared.events.noticed(&format!("cannot copy a log for broker {to}: {error}")),
        }
    }

    /// The files of a copy take the place of the log.
    fn open_again(&self) -> Result<(), OpenError> {
        let mut guard = self.without_queues();
        // Closed first: two must not write into one folder.
        *guard = None;
        let (replicated, state) = ReplicatedLog::open(&self.directory, self.options.clone(), self.shared.now())?;
        *guard = Some(Place::Here(Box::new(replicated)));
        self.shared.events.replaced(&self.id, state);
        drop(guard);
        self.shared.links.each(|broker, link| self.linked(broker, link));
        Ok(())
    }

    pub(crate) fn send_copy(&self, to: BrokerId, message: &CopyMessage) {
        let mut frame = encode_copy(&self.id, message);
        if let CopyMessage::Part { bytes, .. } = message {
            frame.extend_from_slice(bytes);
        }
        self.shared.outboxes.put_message(to, frame);
        self.shared.wake(to);
    }
}
