//! Transactions of a publisher: what came is stored together with what its client settles, as a whole or not at all.
//!
//! What must stay true: a refused transaction has changed nothing, and everything of it is still there for the caller.

use penstock_engine::{Fate, Level, Metric, Places, Transaction, TransactionSettlement};

use super::{Beside, Publishing, now_ms};
use crate::host::gather::{Bounds, Obstacle, Source};
use crate::host::refusal::Refusal;
use crate::host::stalls::{at, until_free, when_free};

/// A transaction that was applied.
#[derive(Debug, Default)]
pub(crate) struct Commit {
    /// Messages that found no queue and return to the client, by their places among all, ascending.
    pub returned: Vec<usize>,
    /// Of each settlement, how many messages it settled, and their bytes.
    pub settled: Vec<(u64, u64)>,
    /// What has to be on the disk before the client hears of it.
    pub waits_for: Option<Places>,
}

impl Publishing {
    /// Applies a transaction of all that came.
    ///
    /// # Errors
    /// Why nothing of it was applied.
    pub(crate) async fn commit<S: Source>(
        &mut self,
        source: &mut S,
        settlements: &[TransactionSettlement<'_>],
    ) -> Result<Commit, Refusal> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused);
        }
        self.permits.begin_round();
        let bounds = Bounds { messages: source.message_count() };
        loop {
            until_free(&self.shard).await;
            let last_change = self.calls.last_change(&self.caller);
            let generation = || self.calls.generation(&self.caller, &self.user, self.shard.name());
            self.permits.refresh(last_change, generation);
            match self.commit_all(source, bounds, settlements) {
                Ok(commit) => return Ok(commit),
                Err(Obstacle::Malformed(refused)) => return Err(refused),
                Err(Obstacle::Unknown(unknown)) => self.ask(source, bounds, unknown).await?,
                Err(Obstacle::Properties) => source.convert_properties(bounds.messages)?,
            }
        }
    }

    fn commit_all<S: Source>(
        &mut self,
        source: &mut S,
        bounds: Bounds,
        settlements: &[TransactionSettlement<'_>],
    ) -> Result<Commit, Obstacle> {
        let (now_ms, mut beside, mut fates) = (now_ms(), Beside::default(), Vec::new());
        let round = self.gather_round(source, bounds, &mut beside, now_ms)?;
        if let Some((_, _, denial)) = round.denied.first() {
            return Err(Obstacle::Malformed(denial.clone()));
        }
        let transaction = Transaction { batch: &round.batch, settlements, now_ms };
        let shard = &self.shard;
        let committed = at(shard, || shard.commit(transaction, &mut fates)).map_err(Refusal::from)?;
        let (count, end) = (round.count, round.end);
        let bytes = source.advance(end);
        self.allowance.published(count as u64, bytes as u64, None);
        let returned = fates.iter().enumerate().filter(|(_, fate)| **fate == Fate::Returned);
        let returned: Vec<usize> = returned.map(|(place, _)| place).collect();
        self.shard.counters().add(Metric::Returned, returned.len() as u64);
        let is_for_disk = fates.contains(&Fate::Stored(Level::Disk));
        if is_for_disk {
            committed.places.request_sync();
        }
        Ok(Commit { returned, settled: committed.settled, waits_for: is_for_disk.then_some(committed.places) })
    }
}

/// Applies a transaction that publishes nothing.
///
/// # Errors
/// Why nothing of it was applied.
pub(crate) async fn commit_settlements(settlements: &[TransactionSettlement<'_>]) -> Result<Commit, Refusal> {
    let Some(first) = settlements.first() else { return Ok(Commit::default()) };
    let shard = first.subscription.shard();
    let transaction = Transaction { batch: &[], settlements, now_ms: now_ms() };
    let committed = when_free(shard, || shard.commit(transaction, &mut Vec::new())).await?;
    Ok(Commit { settled: committed.settled, ..Commit::default() })
}
