//! What is known of one queue without its queues being open: which messages are settled, and the sequence of the next one.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_queue::{AckSet, QueueId, Sequence};

use crate::fold::{FoldState, FoldedQueue};
use crate::fold_ticket::Keeper;
use crate::record::Position;

/// A queue at one position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Settled sequences, and those that no message had.
    pub settled: AckSet,
    /// The sequence of the next message.
    pub next: Sequence,
    pub position: Position,
}

/// The extent of a queue at the last fold, as work for a thread: it waits for a fold that is under way.
#[derive(Debug)]
#[must_use]
pub struct ExtentTicket {
    pub(crate) keeper: Arc<Mutex<Keeper>>,
    pub(crate) queue: QueueId,
}

impl ExtentTicket {
    #[must_use]
    pub fn perform(self) -> Extent {
        Extent::of(&self.keeper.lock().unwrap_or_else(PoisonError::into_inner).state, self.queue)
    }
}

impl Extent {
    /// That of a queue without a record is empty.
    #[must_use]
    pub fn of(state: &FoldState, queue: QueueId) -> Extent {
        let position = state.position;
        match state.queues.get(&queue) {
            Some(FoldedQueue { settled, next, .. }) => Extent { settled: settled.clone(), next: *next, position },
            None => {
                let next = state.first_sequence;
                Extent { settled: AckSet::starting_at(next), next, position }
            }
        }
    }
}
