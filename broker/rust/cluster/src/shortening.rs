//! Shortening a log that has entries. The leader says up to where no broker needs them any more, and each broker then removes segments by
//! itself.
//!
//! That position is in the log twice: as a settlement of the entries' messages, by which a fold finds that a segment has nothing that lives,
//! and as a mark, because positions between two entries count as settled, too.
//!
//! Invariants: a fold does not pass a mark that is above the caller's own checkpoint. A reader passes over a gap of the log only above the
//! mark, where none of the records that are gone was an entry.

use penstock_log::{FoldState, Log, LogError, Outcome, Position};
use penstock_queue::{Sequence, SequenceRange};
use penstock_replica::Epoch;
use penstock_replication::{AppendError, Token};

use crate::entries::{EntriesError, Entry, QUEUE};
use crate::shard::Shard;

/// The owner of the mark, whose key is empty.
const SETTLED: &[u8] = b"m";
/// A log that grows faster than its state is read is folded another time.
const TRIES_MAX: usize = 5;

impl Shard {
    /// Appends, as the leader of an epoch, that no broker needs the entries up to a position any more; [`crate::Events::ended`] says how that
    /// ended. Entries above the high watermark are needed.
    ///
    /// # Errors
    /// As for [`Shard::append_entries`].
    pub fn settle_entries(&self, epoch: Epoch, publish: Token, until: Position) -> Result<Position, AppendError> {
        self.append_in(epoch, publish, |log, _| {
            let until = until.min(log.bound());
            // The sequence of an entry is 1 more than its first position.
            let ranges: Vec<SequenceRange> =
                SequenceRange::new(Sequence::FIRST, Sequence(until.0)).into_iter().collect();
            // Alone, the mark only holds folds up.
            log.append_mark(SETTLED, b"", &until.0.to_le_bytes())?;
            log.append_settle(QUEUE, Outcome::Ack, 0, 0, &ranges)
        })
    }

    /// Folds as [`Shard::fold`] does, unless entries are settled above `checkpoint`: what this broker has on its disk without the log. Returns
    /// whether there was something to do. Blocks.
    ///
    /// # Errors
    /// When the log cannot be read, or the disk is full or fails.
    pub fn fold_entries(&self, checkpoint: Position) -> Result<bool, LogError> {
        self.keep_up(|| self.fold_below(checkpoint)).unwrap_or(Ok(false))
    }

    fn fold_below(&self, checkpoint: Position) -> Result<bool, LogError> {
        for _ in 0..TRIES_MAX {
            if !self.with_log(|log| log.stats().unfolded_segments > 0).unwrap_or_default() {
                return Ok(false);
            }
            let Some(state) = self.state()? else { return Ok(false) };
            if settled_in(&state) > checkpoint {
                return Ok(false);
            }
            // All that the fold reads is in the state.
            let begin = |log: &mut Log| (log.bound() <= state.position).then(|| log.begin_fold());
            if let Some(ticket) = self.with_log(begin).flatten() {
                return self.perform_fold(ticket);
            }
        }
        Ok(false)
    }

    /// The next position after a gap of the log, if no entry is missing in it. `None` where a copy has just taken the place of the log.
    pub(crate) fn pass_over(&self, after: Position) -> Result<Option<Entry>, EntriesError> {
        let looked = self.keep_up(|| -> Result<_, LogError> {
            let Some(state) = self.state()? else { return Ok(None) };
            let next = self.with_log(|log| next_entry(log, after)).transpose()?;
            Ok(next.map(|next| (settled_in(&state), next)))
        });
        match looked.transpose()?.flatten() {
            Some((settled, next)) if after < settled || next <= after => Err(EntriesError::Removed(after.0)),
            Some((_, until)) => Ok(Some(Entry { until, content: None })),
            None => Ok(None),
        }
    }

    /// The state at the log's end, also above the high watermark.
    fn state(&self) -> Result<Option<FoldState>, LogError> {
        let ticket = self.with_log(Log::begin_state).transpose()?;
        ticket.map(penstock_log::StateTicket::perform).transpose()
    }
}

/// Up to where entries are settled.
fn settled_in(state: &FoldState) -> Position {
    let mark = state.marks.get(&(SETTLED.to_vec(), Vec::new()));
    let position = mark.and_then(|value| value.as_slice().try_into().ok()).map(u64::from_le_bytes);
    Position(position.unwrap_or_default())
}

/// Where the next entry begins, or the high watermark.
fn next_entry(log: &mut Log, after: Position) -> Result<Position, LogError> {
    let found = log.seek(QUEUE, Sequence(after.0.saturating_add(1)), 1, 0)?;
    let first = found.map(|found| Position(found.first.0.saturating_sub(1)));
    Ok(first.unwrap_or(log.bound()).min(log.bound()))
}
