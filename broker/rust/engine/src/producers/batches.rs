//! Batches of the producers of a log: what is stored of them, and that one which comes again may do without its refused rows.

use std::num::{NonZeroU32, NonZeroU64};

use penstock_log::{Batches, Producer, batch_and_row};

use super::{ProducerSession, Producers};
use crate::error::EngineError;
use crate::repetition::BatchStanding;

impl Producers {
    /// Note a stored row of a producer that numbers batches.
    pub fn batch_stored(&mut self, producer: Producer, digest: NonZeroU32) {
        self.batches.stored(producer.id.get(), producer.sequence, digest);
        let group = self.standing.get(&producer.id).and_then(|standing| standing.group.as_ref());
        if let (Some(group), Some((batch, _))) = (group, batch_and_row(producer.sequence)) {
            group.stored(batch);
        }
    }

    /// Note who owns a name, and with that the group that it belongs to.
    pub(super) fn own(&mut self, name: &str, id: NonZeroU64, user: &str) {
        let Some(standing) = self.standing.get_mut(&id).filter(|standing| standing.owner.is_none()) else { return };
        let owner = self.owners.add(user);
        standing.group = self.groups.of(&owner, name);
        standing.owner = Some(owner);
        let newest = self.batches.get(id.get()).and_then(Batches::newest);
        standing.group.iter().zip(newest).for_each(|(group, batch)| group.stored(batch));
    }

    /// Whether another user owns a name. In a queue's own log it is left over then: the vhost's log gave it to the next user.
    pub fn is_of_another(&self, name: &str, user: Option<&str>) -> bool {
        let owner = self.id_of(name).and_then(|id| self.owner(id));
        owner.zip(user).is_some_and(|(owner, user)| **owner != *user)
    }

    /// Add what is known here of a batch of a user's producer.
    pub fn add_batch(&self, name: &str, batch: u32, user: &str, standing: &mut BatchStanding) {
        let id = self.id_of(name).filter(|_| !self.is_of_another(name, Some(user)));
        let batches = id.and_then(|id| self.batches.get(id.get()));
        let highest = id.map_or(0, |id| self.highest(id));
        standing.add(batch, batches, self.groups.newest(user, name), highest);
    }

    /// A batch of a producer comes again from its first row on, so a row of it that was refused need not come first, or at all.
    pub fn batch_begins(&mut self, name: &str, batch: u32) {
        let Some(standing) = self.id_of(name).and_then(|id| self.standing.get_mut(&id)) else { return };
        let of_another =
            |refused: &NonZeroU64| batch_and_row(refused.get()).is_none_or(|(of_batch, _)| of_batch != batch);
        standing.refused = standing.refused.filter(of_another);
    }

    /// Open a name of this user that no session has, to begin a batch without rows; `None` when there is none to open.
    pub(crate) fn open_unused(
        &mut self,
        name: &str,
        user: &str,
        now_ms: u64,
    ) -> Result<Option<ProducerSession>, EngineError> {
        if self.is_of_another(name, Some(user)) {
            return Err(EngineError::ProducerOwned(name.to_owned()));
        }
        let Some(id) = self.id_of(name).filter(|id| self.owner(*id).is_some()) else { return Ok(None) };
        // A name that is being deleted has none either, and gets none.
        let is_free = !self.is_open(name) && !self.is_ended(user, name, now_ms);
        Ok(is_free.then(|| self.open(name, id, now_ms)))
    }
}
