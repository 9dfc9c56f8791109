//! The owners of marks: offsets of a stream's groups, leases on a queue's messages, ids, progress and logs of named
//! producers, how far a queue's messages were delivered, and copied from one log to another, the last decision about a
//! stage, which queues have a log of their own, the number of shards, ids of streams, ids that queues and exchanges
//! have seen, histories of exchanges, and keys that take turns. See `docs/format.md`, "mark".
//!
//! Invariant: owners differ in their first byte, so that no two of them collide. This module does not know what the
//! values mean.

use std::collections::BTreeMap;
use std::ops::Deref;

use penstock_queue::QueueId;

use crate::batches::Batches;
use crate::record::le_u64;

type Marks = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

const GROUPS: u8 = b'g';
const LEASES: u8 = b'l';
/// The owner of the ids of producers, by their names.
pub const PRODUCER_NAMES: &[u8] = b"p";
/// The owner of the number of a vhost's shards.
pub const SHARD_COUNT: &[u8] = b"n";
/// The owner of the numbers of histories, by the names of their exchanges; an empty key has the last number.
pub const HISTORIES: &[u8] = b"h";
const GIVEN: u8 = b'y';
const TURNS: u8 = b't';
const PRODUCER: u8 = b'q';
const PRODUCER_LOGS: u8 = b'r';
const STAGE: u8 = b's';
const DELIVERIES: u8 = b'd';
const OWN_LOG: u8 = b'o';
const IDENTITY: u8 = b'i';
const COPIED: u8 = b'c';
pub(crate) const WINDOW: u8 = b'w';
pub(crate) const EXCHANGE_WINDOW: u8 = b'e';
/// The owner of a checkpoint's list of segments; no record has it.
pub(crate) const LIVE_SEGMENTS: &[u8] = b"f";
/// The owner of a checkpoint's list of skipped sequences; no record has it.
pub(crate) const SKIPPED: &[u8] = b"k";

/// The owner of the offsets of a stream's groups, by their names.
#[must_use]
pub fn owner_of_groups(queue: QueueId) -> QueueOwner {
    owner_of(GROUPS, queue)
}

/// The queue of an owner of groups.
#[must_use]
pub fn queue_of_groups(owner: &[u8]) -> Option<QueueId> {
    queue_of(GROUPS, owner)
}

/// The owner of a queue's leases, by their numbers and holders.
#[must_use]
pub fn owner_of_leases(queue: QueueId) -> QueueOwner {
    owner_of(LEASES, queue)
}

/// The queue of an owner of leases.
#[must_use]
pub fn queue_of_leases(owner: &[u8]) -> Option<QueueId> {
    queue_of(LEASES, owner)
}

/// The owner of the last decision about a stage, whose key is empty.
#[must_use]
pub fn owner_of_stage(queue: QueueId) -> QueueOwner {
    owner_of(STAGE, queue)
}

/// The stage of an owner.
#[must_use]
pub fn queue_of_stage(owner: &[u8]) -> Option<QueueId> {
    queue_of(STAGE, owner)
}

/// The owner of a queue's delivery position, whose key is empty.
#[must_use]
pub fn owner_of_deliveries(queue: QueueId) -> QueueOwner {
    owner_of(DELIVERIES, queue)
}

/// The queue of an owner of deliveries.
#[must_use]
pub fn queue_of_deliveries(owner: &[u8]) -> Option<QueueId> {
    queue_of(DELIVERIES, owner)
}

/// The owner of the note that a queue has a log of its own, whose key is empty.
#[must_use]
pub fn owner_of_own_log(queue: QueueId) -> QueueOwner {
    owner_of(OWN_LOG, queue)
}

/// The queue with a log of its own of an owner.
#[must_use]
pub fn queue_of_own_log(owner: &[u8]) -> Option<QueueId> {
    queue_of(OWN_LOG, owner)
}

/// The owner of a stream's id, whose key is empty.
#[must_use]
pub fn owner_of_identity(queue: QueueId) -> QueueOwner {
    owner_of(IDENTITY, queue)
}

/// The stream of an owner of an id.
#[must_use]
pub fn queue_of_identity(owner: &[u8]) -> Option<QueueId> {
    queue_of(IDENTITY, owner)
}

/// The owner of the sequence of a source below which all messages count as copied; the key is empty.
#[must_use]
pub fn owner_of_copied(source: QueueId) -> QueueOwner {
    owner_of(COPIED, source)
}

/// The owner of the ids that a queue has seen, by the ids.
#[must_use]
pub fn owner_of_window(queue: QueueId) -> QueueOwner {
    owner_of(WINDOW, queue)
}

/// The queue of an owner of a window.
#[must_use]
pub fn queue_of_window(owner: &[u8]) -> Option<QueueId> {
    queue_of(WINDOW, owner)
}

/// The owner of the ids that an exchange has seen, by the ids.
#[must_use]
pub fn owner_of_exchange_window(exchange: &[u8]) -> Vec<u8> {
    [&[EXCHANGE_WINDOW], exchange].concat()
}

/// The exchange of an owner of a window.
#[must_use]
pub fn exchange_of_window(owner: &[u8]) -> Option<&[u8]> {
    owner.split_first().filter(|(kind, _)| **kind == EXCHANGE_WINDOW).map(|(_, exchange)| exchange)
}

/// The owner of how far a history was copied to what its exchange was bound to, by that.
#[must_use]
pub fn owner_of_given(history: QueueId) -> QueueOwner {
    owner_of(GIVEN, history)
}

/// The history of such an owner.
#[must_use]
pub fn history_of_given(owner: &[u8]) -> Option<QueueId> {
    queue_of(GIVEN, owner)
}

/// The owner of the keys of a queue that take turns, by their slots; an empty key has the name of their header.
#[must_use]
pub fn owner_of_turns(queue: QueueId) -> QueueOwner {
    owner_of(TURNS, queue)
}

/// The queue of such an owner.
#[must_use]
pub fn queue_of_turns(owner: &[u8]) -> Option<QueueId> {
    queue_of(TURNS, owner)
}

/// The source of such an owner, and the sequence. Checkpoints have them in a section of their own.
pub(crate) fn copied_in(owner: &[u8], value: &[u8]) -> Option<(QueueId, u64)> {
    let source = queue_of(COPIED, owner)?;
    (value.len() == 8).then(|| (source, le_u64(value)))
}

/// An owner that stands for a queue: its kind, and the queue's number in 4 bytes, or in 5 where it needs them. So a number
/// has one owner of each kind, and those of small numbers are the same in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOwner {
    bytes: [u8; 6],
    length: usize,
}

impl Deref for QueueOwner {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn owner_of(kind: u8, queue: QueueId) -> QueueOwner {
    let [a, b, c, d, high] = queue.to_bytes();
    QueueOwner { bytes: [kind, a, b, c, d, high], length: if high == 0 { 5 } else { 6 } }
}

fn queue_of(wanted: u8, owner: &[u8]) -> Option<QueueId> {
    let (kind, number) = match *owner {
        [kind, a, b, c, d] => (kind, [a, b, c, d, 0]),
        [kind, a, b, c, d, high] if high > 0 => (kind, [a, b, c, d, high]),
        _ => return None,
    };
    (kind == wanted).then(|| QueueId::from_bytes(number))
}

/// The owner of the highest sequence of a producer.
#[must_use]
pub fn owner_of_producer(id: u64) -> [u8; 9] {
    owner_by_id(PRODUCER, id)
}

/// The owner of the logs that a producer's messages went to, whose key is empty.
#[must_use]
pub fn owner_of_producer_logs(id: u64) -> [u8; 9] {
    owner_by_id(PRODUCER_LOGS, id)
}

/// The producer's id of an owner of its logs.
#[must_use]
pub fn producer_of_logs(owner: &[u8]) -> Option<u64> {
    let (&kind, id) = owner.split_first().filter(|(_, id)| id.len() == 8)?;
    (kind == PRODUCER_LOGS).then(|| le_u64(id))
}

fn owner_by_id(kind: u8, id: u64) -> [u8; 9] {
    let mut owner = [kind; 9];
    let (_, number) = owner.split_at_mut(1);
    number.copy_from_slice(&id.to_le_bytes());
    owner
}

/// A checkpoint's copy of what messages say of their producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProducerMark {
    pub(crate) highest: u64,
    /// Of a producer that numbers batches.
    pub(crate) batches: Option<Batches>,
}

/// The mark of a producer: its highest sequence and, if it numbers batches, the last of them.
pub(crate) fn producer_value(highest: u64, batches: Option<&Batches>) -> Vec<u8> {
    let mut value = highest.to_le_bytes().to_vec();
    batches.into_iter().for_each(|batches| batches.encode(&mut value));
    value
}

/// A producer's id and its mark; `None` instead of a mark removes the producer.
pub(crate) fn producer_in(owner: &[u8], value: &[u8]) -> Option<(u64, Option<ProducerMark>)> {
    let (_, id) = owner.split_first().filter(|(kind, id)| **kind == PRODUCER && id.len() == 8)?;
    if value.is_empty() {
        return Some((le_u64(id), None));
    }
    let (highest, batches) = value.split_at_checked(8)?;
    let batches = if batches.is_empty() { None } else { Some(Batches::decode(batches)?) };
    Some((le_u64(id), Some(ProducerMark { highest: le_u64(highest), batches })))
}

/// Removes the marks of a queue.
pub(crate) fn forget_queue(marks: &mut Marks, queue: QueueId) {
    let owners = [owner_of_groups, owner_of_leases, owner_of_stage, owner_of_deliveries, owner_of_identity];
    let others: [fn(QueueId) -> QueueOwner; 2] = [owner_of_given, owner_of_turns];
    for owner in owners.into_iter().chain(others).map(|owner| owner(queue)) {
        let from = (owner.to_vec(), Vec::new());
        let keys: Vec<_> =
            marks.range(from.clone()..).map(|(key, _)| key).take_while(|key| key.0 == from.0).cloned().collect();
        for key in keys {
            marks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ProducerMark, owner_of_deliveries, owner_of_groups, owner_of_identity, owner_of_leases, owner_of_own_log,
        owner_of_producer, owner_of_producer_logs, owner_of_stage, producer_in, producer_of_logs, producer_value,
        queue_of_deliveries, queue_of_groups, queue_of_identity, queue_of_leases, queue_of_own_log, queue_of_stage,
    };
    use penstock_queue::QueueId;

    #[test]
    fn a_queue_with_a_number_above_32_bits_has_owners_of_its_own() {
        for number in [1, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, QueueId::MAX.0] {
            let owner = owner_of_leases(QueueId(number));

            assert_eq!(queue_of_leases(&owner), Some(QueueId(number)));
            assert_eq!(owner.len(), if number < 1 << 32 { 5 } else { 6 });
            assert_eq!(queue_of_stage(&owner), None);
        }
        assert_eq!(queue_of_leases(b"l\x01\0\0\0\0"), None, "the long form of a short number");
    }

    #[test]
    fn owners_name_what_they_stand_for() {
        assert_eq!(queue_of_groups(&owner_of_groups(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_leases(&owner_of_leases(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_leases(&owner_of_groups(QueueId(1))), None);
        assert_eq!(queue_of_stage(&owner_of_stage(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_stage(&owner_of_groups(QueueId(1))), None);
        assert_eq!(queue_of_deliveries(&owner_of_deliveries(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_deliveries(&owner_of_stage(QueueId(1))), None);
        assert_eq!(queue_of_own_log(&owner_of_own_log(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_own_log(&owner_of_stage(QueueId(1))), None);
        assert_eq!(queue_of_identity(&owner_of_identity(QueueId(0x0102_0304))), Some(QueueId(0x0102_0304)));
        assert_eq!(queue_of_identity(&owner_of_own_log(QueueId(1))), None);
        let mark = ProducerMark { highest: 5, batches: None };
        assert_eq!(producer_in(&owner_of_producer(77), &producer_value(5, None)), Some((77, Some(mark))));
        assert_eq!(producer_in(&owner_of_producer(77), &[]), Some((77, None)));
        assert_eq!(queue_of_groups(&owner_of_producer(77)), None);
        assert_eq!(producer_of_logs(&owner_of_producer_logs(77)), Some(77));
        assert_eq!(producer_of_logs(&owner_of_producer(77)), None);
        assert_eq!(producer_in(&owner_of_groups(QueueId(1)), &5_u64.to_le_bytes()), None);
    }
}
