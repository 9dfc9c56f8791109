//! A replica whose broker leads: the queues of the shard are opened on its log, and closed when another broker leads.
//!
//! Invariants: the queues are those at the log's end, and nothing but they appends to the log while the term lasts. They hear of what is
//! committed in its order.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use penstock_engine::{Engine, EngineError, Led as LedLog, NotLed, Replication, Shard as Queues};
use penstock_log::LogError;
use penstock_replica::Epoch;
use penstock_replication::{Input, ReplicatedLog};

use crate::lock::lock;
use crate::place::{Led, Place, take_back};
use crate::shard::Shard;

/// Why the queues of a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LeadError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The replica, as the queues of its shard call it.
#[derive(Debug)]
struct Told(Weak<Shard>);

impl Replication for Told {
    fn appended(&self) {
        if let Some(shard) = self.0.upgrade() {
            shard.flush_soon();
        }
    }
}

impl Shard {
    /// Opens the queues of the shard on its log, in an engine, for a term in which this broker leads. `None` where that term is over or has
    /// not begun, or the queues of an earlier one are still closing: call it again soon, with the epoch of the newest [`crate::Events::role`].
    /// The host puts queues and routes, and then says that they are complete, as after a start.
    ///
    /// # Errors
    /// `Log` when the log cannot be read; `Engine` when the engine has ended.
    pub fn lead(&self, engine: &Engine, name: &str, epoch: Epoch) -> Result<Option<Arc<Queues>>, LeadError> {
        self.open_queues(epoch, |directory, led| engine.lead(name, directory, led))
    }

    /// The same for a further shard of a virtual host, whose shard 0 was opened before. Their term is one: it ends for all of them when another
    /// broker leads one, and then [`Shard::lead`] may begin another one in the same epochs.
    ///
    /// # Errors
    /// As [`Shard::lead`]; `Engine` also where the term is over.
    pub fn lead_further(
        &self,
        engine: &Engine,
        vhost: &Arc<Queues>,
        number: u16,
        epoch: Epoch,
    ) -> Result<Option<Arc<Queues>>, LeadError> {
        self.open_queues(epoch, |directory, led| engine.lead_further(vhost, number, directory, led))
    }

    fn open_queues(
        &self,
        epoch: Epoch,
        open: impl FnOnce(&Path, LedLog) -> Result<Arc<Queues>, Box<NotLed>>,
    ) -> Result<Option<Arc<Queues>>, LeadError> {
        let upkeep = lock(&self.upkeep);
        let queues = self.open_kept_queues(epoch, open);
        drop(upkeep);
        queues
    }

    /// Called under the lock for upkeep.
    fn open_kept_queues(
        &self,
        epoch: Epoch,
        open: impl FnOnce(&Path, LedLog) -> Result<Arc<Queues>, Box<NotLed>>,
    ) -> Result<Option<Arc<Queues>>, LeadError> {
        let ticket = {
            let mut guard = self.lock();
            take_back(&mut guard, false);
            match guard.as_mut().and_then(Place::ready_to_lead) {
                Some((now, log)) if now == epoch => log.begin_state()?,
                _ => return Ok(None),
            }
        };
        // Nothing is appended while this broker leads and has no queues.
        let state = ticket.perform()?;
        let mut guard = self.lock();
        let stored_at_ms = match guard.as_mut().and_then(Place::ready_to_lead) {
            Some((now, log)) if now == epoch && log.end() == state.position => log.newest_time()?,
            _ => return Ok(None),
        };
        let Some(Place::Here(replicated)) = guard.take() else { return Ok(None) };
        let (log, replicator) = replicated.into_parts();
        let replication = Arc::new(Told(Weak::clone(&self.this)));
        match open(&self.directory, LedLog { log, state, stored_at_ms, replication }) {
            Ok(queues) => {
                let led = Led { replicator, queues: Arc::clone(&queues), epoch };
                led.term().hear_role(led.replicator.role());
                *guard = Some(Place::Led(Box::new(led)));
                Ok(Some(queues))
            }
            Err(refused) => {
                let NotLed { log, error } = *refused;
                *guard = Some(Place::Here(Box::new(ReplicatedLog::of(log, replicator))));
                Err(error.into())
            }
        }
    }

    /// Has a thread for disks pass on what the queues appended.
    fn flush_soon(&self) {
        if !self.flush_waits.swap(true, Ordering::AcqRel) {
            self.soon(|shard| {
                shard.flush_waits.store(false, Ordering::Release);
                shard.flush();
            });
        }
    }

    /// A replica whose queues stopped after a failure of the disk halts, too.
    pub(crate) fn check_queues(&self) {
        let has_fault = |place: &Place| place.led().is_some_and(|led| led.queues.fault().is_some());
        let has_failed = self.lock().as_ref().is_some_and(has_fault);
        if has_failed {
            self.step(Input::Stopped);
        }
    }
}
