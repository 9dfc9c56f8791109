//! The keys of a queue that take turns: which of them has which lanes, as values.
//!
//! A key's messages are in the lanes of one slot. A slot is assigned to a key while it has messages, and may be assigned to
//! another one when all its messages are settled. Keys that find no slot share one of the others, by a hash.
//!
//! Invariants: all unsettled messages of a key are in one slot, so they keep their order; which slot that is follows from the
//! assignments, which the log has before the messages. This module knows no log.

use std::collections::BTreeMap;

use penstock_log::{Payload, marks};
use penstock_queue::{QueueId, TURN_LANES, content_of};
use penstock_wire::amqp::properties::headers_of;
use rustc_hash::FxHashMap;

use crate::windows::header_in;

/// A key as the log has it: short ones as they are behind their length, others by their hash.
pub(crate) type Key = [u8; 16];

const LANES: u16 = 256;
const SHORT_MAX: usize = 15;
const HASHED: u8 = u8::MAX;

/// The slots of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// How many priorities the queue has, each of which is a lane of each slot.
    priorities: u16,
}

impl Layout {
    fn slots(self) -> u16 {
        LANES / self.priorities
    }

    /// Slots of several keys: a fourth of all, behind the others.
    fn shared(self) -> u16 {
        (self.slots() / 4).max(1)
    }

    /// Slots of one key each.
    fn own(self) -> u16 {
        self.slots() - self.shared()
    }

    fn lane(self, slot: u16, priority: u8) -> u16 {
        TURN_LANES + slot * self.priorities + u16::from(priority)
    }

    fn shared_slot(self, key: &Key) -> u16 {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        self.own() + ((hash ^ hash >> 32) % u64::from(self.shared())) as u16
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FairKeys {
    pub header: Box<[u8]>,
    layout: Layout,
    /// The keys of the slots that have one.
    keys: Vec<Option<Key>>,
    slots: FxHashMap<Key, u16>,
    /// Where the search for a slot begins, so that the one that was assigned first is assigned again first.
    next: u16,
}

/// The header and the keys with their slots, as marks in the log name them at a start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundKeys {
    pub header: Vec<u8>,
    pub keys: BTreeMap<u8, Key>,
}

impl FairKeys {
    pub fn new(header: &[u8], priorities: u16) -> FairKeys {
        let layout = Layout { priorities };
        let keys = vec![None; layout.own().into()];
        FairKeys { header: header.into(), layout, keys, slots: FxHashMap::default(), next: 0 }
    }

    pub fn recover(&mut self, found: &FoundKeys) {
        for (&slot, &key) in &found.keys {
            self.assign(slot.into(), key);
        }
    }

    /// The key of a message that has one.
    pub fn key_of(&self, payload: &Payload<'_>) -> Option<Key> {
        let headers = headers_of(payload.properties()).ok().flatten()?;
        content_of(header_in(headers, &self.header)?).map(|content| key_of_content(&content))
    }

    /// The lane of a message in a queue with these keys.
    pub fn lane_of(&self, payload: &Payload<'_>, priority: u8) -> u16 {
        let Some(key) = self.key_of(payload) else { return priority.into() };
        let slot = self.slots.get(&key).copied();
        self.layout.lane(slot.unwrap_or_else(|| self.layout.shared_slot(&key)), priority)
    }

    /// The slot to assign to a key, if it has none, none of its messages can be in a shared one, and there is one whose messages
    /// are all settled.
    pub fn slot_for(&self, key: &Key, is_settled: impl Fn(u16) -> bool) -> Option<u16> {
        let is_free = |slot: u16| (0..self.layout.priorities).all(|lane| is_settled(self.layout.lane(slot, 0) + lane));
        if self.slots.contains_key(key) || !is_free(self.layout.shared_slot(key)) {
            return None;
        }
        let own = self.layout.own();
        (0..own).map(|count| (self.next + count) % own).find(|slot| is_free(*slot))
    }

    pub fn assign(&mut self, slot: u16, key: Key) {
        let Some(place) = self.keys.get_mut(usize::from(slot)) else { return };
        if let Some(before) = place.replace(key) {
            self.slots.remove(&before);
        }
        self.slots.insert(key, slot);
        self.next = (slot + 1) % self.layout.own();
    }

    /// The slots with a key.
    pub fn assigned(&self) -> Vec<u8> {
        let assigned = self.keys.iter().enumerate().filter(|(_, key)| key.is_some());
        assigned.filter_map(|(slot, _)| u8::try_from(slot).ok()).collect()
    }
}

fn key_of_content(content: &[u8]) -> Key {
    let mut key = [0; 16];
    let digest;
    let (kind, bytes) = match u8::try_from(content.len()) {
        Ok(length) if content.len() <= SHORT_MAX => (length, content),
        _ => {
            digest = ring::digest::digest(&ring::digest::SHA256, content);
            (HASHED, digest.as_ref())
        }
    };
    if let Some((first, rest)) = key.split_first_mut() {
        *first = kind;
        rest.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
    key
}

/// The keys that had lanes before the start.
pub(crate) fn keys_in(found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> FxHashMap<QueueId, FoundKeys> {
    let mut all: FxHashMap<QueueId, FoundKeys> = FxHashMap::default();
    for ((owner, slot), value) in found {
        let Some(queue) = marks::queue_of_turns(owner) else { continue };
        let of_queue = all.entry(queue).or_default();
        match (slot.as_slice(), Key::try_from(value.as_slice())) {
            ([], _) => of_queue.header.clone_from(value),
            ([slot], Ok(key)) => drop(of_queue.keys.insert(*slot, key)),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_queue_has_lanes_of_its_own_for_most_keys_and_shared_ones() {
        for (priorities, own, shared) in [(1, 192, 64), (2, 96, 32), (10, 19, 6), (32, 6, 2), (129, 0, 1), (256, 0, 1)]
        {
            let layout = Layout { priorities };
            assert_eq!((layout.own(), layout.shared()), (own, shared));
            let highest = u8::try_from(priorities - 1).unwrap();
            assert!(layout.lane(layout.slots() - 1, highest) < 512);
        }
    }

    #[test]
    fn keys_get_slots_one_after_the_other_and_those_beyond_share_some() {
        let mut keys = FairKeys::new(b"tenant", 1);
        let key = |number: u32| key_of_content(number.to_string().as_bytes());
        for number in 0..192 {
            let slot = keys.slot_for(&key(number), |_| true).unwrap();
            assert_eq!(slot, number as u16);
            keys.assign(slot, key(number));
        }
        assert_eq!(keys.slot_for(&key(5), |_| true), None, "it has one");
        assert_eq!(keys.slot_for(&key(500), |lane| lane >= 256 + 192), None, "all have messages");
        assert_eq!(keys.slot_for(&key(500), |lane| lane == 256 + 7 || lane >= 256 + 192), Some(7));
        assert_eq!(keys.slot_for(&key(500), |lane| lane < 256 + 192), None, "it may have messages in a shared one");
        keys.assign(7, key(500));
        assert!(!keys.slots.contains_key(&key(7)) && keys.slots[&key(500)] == 7);
        let shared: BTreeSet<u16> = (0..1_000).map(|number| keys.layout.shared_slot(&key(number))).collect();
        assert_eq!(shared, (192..256).collect());
    }

    #[test]
    fn texts_are_distinct_keys_however_long() {
        let texts = ["", "a", "aa", "a\0", "0123456789abcde", "0123456789abcdef", "0123456789abcdeg"];
        let keys: BTreeSet<Key> = texts.iter().map(|text| key_of_content(text.as_bytes())).collect();
        assert_eq!(keys.len(), texts.len());
    }
}
