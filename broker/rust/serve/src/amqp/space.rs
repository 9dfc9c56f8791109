//! What is not written yet of a connection holds a part of the memory budget, and what is delivered, got or returned waits for it.
//!
//! What must stay true: nobody waits for a little. Confirms and answers, which are small, wait for nothing.

use std::sync::Arc;

use crate::host::memory::{Account, Outgoing, Part};

/// So much may always be on its way, also when the budget is spent: those with small messages wait for no others.
const FREE_BYTES: usize = 4 << 10;

/// See the module.
pub(super) struct Space {
    part: Part,
    outgoing: Outgoing,
}

impl Space {
    pub fn new(account: &Arc<Account>) -> Space {
        Space { part: Part::take(account, 0), outgoing: Outgoing::new(account) }
    }

    /// Whether so many bytes may be added to those that are not written.
    pub fn allows(&self, unwritten: usize, more: usize) -> bool {
        self.outgoing.has_room() || unwritten + more <= FREE_BYTES
    }

    /// Counts what is not written.
    pub fn count(&mut self, unwritten: usize) {
        self.part.resize(unwritten);
    }
}
