//! Which exchanges keep their last messages, and what was given of them, as values.
//!
//! A history is a queue without a name and without consumers, in shard 0, whose number no declaration gets. Invariants: no
//! number is used twice; what was given is written in one envelope with the copies. This module knows no log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use penstock_log::marks;
use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// Something that an exchange with a history was bound to: a queue by its number, or an exchange by its name.
pub(crate) type Receiver = Vec<u8>;

const QUEUE: u8 = b'q';
const EXCHANGE: u8 = b'e';

/// How far a history was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// The messages below this sequence are to be copied.
    Below(u64),
    All,
}

impl Given {
    pub fn value(self) -> [u8; 8] {
        match self {
            Given::Below(sequence) => sequence.to_le_bytes(),
            Given::All => [0; 8],
        }
    }

    fn of(value: &[u8]) -> Option<Given> {
        match u64::from_le_bytes(value.try_into().ok()?) {
            0 => Some(Given::All),
            sequence => Some(Given::Below(sequence)),
        }
    }
}

/// When the copies of kept messages that are left are made, and for whom next.
#[derive(Debug)]
pub(crate) struct Giving {
    /// Held while some are copied, or it is forgotten who has them.
    pub alone: Mutex<()>,
    /// When the next round begins; `u64::MAX` when nothing is left.
    pub next_ms: AtomicU64,
    pub round: Mutex<Round>,
}

/// All receivers have a turn in it.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The last receiver that had its turn; `None` between two rounds.
    pub after: Option<(QueueId, Receiver)>,
    pub is_left: bool,
}

impl Default for Giving {
    fn default() -> Giving {
        Giving { alone: Mutex::default(), next_ms: AtomicU64::new(u64::MAX), round: Mutex::default() }
    }
}

/// See the module. Other logs than shard 0 have `given` alone.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    /// By the names of their exchanges.
    kept: FxHashMap<Box<[u8]>, QueueId>,
    /// The histories that a start found, by the names of exchanges that were not put yet.
    unclaimed: FxHashMap<Box<[u8]>, QueueId>,
    /// The exchanges of both.
    exchanges: FxHashMap<QueueId, Box<[u8]>>,
    given: BTreeMap<(QueueId, Receiver), Given>,
    /// The keys of `given` whose copies are not complete.
    pending: BTreeSet<(QueueId, Receiver)>,
    last: u64,
}

impl Histories {
    pub fn of_start(found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>, queues: impl Iterator<Item = QueueId>) -> Histories {
        let mut histories = Histories::default();
        for ((owner, key), value) in found {
            if owner == marks::HISTORIES {
                let Ok(number) = value.as_slice().try_into().map(u64::from_le_bytes) else { continue };
                histories.last = histories.last.max(number);
                if !key.is_empty() {
                    histories.unclaimed.insert(key.as_slice().into(), QueueId(number));
                    histories.exchanges.insert(QueueId(number), key.as_slice().into());
                }
            } else if let Some((history, given)) = marks::history_of_given(owner).zip(Given::of(value)) {
                histories.set_given(history, key, Some(given));
            }
        }
        let numbers = queues.filter(|id| QueueId::DECLARED_MAX < *id && *id <= QueueId::HISTORY_MAX);
        histories.last = numbers.map(|id| id.0).fold(histories.last, u64::max);
        histories
    }

    /// Whether it is the number of a history.
    pub fn has(&self, id: QueueId) -> bool {
        self.exchanges.contains_key(&id)
    }

    /// The history of an exchange that is put, if it had one before.
    pub fn claim(&mut self, exchange: &[u8]) -> Option<QueueId> {
        if let Some(found) = self.unclaimed.remove(exchange) {
            self.kept.insert(exchange.into(), found);
        }
        self.kept.get(exchange).copied()
    }

    /// A new number for an exchange; `None` when all are used up.
    pub fn begin(&mut self, exchange: &[u8]) -> Option<QueueId> {
        let number = self.last.max(QueueId::DECLARED_MAX.0) + 1;
        let history = QueueId(number);
        if history > QueueId::HISTORY_MAX {
            return None;
        }
        self.last = number;
        self.kept.insert(exchange.into(), history);
        self.exchanges.insert(history, exchange.into());
        Some(history)
    }

    pub fn forget(&mut self, exchange: &[u8]) -> Option<QueueId> {
        let history = self.kept.remove(exchange).or_else(|| self.unclaimed.remove(exchange))?;
        self.exchanges.remove(&history);
        self.given.retain(|(of, _), _| *of != history);
        self.pending.retain(|(of, _)| *of != history);
        Some(history)
    }

    /// The exchanges of a start that did not come again.
    pub fn unclaimed(&self) -> Vec<Box<[u8]>> {
        self.unclaimed.keys().cloned().collect()
    }

    pub fn exchange_of(&self, history: QueueId) -> Option<&[u8]> {
        self.exchanges.get(&history).map(|name| &**name)
    }

    pub fn given(&self, history: QueueId, receiver: &[u8]) -> Option<Given> {
        self.given.get(&(history, receiver.to_vec())).copied()
    }

    pub fn receivers(&self) -> Vec<(QueueId, Receiver)> {
        self.given.keys().cloned().collect()
    }

    /// The next receivers that do not have all yet.
    pub fn pending_after(&self, last: Option<&(QueueId, Receiver)>, count_max: usize) -> Vec<(QueueId, Receiver)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.pending.range((from, Bound::Unbounded)).take(count_max).cloned().collect()
    }

    /// `None` forgets it.
    pub fn set_given(&mut self, history: QueueId, receiver: &[u8], given: Option<Given>) {
        let key = (history, receiver.to_vec());
        match given {
            Some(given) => drop(self.given.insert(key.clone(), given)),
            None => drop(self.given.remove(&key)),
        }
        if matches!(given, Some(Given::Below(_))) {
            self.pending.insert(key);
        } else {
            self.pending.remove(&key);
        }
    }
}

pub(crate) fn receiver_queue(id: QueueId) -> Receiver {
    [&[QUEUE], id.to_bytes().as_slice()].concat()
}

pub(crate) fn receiver_exchange(name: &str) -> Receiver {
    [&[EXCHANGE], name.as_bytes()].concat()
}

/// A receiver as a queue, or as the name of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives<'a> {
    Queue(QueueId),
    Exchange(&'a str),
}

pub(crate) fn receives(receiver: &[u8]) -> Option<Receives<'_>> {
    match receiver.split_first()? {
        (&QUEUE, number) => Some(Receives::Queue(QueueId::from_bytes(number.try_into().ok()?))),
        (&EXCHANGE, name) => Some(Receives::Exchange(std::str::from_utf8(name).ok()?)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_start_finds_the_numbers_and_uses_none_again() {
        let mut histories = Histories::default();
        let first = histories.begin(b"a").unwrap();
        let second = histories.begin(b"b").unwrap();
        assert!(QueueId::DECLARED_MAX < first && first < second);
        assert_eq!(histories.forget(b"b"), Some(second));
        let marks = BTreeMap::from([
            ((marks::HISTORIES.to_vec(), b"a".to_vec()), first.0.to_le_bytes().to_vec()),
            ((marks::HISTORIES.to_vec(), Vec::new()), second.0.to_le_bytes().to_vec()),
            ((marks::owner_of_given(first).to_vec(), receiver_queue(QueueId(7))), Given::Below(9).value().to_vec()),
            ((marks::owner_of_given(first).to_vec(), receiver_exchange("x")), Given::All.value().to_vec()),
        ]);

        let mut found = Histories::of_start(&marks, std::iter::empty());

        assert!(found.has(first) && !found.has(second));
        assert_eq!((found.claim(b"a"), found.claim(b"b")), (Some(first), None));
        assert!(found.begin(b"b").unwrap() > second);
        assert_eq!(found.given(first, &receiver_queue(QueueId(7))), Some(Given::Below(9)));
        assert_eq!(found.given(first, &receiver_exchange("x")), Some(Given::All));
        assert_eq!(found.given(first, &receiver_exchange("y")), None);
    }

    #[test]
    fn receivers_name_queues_and_exchanges() {
        assert_eq!(receives(&receiver_queue(QueueId(300))), Some(Receives::Queue(QueueId(300))));
        assert_eq!(receives(&receiver_exchange("logs")), Some(Receives::Exchange("logs")));
        assert_eq!(receives(b"zlogs"), None);
        assert_eq!(receives(b""), None);
    }
}
