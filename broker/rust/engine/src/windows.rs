//! The windows of one log by which queues and exchanges recognize repetitions, as values.
//!
//! Invariant: an id is in a window once a message with it is stored. This module knows no log.

use penstock_log::{marks, seen_value};
use penstock_queue::window::NEVER;
use penstock_queue::{QueueId, SeenId, Window, content_of};
use penstock_wire::amqp::table::{self, ValueRef};
use rustc_hash::FxHashMap;

/// The header of a message that says for how many milliseconds its id is remembered.
const TTL_HEADER: &[u8] = b"x-cache-ttl";

/// Times in the log have 48 bits.
const TIME_MS_MAX: u64 = (1 << 48) - 1;

/// How a queue or an exchange recognizes repetitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deduplication {
    /// The header with the id. Messages without it are not looked at.
    pub header: Box<[u8]>,
    /// How many ids are remembered.
    pub size_max: usize,
    /// How long, if the message does not say it; else until newer ones need the place.
    pub ttl_ms: Option<u64>,
}

/// The settings of a queue or an exchange, and what it has seen.
#[derive(Debug)]
pub(crate) struct Watch {
    pub settings: Deduplication,
    pub window: Window,
    /// Messages since the start that it had seen.
    pub deduplicated_count: u64,
}

/// The windows of one log.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    pub queues: FxHashMap<QueueId, Watch>,
    pub exchanges: FxHashMap<Box<[u8]>, Watch>,
    /// Windows that a start found, until their queues and exchanges are put; by the owners of their marks.
    pub recovered: FxHashMap<Vec<u8>, Window>,
    /// The digests to remember with the message that is being stored.
    pub new: Vec<Sighting>,
}

/// An id of the message that is being stored.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    /// `None` for its exchange.
    pub queue: Option<QueueId>,
    /// Of the mark.
    pub owner: Vec<u8>,
    pub id: SeenId,
    pub expires_at_ms: u64,
    pub size_max: usize,
}

impl Sighting {
    pub fn value(&self) -> [u8; 10] {
        seen_value(self.expires_at_ms, self.size_max)
    }
}

impl Watch {
    /// The id of a message, and when it is forgotten; `None` without one.
    pub fn id_of(&self, headers: Option<&[u8]>, now_ms: u64) -> Option<(SeenId, u64)> {
        let headers = headers?;
        let id = content_of(header_in(headers, &self.settings.header)?)?;
        let own_ttl_ms = header_in(headers, TTL_HEADER).and_then(content_of);
        let own_ttl_ms = own_ttl_ms.and_then(|text| std::str::from_utf8(&text).ok()?.parse::<u64>().ok());
        let ttl_ms = own_ttl_ms.or(self.settings.ttl_ms);
        let expires_at_ms = ttl_ms.map_or(NEVER, |ttl| now_ms.saturating_add(ttl).min(TIME_MS_MAX));
        Some((digest_of(&id), expires_at_ms))
    }
}

/// The last header of that name. One that cannot be read ends the table.
pub(crate) fn header_in<'a>(headers: &'a [u8], name: &[u8]) -> Option<ValueRef<'a>> {
    table::entries(headers).map_while(Result::ok).filter(|(found, _)| *found == name).last().map(|(_, value)| value)
}

/// The first half of the SHA-256: a wrong match would lose a message, also one that an attacker looks for.
fn digest_of(id: &[u8]) -> SeenId {
    let digest = ring::digest::digest(&ring::digest::SHA256, id);
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}

impl Windows {
    pub fn remember(&mut self, sighting: &Sighting) {
        let watch = match sighting.queue {
            Some(queue) => self.queues.get_mut(&queue),
            None => sighting.owner.get(1..).and_then(|exchange| self.exchanges.get_mut(exchange)),
        };
        if let Some(watch) = watch {
            watch.window.insert(sighting.id, sighting.expires_at_ms, sighting.size_max);
        }
    }

    /// Whether the message that is being stored is to be remembered.
    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    pub fn of_start(recovered: impl IntoIterator<Item = (Vec<u8>, Window)>) -> Windows {
        Windows { recovered: recovered.into_iter().collect(), ..Windows::default() }
    }

    /// The log has it that the queue is deleted.
    pub fn forget_queue(&mut self, id: QueueId) {
        self.queues.remove(&id);
        self.recovered.remove(&*marks::owner_of_window(id));
    }

    pub fn repeated_at(&self, exchange: &[u8]) -> u64 {
        self.exchanges.get(exchange).map_or(0, |watch| watch.deduplicated_count)
    }
}
