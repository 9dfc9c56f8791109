//! Folds of a log without queues, which fold it otherwise: a follower keeps no more in memory than a leader, and opens its queues from a
//! checkpoint and the records after it when it leads.

use penstock_log::LogError;

use crate::place::Place;
use crate::shard::Shard;

impl Shard {
    /// Folds records that are committed, and removes segments that nothing needs any more; returns whether there was something to do. Queues
    /// that have the log do it themselves. Blocks.
    ///
    /// # Errors
    /// When the log cannot be read, or the disk is full or fails.
    pub fn fold(&self) -> Result<bool, LogError> {
        self.working.on(self.working.log(), || self.fold_log()).unwrap_or(Ok(false))
    }

    fn fold_log(&self) -> Result<bool, LogError> {
        let ticket = match self.lock().as_mut() {
            Some(Place::Here(replicated)) => replicated.log().begin_fold(),
            _ => None,
        };
        let Some(ticket) = ticket else { return Ok(false) };
        let folded = ticket.perform()?;
        if let Some(retired) = self.with_log(|log| log.finish_fold(folded)) {
            retired.perform()?;
        }
        Ok(true)
    }
}
