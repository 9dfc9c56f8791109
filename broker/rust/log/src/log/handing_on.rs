//! A log that goes from one owner to another while it is open: a replica's log is with the queues while this broker leads.
//!
//! Invariants: there is one log to append to; what is left with the owner before is closed and finds nothing. It is handed on only while no
//! fold and no slice of compaction is under way, because their results belong to it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::recent::Recent;
use super::timers::Timers;
use super::{Log, Stage};
use crate::active::Active;
use crate::ahead::Ahead;
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::index::MemoryIndex;
use crate::kept::Share;
use crate::record::Position;
use crate::state_ticket::StateTicket;

impl Log {
    /// The state of the queues at the log's end, for a thread without the lock: also of records above the bound. Deadlines come again from
    /// here on, those included that came before.
    pub fn begin_state(&mut self) -> Result<StateTicket, LogError> {
        let end = self.write()?;
        self.timers = Timers::default();
        self.follow_segments();
        self.add_timers_from(0);
        let sealed = self.sealed.iter().map(|sealed| (&sealed.segment, sealed.end));
        let parts = sealed.chain([(&self.active.segment, end)]);
        Ok(StateTicket {
            parts: parts.map(|(segment, end)| (segment.unmapped(), end)).collect(),
            end,
            keeper: Arc::clone(&self.keeper),
            disk: Arc::clone(&self.options.disk),
        })
    }

    /// Hands the log on to another owner; `None` while a fold or a slice of compaction is under way. Its remainder here is closed.
    pub fn hand_on(&mut self) -> Option<Log> {
        if self.folding.load(Ordering::SeqCst) {
            return None;
        }
        let remainder = self.remainder();
        Some(std::mem::replace(self, remainder))
    }

    fn remainder(&self) -> Log {
        let end = self.appended();
        let active = &self.active;
        Log {
            directory: Arc::clone(&self.directory),
            options: self.options.clone(),
            log_id: self.log_id,
            epoch: self.epoch,
            newest_epoch: self.newest_epoch,
            epochs: Epochs::default(),
            tail: Vec::new(),
            written: end,
            write_behind: false,
            stage: Stage::Closed,
            bytes_written: self.bytes_written,
            bytes_rewritten: self.bytes_rewritten,
            active: Active {
                segment: Arc::clone(&active.segment),
                file: Arc::clone(&active.file),
                index: MemoryIndex::default(),
                reserved: active.reserved,
            },
            sealed: Vec::new(),
            grown_bytes: self.grown_bytes,
            synced: end,
            bound: self.bound,
            cuts: self.cuts,
            ahead: Ahead::new(end),
            unsynced: Vec::new(),
            stopped: Arc::new(AtomicBool::new(false)),
            synced_file: Arc::clone(&self.synced_file),
            keeper: Arc::clone(&self.keeper),
            folding: Arc::new(AtomicBool::new(false)),
            holds: Arc::clone(&self.holds),
            folded: self.folded,
            share: Share::empty(&self.options.kept),
            recovered: Position(0),
            hints: RefCell::default(),
            recent: RefCell::new(Recent::new(0)),
            timers: Timers::default(),
            quarantined: BTreeSet::new(),
            fenced: BTreeSet::new(),
            unserved: Vec::new(),
        }
    }
}
