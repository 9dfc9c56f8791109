//! Which queues and exchanges recognize repetitions, as the definitions and policies have it.
//!
//! Invariants: a window that a start found is taken over by its queue or exchange, and forgotten when the definitions are
//! complete and do not have that any more; one whose header changes begins empty. All logs of a virtual host know its
//! exchanges.

use penstock_log::marks;
use penstock_queue::{QueueId, Window};

use crate::error::EngineError;
use crate::queue_entry::{QueueCounts, counts_of};
use crate::shard::Shard;
use crate::state::State;
use crate::windows::{Deduplication, Watch};

impl Shard {
    /// Sets how queues recognize repetitions; `None` is not at all.
    ///
    /// # Errors
    /// `Log` when it cannot be written that a window is forgotten; `Stopped` when a bug poisoned the shard.
    pub fn deduplicate_queues(
        &self,
        queues: impl IntoIterator<Item = (QueueId, Option<Deduplication>)>,
    ) -> Result<(), EngineError> {
        for (id, settings) in queues {
            match self.others.home(id) {
                Some(home) => home.lock()?.watch_queue(id, settings)?,
                None => self.lock()?.watch_queue(id, settings)?,
            }
        }
        Ok(())
    }

    /// Sets how an exchange recognizes repetitions; `None` is not at all, also for one that is deleted.
    ///
    /// # Errors
    /// As [`Shard::deduplicate_queues`].
    pub fn deduplicate_exchange(&self, name: &str, settings: Option<&Deduplication>) -> Result<(), EngineError> {
        self.lock()?.watch_exchange(name.as_bytes(), settings.cloned())?;
        for (_, log) in self.others.all() {
            let mut guard = log.lock()?;
            if !guard.closed {
                guard.watch_exchange(name.as_bytes(), settings.cloned())?;
            }
        }
        Ok(())
    }

    /// Has a log that is opened later know the exchanges that recognize repetitions.
    pub(crate) fn pass_exchange_windows(&self, log: &Shard) -> Result<(), EngineError> {
        let settings: Vec<_> = {
            let guard = self.lock()?;
            let known = guard.windows.exchanges.iter();
            known.map(|(name, watch)| (name.clone(), watch.settings.clone())).collect()
        };
        let mut guard = log.lock()?;
        settings.into_iter().try_for_each(|(name, settings)| guard.watch_exchange(&name, Some(settings)))
    }

    /// How many messages an exchange dropped since the start because it had seen them, over all logs.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn deduplicated_at_exchange(&self, name: &str) -> Result<u64, EngineError> {
        let count =
            |shard: &Shard| -> Result<u64, EngineError> { Ok(shard.lock()?.windows.repeated_at(name.as_bytes())) };
        self.others.all().into_iter().try_fold(count(self)?, |sum, (_, log)| Ok(sum + count(&log)?))
    }

    /// Forgets the windows of queues and exchanges that are not there any more.
    pub(crate) fn forget_unknown_windows(&self) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        let unknown: Vec<Vec<u8>> = guard.windows.recovered.drain().map(|(owner, _)| owner).collect();
        for owner in &unknown {
            guard.forget_window(owner)?;
        }
        if unknown.is_empty() { Ok(()) } else { guard.write() }
    }
}

impl State {
    fn watch_queue(&mut self, id: QueueId, settings: Option<Deduplication>) -> Result<(), EngineError> {
        let owner = marks::owner_of_window(id);
        let found = self.windows.queues.remove(&id);
        if let Some(watch) = self.watch(&owner, found, settings)? {
            self.windows.queues.insert(id, watch);
        }
        Ok(())
    }

    fn watch_exchange(&mut self, name: &[u8], settings: Option<Deduplication>) -> Result<(), EngineError> {
        let owner = marks::owner_of_exchange_window(name);
        let found = self.windows.exchanges.remove(name);
        if let Some(watch) = self.watch(&owner, found, settings)? {
            self.windows.exchanges.insert(name.into(), watch);
        }
        Ok(())
    }

    /// The next state of a watch.
    fn watch(
        &mut self,
        owner: &[u8],
        found: Option<Watch>,
        settings: Option<Deduplication>,
    ) -> Result<Option<Watch>, EngineError> {
        let recovered = self.windows.recovered.remove(owner);
        let keeps = |found: &Watch| settings.as_ref().is_some_and(|settings| settings.header == found.settings.header);
        let is_forgotten =
            found.as_ref().is_some_and(|found| !keeps(found)) || (settings.is_none() && recovered.is_some());
        if is_forgotten {
            self.forget_window(owner)?;
            self.write()?;
        }
        let Some(settings) = settings else { return Ok(None) };
        let (mut window, deduplicated_count) = match found {
            Some(found) if !is_forgotten => (found.window, found.deduplicated_count),
            Some(found) => (Window::default(), found.deduplicated_count),
            None => (recovered.unwrap_or_default(), 0),
        };
        if window.count() > settings.size_max {
            window.limit(settings.size_max);
            self.note_window(owner, &(settings.size_max as u32).to_le_bytes())?;
            self.write()?;
        }
        Ok(Some(Watch { settings, window, deduplicated_count }))
    }

    fn forget_window(&mut self, owner: &[u8]) -> Result<(), EngineError> {
        self.note_window(owner, &[])
    }

    /// Records that a window is forgotten, or limited to a size.
    fn note_window(&mut self, owner: &[u8], size: &[u8]) -> Result<(), EngineError> {
        match self.log.append_mark(owner, &[], size) {
            // The next start does it.
            Err(error) if error.is_full() => Ok(()),
            noted => Ok(noted.map(|_| ())?),
        }
    }
}

impl State {
    /// The counts of a queue.
    pub(crate) fn counts(&self, id: &QueueId) -> QueueCounts {
        let counts =
            self.queues.get(id).map_or_else(QueueCounts::default, |entry| counts_of(entry, self.dying.count_of(*id)));
        let deduplicated_count = self.windows.queues.get(id).map_or(0, |watch| watch.deduplicated_count);
        QueueCounts { deduplicated_count, ..counts }
    }
}
