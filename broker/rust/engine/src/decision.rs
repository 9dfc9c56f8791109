//! A stage beside its stream: the last decision about it, as stored under a mark (docs/format.md, "mark"), and the tag that assigns a staged
//! row to its attempt. Pure: it knows no shard.

use std::collections::BTreeMap;

use penstock_log::{RowDigest, RowsDigest, marks};
use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// The most attempts of a batch; the mark that names them has half a MiB then.
pub(crate) const ATTEMPTS_MAX: usize = 65_536;

/// Of so many decided batches a stage remembers the rows.
const DECIDED_MAX: usize = 128;

const DONE: u8 = 0;
const COPYING: u8 = 1;

/// The batch of a staged row, and the attempt at a part of it. It is stored where other records have their exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTag {
    pub batch: u64,
    pub attempt: u64,
}

impl StageTag {
    #[must_use]
    pub fn to_text(self) -> String {
        format!("{}/{:x}", self.batch, self.attempt)
    }

    pub(crate) fn parse(text: &[u8]) -> Option<StageTag> {
        let (batch, attempt) = std::str::from_utf8(text).ok()?.split_once('/')?;
        Some(StageTag { batch: batch.parse().ok()?, attempt: u64::from_str_radix(attempt, 16).ok()? })
    }
}

/// Result of a batch: rows that were stored, and unroutable ones. Both count rows that this call copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedOutcome {
    /// An earlier call decided it, with the same rows.
    pub was_decided: bool,
    pub stored: u64,
    pub unroutable: u64,
}

/// What a batch was when it was decided: its attempts, the number of their rows, and the rows, each in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub batch: u64,
    pub attempts: u64,
    pub rows: u64,
    pub digest: u64,
}

/// The digest of attempts, in any order.
pub(crate) fn digest_of(attempts: impl Iterator<Item = u64>) -> u64 {
    attempts.fold(RowsDigest::default(), |all, attempt| all.and(RowDigest::of_number(attempt))).0
}

/// The last batches of a stage that were decided, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    kept: Vec<Decided>,
    /// The newest batch that is not kept any more.
    forgotten: Option<u64>,
}

impl History {
    pub fn add(&mut self, decided: Decided) {
        self.kept.push(decided);
        let too_many = self.kept.len().saturating_sub(DECIDED_MAX);
        if let Some(last) = self.kept.drain(..too_many).next_back() {
            self.forgotten = Some(last.batch);
        }
    }

    /// What a batch was, if it was decided; an error when that is forgotten.
    pub fn find(&self, batch: u64) -> Result<Option<Decided>, Forgotten> {
        if self.forgotten.is_some_and(|forgotten| batch <= forgotten) {
            return Err(Forgotten);
        }
        Ok(self.kept.iter().find(|one| one.batch == batch).copied())
    }

    /// Note that a batch was repeated by these attempts.
    pub fn repeated(&mut self, batch: u64, attempts: u64) {
        self.kept.iter_mut().filter(|one| one.batch == batch).for_each(|one| one.attempts = attempts);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.forgotten.map_or(0, |batch| batch.saturating_add(1)).to_le_bytes());
        out.push(self.kept.len() as u8);
        for one in &self.kept {
            for number in [one.batch, one.attempts, one.rows, one.digest] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<History> {
        let forgotten = number(bytes)?.checked_sub(1);
        let count = byte(bytes)?;
        let one = |bytes: &mut &[u8]| {
            let [batch, attempts, rows, digest] = [number(bytes)?, number(bytes)?, number(bytes)?, number(bytes)?];
            Some(Decided { batch, attempts, rows, digest })
        };
        let kept: Option<Vec<_>> = (0..count).map(|_| one(bytes)).collect();
        Some(History { kept: kept?, forgotten })
    }
}

/// It is not known any more what a batch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten;

/// The last decided batch, the rows of it that are still to be copied, and what it and batches before it were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub batch: u64,
    pub history: History,
    pub copying: Option<Copying>,
}

/// Source and target of the copy. `base` is the stage's highest producer sequence before, in any log: the row at `first` gets the
/// next one, so a resumed copy repeats its sequences and another batch's has higher ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copying {
    pub first: u64,
    /// Exclusive.
    pub end: u64,
    pub base: u64,
    pub exchange: Vec<u8>,
    /// For rows that have none of their own, and for all when the exchange is the default one.
    pub routing_key: Vec<u8>,
    pub attempts: Vec<u64>,
}

impl Decision {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![if self.copying.is_some() { COPYING } else { DONE }];
        out.extend_from_slice(&self.batch.to_le_bytes());
        self.history.encode(&mut out);
        let Some(copying) = &self.copying else { return out };
        for number in [copying.first, copying.end, copying.base] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for name in [&copying.exchange, &copying.routing_key] {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
        }
        copying.attempts.iter().for_each(|attempt| out.extend_from_slice(&attempt.to_le_bytes()));
        out
    }

    /// `None` when the bytes are no decision.
    pub fn decode(mut bytes: &[u8]) -> Option<Decision> {
        let kind = byte(&mut bytes)?;
        let batch = number(&mut bytes)?;
        let history = History::decode(&mut bytes)?;
        let copying = match kind {
            DONE => None,
            COPYING => Some(Copying {
                first: number(&mut bytes)?,
                end: number(&mut bytes)?,
                base: number(&mut bytes)?,
                exchange: name(&mut bytes)?,
                routing_key: name(&mut bytes)?,
                attempts: attempts(bytes)?,
            }),
            _ => return None,
        };
        Some(Decision { batch, history, copying })
    }
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn name(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let length = byte(bytes)?;
    let (name, rest) = bytes.split_at_checked(usize::from(length))?;
    *bytes = rest;
    Some(name.to_vec())
}

fn attempts(bytes: &[u8]) -> Option<Vec<u64>> {
    let (numbers, rest) = bytes.as_chunks();
    rest.is_empty().then(|| numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

/// State of a stage beside its stream.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub decision: Option<Decision>,
    /// A decision or a discard is running.
    pub is_busy: bool,
}

impl Stage {
    pub fn of_start(decision: Decision) -> Stage {
        Stage { decision: Some(decision), is_busy: false }
    }

    /// Whether rows of a batch are being copied.
    pub fn is_copying(&self, batch: u64) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.batch == batch && decision.copying.is_some())
    }

    pub fn is_undone(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.copying.is_some())
    }
}

/// The decisions in a log, by stage.
pub(crate) fn decisions_in(found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> FxHashMap<QueueId, Decision> {
    let decided = found.iter().filter_map(|((owner, _), value)| {
        let queue = marks::queue_of_stage(owner)?;
        Some((queue, Decision::decode(value)?))
    });
    decided.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn copying() -> Decision {
        let copying = Copying {
            first: 3,
            end: 9,
            base: 70,
            exchange: b"target".to_vec(),
            routing_key: Vec::new(),
            attempts: vec![1, u64::MAX],
        };
        let mut history = History::default();
        (0..130).for_each(|batch| history.add(Decided { batch, attempts: !batch, rows: 3, digest: 5 }));
        Decision { batch: 129, history, copying: Some(copying) }
    }

    #[test]
    fn the_last_batches_are_remembered_and_that_others_are_forgotten() {
        let mut history = copying().history;

        assert_eq!((history.find(1), history.find(130)), (Err(Forgotten), Ok(None)));
        assert_eq!(history.find(2).unwrap().unwrap().attempts, !2);
        history.repeated(2, 99);
        assert_eq!(history.find(2).unwrap().unwrap().attempts, 99);
    }

    #[test]
    fn attempts_have_a_digest_in_any_order() {
        assert_eq!(digest_of([1, 2, 3].into_iter()), digest_of([3, 1, 2].into_iter()));
        assert_ne!(digest_of([1, 1].into_iter()), digest_of([2].into_iter()));
    }

    #[test]
    fn a_decision_is_read_back_and_a_part_of_it_is_none() {
        let bytes = copying().encode();

        assert_eq!(Decision::decode(&bytes), Some(copying()));
        let whole_attempts = |length: &usize| *length < bytes.len() - 16 || *length % 8 != bytes.len() % 8;
        for length in (0..bytes.len()).filter(whole_attempts) {
            assert_eq!(Decision::decode(&bytes[..length]), None, "{length} bytes");
        }
        let done = Decision { copying: None, ..copying() };
        assert_eq!(Decision::decode(&done.encode()), Some(done));
    }

    #[test]
    fn a_tag_is_read_back_and_other_exchanges_are_no_tags() {
        let tag = StageTag { batch: 12, attempt: u64::MAX };

        assert_eq!(StageTag::parse(tag.to_text().as_bytes()), Some(tag));
        for other in ["", "/", "orders", "1/", "/1", "1/x", "-1/2", "1/2/3"] {
            assert_eq!(StageTag::parse(other.as_bytes()), None, "{other}");
        }
    }
}
