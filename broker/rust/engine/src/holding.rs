//! A shard's lock, held for a subscription: whatever is done under it, the subscription's share of a credit is counted anew
//! at the end.

use std::ops::{Deref, DerefMut};

use penstock_queue::{QueueId, SubscriptionId};

use crate::credit::Share;
use crate::shard::Held;
use crate::state::State;

/// See the module.
pub(crate) struct Holding<'a> {
    pub held: Held<'a>,
    pub queue: QueueId,
    pub id: SubscriptionId,
    pub share: Option<&'a Share>,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        recount(&mut self.held, self.queue, self.id, self.share);
    }
}

/// Counts anew how much a subscription has of a credit that it shares.
pub(crate) fn recount(state: &mut State, queue: QueueId, id: SubscriptionId, share: Option<&Share>) {
    let Some(share) = share else { return };
    let State { queues, wakes, .. } = state;
    // It holds nothing of a queue that is gone.
    let held = queues.get(&queue).map_or(0, |entry| entry.machine.unsettled_of(id));
    share.recount(held, wakes);
}

impl Deref for Holding<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.held
    }
}

impl DerefMut for Holding<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.held
    }
}
