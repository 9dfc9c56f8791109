//! The state of a log at its bound, above which records are found and do not count.
//!
//! Invariant: the log's end, its epochs and its index are those of all records; only the state has two positions.

use super::Reader;
use crate::error::LogError;
use crate::fold::FoldState;
use crate::record::Position;
use crate::synced_file::{Progress, SyncedFile};

impl Reader<'_> {
    /// Keeps the state before the first record that ends above the bound is applied.
    pub(super) fn pass_bound(&mut self, end: Position) {
        if self.at_bound.is_none() && self.bound.is_some_and(|bound| end > bound) {
            self.at_bound = Some(self.state.clone());
        }
    }

    /// Ends the reading; returns the bound of a log that has one, and the state there.
    pub(super) fn end_at_bound(&mut self, synced: &mut SyncedFile) -> Result<Option<(Position, FoldState)>, LogError> {
        let mut bounded = self.bound.map(|bound| {
            let state = self.at_bound.take().unwrap_or_else(|| self.state.clone());
            // Where records are missing across it, the bound is behind them.
            (bound.min(self.state.position).max(state.position), state)
        });
        let position = self.state.position;
        if self.has_written {
            let bound = bounded.as_ref().map_or(position, |&(bound, _)| bound);
            synced.set_format(self.format);
            synced.save(self.disk, Progress { position, bound, epoch: 0 })?;
        }
        if self.has_lost || self.has_raised {
            self.state.recount();
            bounded.iter_mut().for_each(|(_, state)| state.recount());
        }
        Ok(bounded)
    }
}
