//! Dead letters as they will be stored: read, rewritten and routed, without any lock.

use std::sync::Arc;

use penstock_log::{Attributes, DEADLINE_MS_MAX, ENVELOPE_TARGETS_MAX, LogError, MessageView, Payload};
use penstock_queue::{Matched, QueueId, Routable, Routing, Sequence};
use penstock_wire::amqp::deaths::{Death, Reason, further_keys, left_without_rejection, of_dead_letter};
use penstock_wire::amqp::properties::{delivery_mode_of, headers_of};
use penstock_wire::amqp::routing_headers::{RoutingHeaders, as_delivered};

use crate::dead_letters::DeadLetters;
use crate::error::EngineError;
use crate::expiry::{Found, view_of};
use crate::priorities::target_of;
use crate::publication::Publication;

/// Bytes of bodies that end a part, so that little is held in memory.
const BYTES_AT_ONCE: u64 = 1 << 20;

/// A message with a larger body stays: with its history it might be larger than a record.
const BODY_BYTES_MAX: u32 = 1020 << 20;

/// Targets that end a part. Only one message alone has more than an envelope.
const TARGETS_AT_ONCE: usize = 4096;

/// Random exchanges choose by the place of a letter in its queue, so that one that is moved again goes where it went before.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Dead letters of one queue.
pub(super) struct Part {
    pub id: QueueId,
    pub name: String,
    /// `None` when they are only dropped.
    pub settings: Option<Arc<DeadLetters>>,
    pub dying: Vec<(Sequence, Reason)>,
    pub found: Vec<Found>,
    /// Those, in their order, that have no record because it is not committed yet.
    pub uncommitted: Vec<Sequence>,
}

impl Part {
    pub fn is_uncommitted(&self, sequence: Sequence) -> bool {
        self.uncommitted.binary_search(&sequence).is_ok()
    }
}

/// A dead letter. One without a record that can be read goes back: its delivery finds that, too, and reports it. One whose record is
/// not committed yet stays.
pub(super) struct Letter<'a> {
    pub sequence: Sequence,
    pub reason: Reason,
    pub view: Option<MessageView<'a>>,
    properties: Vec<u8>,
    exchange: String,
    /// The first is stored with it, and all of them are routed by.
    keys: Vec<Vec<u8>>,
    attributes: Attributes,
    with_source: Attributes,
    /// Its queues in this log.
    pub queues: Vec<QueueId>,
    /// Whether another log has it.
    pub is_elsewhere: bool,
    /// Whether it stays for now, because a queue does not take it.
    pub stays: bool,
}

impl Letter<'_> {
    /// Whether it stays in its queue until it is taken. A queue that is over its length drops it, or its limit would not hold.
    pub fn is_kept(&self, settings: Option<&DeadLetters>) -> bool {
        self.reason != Reason::MaxLength && settings.is_some_and(|settings| settings.at_least_once)
    }

    pub fn body_bytes(&self) -> u32 {
        self.view.map_or(0, |view| u32::try_from(view.body.len()).unwrap_or(u32::MAX))
    }

    /// Delays it as its header says: it comes through an exchange that delays messages.
    fn delay(&mut self, now_ms: u64) {
        let Some(headers) = headers_of(&self.properties).ok().flatten() else { return };
        let Some(delay_ms) = RoutingHeaders::of(headers).delay_ms() else { return };
        if let Ok(properties) = as_delivered(&self.properties, true) {
            self.properties = properties;
        }
        let due_at_ms = Some(now_ms.saturating_add(delay_ms).min(DEADLINE_MS_MAX));
        self.attributes.due_at_ms = due_at_ms;
        self.with_source.due_at_ms = due_at_ms;
    }

    /// As it is published. A copy for another log has its source.
    pub fn publication(&self, is_copy: bool) -> Result<Option<Publication<'_>>, LogError> {
        let (Some(view), Some(key)) = (self.view, self.keys.first()) else { return Ok(None) };
        let mut payload = Payload::new(self.exchange.as_bytes(), key, &self.properties, view.body)?;
        if let Some(key) = view.key {
            payload = payload.with_key(key)?;
        }
        let attributes = if is_copy { &self.with_source } else { &self.attributes };
        if *attributes != Attributes::default() {
            payload = payload.with_attributes(attributes);
        }
        let persistent = delivery_mode_of(&self.properties).is_ok_and(|mode| mode == 2);
        let (exchange, headers) = (self.exchange.as_bytes(), None);
        Ok(Some(Publication { payload, exchange, key, headers, persistent, mandatory: false }))
    }
}

/// Reads and rewrites a part, up to so many bytes: the rest stays for the next one.
pub(super) fn read_letters(part: &Part, now_ms: u64) -> Result<Vec<Letter<'_>>, EngineError> {
    let mut found = part.found.iter().peekable();
    let (mut letters, mut bytes) = (Vec::with_capacity(part.dying.len()), 0);
    for &(sequence, reason) in &part.dying {
        let record = found.next_if(|one| one.sequence == sequence);
        let view = record.map(|record| view_of(part.id, record)).transpose()?.flatten();
        let letter = rewritten(part, (sequence, reason), view, now_ms);
        let own_key = view.and_then(|view| view.key).map_or(0, <[u8]>::len);
        bytes += u64::from(letter.body_bytes()) + (letter.properties.len() + own_key) as u64;
        letters.push(letter);
        if bytes >= BYTES_AT_ONCE {
            break;
        }
    }
    Ok(letters)
}

fn rewritten<'a>(
    part: &Part,
    (sequence, reason): (Sequence, Reason),
    view: Option<MessageView<'a>>,
    now_ms: u64,
) -> Letter<'a> {
    let (mut properties, mut keys, mut exchange) = (Vec::new(), Vec::new(), String::new());
    let (mut attributes, mut with_source) = (Attributes::default(), Attributes::default());
    if let (Some(view), Some(settings)) = (&view, part.settings.as_deref()) {
        let death = Death {
            queue: part.name.as_bytes(),
            reason,
            exchange: view.exchange,
            routing_key: view.routing_key,
            at_ms: now_ms,
            has_new_key: settings.routing_key.is_some(),
        };
        // Properties that cannot be read stay as they are.
        properties = of_dead_letter(view.properties, &death).unwrap_or_else(|_| view.properties.to_vec());
        exchange.clone_from(&settings.exchange);
        keys = match &settings.routing_key {
            Some(key) => vec![key.as_bytes().to_vec()],
            None => {
                std::iter::once(view.routing_key).chain(further_keys(view.properties)).map(<[u8]>::to_vec).collect()
            }
        };
        let Attributes { priority, created_at_ms, is_tombstone, .. } = view.attributes();
        attributes = Attributes { priority, created_at_ms, is_tombstone, ..Attributes::default() };
        with_source = Attributes { source: Some(target_of(part.id, sequence)), ..attributes };
    }
    let (queues, is_elsewhere, stays) = (Vec::new(), false, false);
    Letter { sequence, reason, view, properties, exchange, keys, attributes, with_source, queues, is_elsewhere, stays }
}

/// Finds the queues of each, up to so many in all: the rest of the letters stays for the next part.
pub(super) fn route_all(
    table: &Arc<Routing>,
    settings: Option<&DeadLetters>,
    letters: &mut Vec<Letter<'_>>,
    now_ms: u64,
) {
    let Some(settings) = settings else { return };
    let (mut matched, mut targets, mut count) = (Matched::default(), 0, 0);
    for letter in letters.iter_mut() {
        if letter.body_bytes() > BODY_BYTES_MAX {
            letter.stays = true;
            count += 1;
            continue;
        }
        let (mut queues, is_cycle) = queues_of(table, letter, &mut matched);
        if letter.is_kept(Some(settings)) && queues.len() <= matched.history_count() {
            // An exchange may keep it once a queue takes it.
            queues.clear();
        }
        targets += queues.len();
        if targets > ENVELOPE_TARGETS_MAX && count > 0 {
            break;
        }
        letter.stays = letter.is_kept(Some(settings)) && queues.is_empty() && !is_cycle && letter.view.is_some();
        letter.queues = queues;
        if matched.is_delayed {
            letter.delay(now_ms);
        }
        count += 1;
        if targets >= TARGETS_AT_ONCE {
            break;
        }
    }
    letters.truncate(count);
}

/// It does not go to a queue again that it left before, unless it was rejected since. Also returns whether that left out any.
fn queues_of(table: &Routing, letter: &Letter<'_>, matched: &mut Matched) -> (Vec<QueueId>, bool) {
    let (mut queues, mut is_cycle) = (Vec::new(), false);
    let headers = headers_of(&letter.properties).ok().flatten();
    let own_key = letter.view.and_then(|view| view.key);
    let mut keys = letter.keys.iter().map(Vec::as_slice);
    let key = keys.next().unwrap_or_default();
    let more_keys: Vec<&[u8]> = keys.collect();
    let draw = letter.sequence.0.wrapping_mul(STEP);
    let message = Routable { key, more_keys: &more_keys, own_key, headers, properties: &letter.properties, draw };
    if table.route_message(letter.exchange.as_bytes(), &message, matched).is_ok() {
        queues.extend_from_slice(&matched.queues);
    }
    if letter.reason != Reason::Rejected && !queues.is_empty() {
        let left = left_without_rejection(&letter.properties);
        let again: Vec<QueueId> = left.iter().filter_map(|name| table.queue(name)).collect();
        let count = queues.len();
        queues.retain(|queue| !again.contains(queue));
        is_cycle = queues.len() < count;
    }
    (queues, is_cycle)
}
