//! A stage beside its stream: the last decision about it, as stored under a mark (docs/format.md, "mark"), and the tag that assigns a staged
//! row to its attempt. Pure: it knows no shard.

use std::collections::BTreeMap;

use penstock_log::marks;
use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// The most attempts of a batch; the mark that names them has half a MiB then.
pub(crate) const ATTEMPTS_MAX: usize = 65_536;

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

/// The last decided batch, and the rows of it that are still to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub batch: u64,
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
        Some(Decision { batch, copying })
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
        Decision { batch: 7, copying: Some(copying) }
    }

    #[test]
    fn a_decision_is_read_back_and_a_part_of_it_is_none() {
        let bytes = copying().encode();

        assert_eq!(Decision::decode(&bytes), Some(copying()));
        let whole_attempts = |length: &usize| *length < bytes.len() - 16 || *length % 8 != bytes.len() % 8;
        for length in (0..bytes.len()).filter(whole_attempts) {
            assert_eq!(Decision::decode(&bytes[..length]), None, "{length} bytes");
        }
        let done = Decision { batch: 7, copying: None };
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
