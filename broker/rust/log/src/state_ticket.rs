//! The state of a log's queues at its end, as work for a thread: that of the last fold, and the records after it.
//!
//! Invariants: nothing is written, and no fold is held up for longer than its state takes to be copied. Records above the bound count. One
//! that cannot be read is an error.

use std::sync::{Arc, Mutex, PoisonError};

use crate::disk::Disk;
use crate::error::LogError;
use crate::fold::FoldState;
use crate::fold_ticket::Keeper;
use crate::record::Position;
use crate::segment::{Check, Segment};

/// See the module.
#[derive(Debug)]
#[must_use]
pub struct StateTicket {
    /// Segments, and where their records end.
    pub(crate) parts: Vec<(Segment, Position)>,
    pub(crate) end: Position,
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) disk: Arc<dyn Disk>,
}

impl StateTicket {
    /// The log's end, at which the state will be.
    #[must_use]
    pub fn end(&self) -> Position {
        self.end
    }

    /// Waits for a fold that is under way, and reads the records after it.
    pub fn perform(self) -> Result<FoldState, LogError> {
        // As in a fold, the state changes only by whole records.
        let mut state = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).state.clone();
        for (segment, end) in &self.parts {
            if *end > state.position {
                self.advance(&mut state, segment, *end)?;
            }
        }
        Ok(state)
    }

    fn advance(&self, state: &mut FoldState, segment: &Segment, end: Position) -> Result<(), LogError> {
        let (from, to) = (segment.offset_of(state.position), segment.offset_of(end));
        let mut walk = segment.walk_heads_from(from, to, Check::Folded)?;
        while state.position < end {
            walk.keep_window(self.disk.as_ref())?;
            if let Some(outline) = walk.step_outline() {
                state.apply_outline(&outline, segment.position_of(walk.offset()));
                continue;
            }
            let at = walk.offset();
            let (_, decoded) = walk.step().map_err(|error| segment.unreadable(at, error))?;
            state.apply(&decoded.record, segment.position_of(walk.offset()));
        }
        Ok(())
    }
}
