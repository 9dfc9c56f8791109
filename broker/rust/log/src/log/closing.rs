//! Closing a log: everything is on the disk, and a checkpoint at the end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Log, Sealed, Stage};
use crate::directory::Lookup;
use crate::error::LogError;
use crate::format::Format;

impl Log {
    /// Writes, syncs, and leaves a checkpoint at the end, or below the bound; its removals are durable. Messages can still be
    /// located; nothing is appended any more.
    pub fn close(&mut self) -> Result<(), LogError> {
        if self.stage == Stage::Closed {
            return Ok(());
        }
        self.write()?;
        // Messages that died before the newest checkpoint go with another one, and were not brought to the disk.
        let needs_another = self.written == self.folded;
        if needs_another && self.format() == Format::One {
            self.append_epoch(false)?;
            self.write()?;
        }
        self.stage = Stage::Closed;
        if let Some(ticket) = self.begin_sync() {
            self.finish_sync(ticket.perform()?);
        }
        self.save_bound()?;
        let index = std::mem::take(&mut self.active.index);
        let segment = Arc::clone(&self.active.segment);
        segment.seal();
        self.sealed.push(Sealed { segment, end: self.written, lookup: Lookup::Memory(Arc::new(index)) });
        self.end_compaction()?;
        // A running fold holds everything that this one needs until it is done.
        self.folding = Arc::new(AtomicBool::new(false));
        let last = self.within_bound().checked_sub(1);
        if let Some(ticket) = last.and_then(|last| self.ticket(last, needs_another)) {
            let folded = ticket.perform()?;
            self.finish_fold(folded).perform()?;
        }
        // A dead segment that reappears in part after a power failure would look corrupt to a start after a clean stop.
        // A fold that is still running syncs its own removals.
        self.holds.close();
        let names_synced = self.options.disk.sync_directory(&self.directory);
        names_synced.map_err(|error| LogError::io("sync", &self.directory, error))
    }
}
