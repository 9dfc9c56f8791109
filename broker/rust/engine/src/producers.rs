//! Named producers: which number each has, how far it came, and which publish stream speaks for it.
//!
//! What must stay true: a sequence counts as stored only once its message is in the log's tail, so that what is refused may
//! come again; of several sessions of a name the last one opened has it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use penstock_log::{Producer, marks};
use rustc_hash::FxHashMap;

use crate::error::EngineError;
use crate::shard::Shard;

/// A shard remembers at most so many names, for ever.
pub const PRODUCERS_MAX: usize = 65_536;

/// The right to publish as a producer, until another session is opened for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSession {
    name: String,
    id: NonZeroU64,
    session: u64,
}

impl ProducerSession {
    #[must_use]
    pub fn id(&self) -> NonZeroU64 {
        self.id
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// All of a shard.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    ids: FxHashMap<String, NonZeroU64>,
    /// The highest sequence stored, and the session that may store more.
    standing: FxHashMap<NonZeroU64, (u64, u64)>,
    highest_id: u64,
    last_session: u64,
}

impl Producers {
    pub fn of_start(named: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>, highest: &FxHashMap<u64, u64>) -> Producers {
        let mut producers = Producers::default();
        for ((owner, name), value) in named {
            let id = value.first_chunk().and_then(|id| NonZeroU64::new(u64::from_le_bytes(*id)));
            if owner == marks::PRODUCER_NAMES
                && let Some(id) = id
            {
                producers.ids.insert(String::from_utf8_lossy(name).into_owned(), id);
                producers.highest_id = producers.highest_id.max(id.get());
            }
        }
        for (&id, &sequence) in highest {
            producers.highest_id = producers.highest_id.max(id);
            producers.standing.extend(NonZeroU64::new(id).map(|id| (id, (sequence, 0))));
        }
        producers
    }

    /// Whether a session still has its name.
    pub fn check(&self, session: &ProducerSession) -> Result<(), EngineError> {
        match self.standing.get(&session.id) {
            Some(&(_, current)) if current == session.session => Ok(()),
            _ => Err(EngineError::ProducerTaken(session.name.clone())),
        }
    }

    pub fn has_stored(&self, producer: Producer) -> bool {
        self.standing.get(&producer.id).is_some_and(|&(highest, _)| producer.sequence <= highest)
    }

    pub fn stored(&mut self, producer: Producer) {
        let (highest, _) = self.standing.entry(producer.id).or_default();
        *highest = producer.sequence.max(*highest);
    }

    /// Whether anything is stored of a producer.
    pub fn has_any(&self, id: NonZeroU64) -> bool {
        self.standing.get(&id).is_some_and(|&(highest, _)| highest > 0)
    }

    fn open(&mut self, name: &str, id: NonZeroU64) -> ProducerSession {
        self.last_session += 1;
        let (_, session) = self.standing.entry(id).or_default();
        *session = self.last_session;
        ProducerSession { name: name.to_owned(), id, session: self.last_session }
    }
}

impl Shard {
    /// Takes a producer's name over from whoever had it; a new name is written down.
    ///
    /// # Errors
    /// `TooMany`; `Log` when the name cannot be written; `Stopped` and `Closed`.
    pub fn open_producer(&self, name: &str) -> Result<ProducerSession, EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let state = &mut *guard;
        if let Some(&id) = state.producers.ids.get(name) {
            return Ok(state.producers.open(name, id));
        }
        if state.producers.ids.len() >= PRODUCERS_MAX {
            return Err(EngineError::TooMany { what: "names of producers", max: PRODUCERS_MAX });
        }
        let id = NonZeroU64::MIN.saturating_add(state.producers.highest_id);
        state.log.append_mark(marks::PRODUCER_NAMES, name.as_bytes(), &id.get().to_le_bytes())?;
        state.write()?;
        state.producers.highest_id = id.get();
        state.producers.ids.insert(name.to_owned(), id);
        Ok(state.producers.open(name, id))
    }

    /// The highest sequence stored of a producer; `None` when nothing is.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn producer_sequence(&self, name: &str) -> Result<Option<u64>, EngineError> {
        let guard = self.lock()?;
        let standing = guard.producers.ids.get(name).and_then(|id| guard.producers.standing.get(id));
        Ok(standing.map(|&(highest, _)| highest).filter(|&highest| highest > 0))
    }
}
