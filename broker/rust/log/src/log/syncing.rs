//! Group commit of a log: what a sync covers, and what its result says.
//!
//! Invariants: nothing above the written position is called synced, and a sync from before a cut says nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Log;
use crate::error::LogError;
use crate::record::Position;
use crate::sync::{SyncTicket, Synced};
use crate::synced_file::Progress;

impl Log {
    /// A sync of the written records, for a thread without the lock; `None` when all are synced.
    pub fn begin_sync(&mut self) -> Option<SyncTicket> {
        self.ahead.sync_begins(self.written);
        (self.written > self.synced).then(|| SyncTicket {
            files: self.unsynced.clone(),
            synced: Synced { position: self.written, cuts: self.cuts },
            progress: self.progress(),
            directory: Arc::clone(&self.directory),
            disk: Arc::clone(&self.options.disk),
            synced_file: Arc::clone(&self.synced_file),
            stopped: Arc::clone(&self.stopped),
        })
    }

    /// Brings the file that says how far the log came to the disk, before there is anything to say: who finds neither it nor
    /// segments knows that both are lost. Blocks.
    ///
    /// # Errors
    /// `Io`; `Full`.
    pub fn store_synced(&self) -> Result<(), LogError> {
        let mut file = self.synced_file.lock().unwrap_or_else(PoisonError::into_inner);
        file.store(self.options.disk.as_ref())
    }

    /// Notes how far a ticket synced.
    pub fn finish_sync(&mut self, synced: Synced) {
        if synced.cuts == self.cuts {
            self.note_synced(synced.position);
        }
    }

    pub(super) fn note_synced(&mut self, position: Position) {
        if self.stopped.load(Ordering::SeqCst) {
            return;
        }
        assert!(position <= self.written, "more is said to be synced than was written");
        let synced = self.synced.max(position);
        self.synced = synced;
        // A sync up to an empty segment may have come before that segment's header.
        let first_kept = self.sealed.partition_point(|sealed| sealed.end <= synced && sealed.segment.first() < synced);
        let first_kept = self.sealed.get(first_kept).map_or(self.active.segment.number(), |kept| kept.segment.number());
        self.unsynced.retain(|unsynced| unsynced.number >= first_kept);
        for unsynced in &mut self.unsynced {
            let segment = self.sealed.iter().rev().map(|sealed| &sealed.segment);
            let segment = std::iter::once(&self.active.segment).chain(segment).find(|s| s.number() == unsynced.number);
            unsynced.is_new &= segment.is_some_and(|segment| segment.first() >= synced);
        }
    }

    /// What the file `synced` says once everything written is on the disk.
    pub(super) fn progress(&self) -> Progress {
        Progress { position: self.written, bound: self.bound(), epoch: self.epochs.newest() }
    }
}
