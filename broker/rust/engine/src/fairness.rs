//! How the keys of queues get lanes, and how a start finds them again; see `docs/decisions/0076-fair-keys.md`.
//!
//! Invariant: that a key has a slot is in the log before its first message there. A log without space for that leaves the key
//! with others.

use penstock_log::{Payload, marks};
use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::fair_keys::FairKeys;
use crate::shard::Shard;
use crate::state::State;

impl Shard {
    /// Sets by which header the messages of queues take turns; `None` is by none. It counts for messages that come from now on.
    /// Call [`Shard::lay_out_queues`] before a queue is put for the first time.
    ///
    /// # Errors
    /// `Log` when it cannot be written that keys have no lanes any more; `Stopped` when a bug poisoned the shard.
    pub fn take_turns<'a>(
        &self,
        queues: impl IntoIterator<Item = (QueueId, Option<&'a [u8]>)>,
    ) -> Result<(), EngineError> {
        for (id, header) in queues {
            match self.others.home(id) {
                Some(home) => home.lock()?.take_turns(id, header)?,
                None => self.lock()?.take_turns(id, header)?,
            }
        }
        Ok(())
    }
}

impl State {
    fn take_turns(&mut self, id: QueueId, header: Option<&[u8]>) -> Result<(), EngineError> {
        let header = header.filter(|_| id <= QueueId::TURNS_MAX);
        let found = self.found_keys.remove(&id);
        let before = self.queues.get_mut(&id).and_then(|entry| entry.keys.take());
        if before.as_ref().map(|keys| &*keys.header) == header && found.is_none() {
            if let Some(entry) = self.queues.get_mut(&id) {
                entry.keys = before;
            }
            return Ok(());
        }
        let owner = marks::owner_of_turns(id);
        let is_kept = found.as_ref().is_some_and(|found| Some(found.header.as_slice()) == header);
        if !is_kept {
            let of_found = found.iter().flat_map(|found| found.keys.keys().copied());
            let assigned = before.iter().flat_map(|keys| keys.assigned()).chain(of_found);
            for slot in assigned.collect::<Vec<_>>() {
                self.note_turns(&owner, &[slot], &[])?;
            }
            self.note_turns(&owner, &[], header.unwrap_or_default())?;
            self.write()?;
        }
        self.keyed.remove(&id);
        let Some(header) = header else { return Ok(()) };
        let highest = self.priorities.get(&id).copied().unwrap_or(0);
        self.lay_out(id, highest, true);
        let mut keys = FairKeys::new(header, u16::from(highest) + 1);
        found.iter().filter(|_| is_kept).for_each(|found| keys.recover(found));
        if let Some(entry) = self.queues.get_mut(&id) {
            entry.machine.set_priorities(u16::from(highest) + 1);
            entry.keys = Some(Box::new(keys));
            self.keyed.insert(id);
        }
        Ok(())
    }

    /// A mark that the log has no space for is made with the next message of its key, or by the next start.
    fn note_turns(&mut self, owner: &[u8], slot: &[u8], value: &[u8]) -> Result<(), EngineError> {
        match self.log.append_mark(owner, slot, value) {
            Err(error) if error.is_full() => Ok(()),
            noted => Ok(noted.map(|_| ())?),
        }
    }

    /// Gives the key of a message a slot in each of its queues where it has none, before space is reserved for the message.
    #[inline]
    pub(crate) fn assign_keys(&mut self, queues: &[QueueId], payload: &Payload<'_>) {
        if !self.keyed.is_empty() {
            queues.iter().for_each(|&queue| self.assign_key(queue, payload));
        }
    }

    fn assign_key(&mut self, queue: QueueId, payload: &Payload<'_>) {
        let Some(entry) = self.queues.get_mut(&queue) else { return };
        let Some(keys) = &mut entry.keys else { return };
        let Some(key) = keys.key_of(payload) else { return };
        let machine = &entry.machine;
        let Some(slot) = keys.slot_for(&key, |lane| machine.is_lane_settled(lane)) else { return };
        let number = [slot.to_le_bytes()[0]];
        // Without the mark a start would not know whose messages these are. An error of the log shows with the message.
        if self.log.append_mark(&marks::owner_of_turns(queue), &number, &key).is_ok() {
            keys.assign(slot, key);
        }
    }
}
