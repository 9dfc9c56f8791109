//! A round of a publisher: messages with their permits, ready to be stored together, and those that are denied.
//!
//! What must stay true: a round has at most so many messages, whatever becomes of them, and what it costs is gone after it; of a
//! producer's messages none is stored in the round that denies one before it.

use std::collections::HashSet;
use std::ops::ControlFlow;

use penstock_engine::{Attributes, DEADLINE_MS_MAX, MESSAGES_AT_ONCE, Payload, Producer, ProducerSession, Publication};
use penstock_wire::amqp::checked::Properties;
use penstock_wire::amqp::properties::{
    PERSISTENT_ONLY, delivery_mode_of, expiration_of, headers_of, milliseconds, priority_of, user_id_of,
};
use penstock_wire::amqp::routing_headers::{KEYS_MAX, RoutingHeaders, as_delivered};
use penstock_wire::{Name, WireError};

use crate::host::permits::{Permits, Verdict, key_denial, user_id_denial};
use crate::host::refusal::{Kind, Refusal};

/// AMQP's delivery mode of messages that ask to survive.
const PERSISTENT: u8 = 2;

/// A message that came.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a, End> {
    pub exchange: Name<'a>,
    pub routing_key: Name<'a>,
    /// As AMQP 0-9-1 has them in a content header.
    pub properties: Option<Properties<'a>>,
    pub body: &'a [u8],
    /// What messages of a partitioned stream are grouped by.
    pub key: Option<&'a [u8]>,
    pub mandatory: bool,
    /// After how many milliseconds it may be delivered.
    pub delay_ms: Option<u64>,
    /// The producer's.
    pub sequence: Option<u64>,
    /// What has been taken when this message has.
    pub end: End,
}

/// What a publisher sent and the broker did not store yet, in order.
pub trait Source {
    /// A place behind a message.
    type End: Copy + Default + Send;

    fn is_empty(&self) -> bool;

    /// How many messages are left.
    fn message_count(&self) -> usize;

    /// Hands over the next messages until `take` breaks off, at most so many. They are the same until `advance`.
    ///
    /// # Errors
    /// What `take` gives, a refusal of what cannot be read, and [`Obstacle::Properties`].
    fn each<'a>(
        &'a self,
        messages_max: usize,
        take: impl FnMut(Message<'a, Self::End>) -> Result<ControlFlow<()>, Obstacle>,
    ) -> Result<(), Obstacle>;

    /// Goes on behind a message; returns the bytes that this takes.
    fn advance(&mut self, end: Self::End) -> usize;

    /// Makes the properties of the next messages what AMQP has, for a protocol that has others.
    ///
    /// # Errors
    /// When they cannot be.
    fn convert_properties(&mut self, messages_max: usize) -> Result<(), Refusal> {
        let _ = messages_max;
        Ok(())
    }
}

/// The messages of a round.
pub(crate) struct Round<'a, End> {
    pub batch: Vec<Publication<'a>>,
    /// The times of those that have any, by their place in the batch.
    pub times: Vec<(usize, Times)>,
    /// The properties as they are delivered, of messages for which these are others, by their place in the batch.
    pub rewritten: Vec<(usize, Vec<u8>)>,
    /// For how many milliseconds messages ask an exchange to keep them back, by their place in the batch.
    pub delays: Vec<(usize, u64)>,
    /// Those that are denied, by their place among all, with their sequences.
    pub denied: Vec<(usize, Option<u64>, Refusal)>,
    pub count: usize,
    /// Behind the last of them.
    pub end: End,
}

/// After how many milliseconds a message may be delivered, how many later it expires, and before which others it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    delay_ms: Option<u64>,
    expires_after_ms: Option<u64>,
    priority: Option<u8>,
}

impl Times {
    /// Those of a message that is stored now.
    fn attributes(self, now_ms: u64) -> Attributes {
        let after = |begin_ms: u64, ms: u64| begin_ms.saturating_add(ms).min(DEADLINE_MS_MAX);
        let due_at_ms = self.delay_ms.map(|ms| after(now_ms, ms));
        let expires_at_ms = self.expires_after_ms.map(|ms| after(due_at_ms.unwrap_or(now_ms), ms));
        Attributes { due_at_ms, expires_at_ms, priority: self.priority, ..Attributes::default() }
    }
}

impl<'a, End> Round<'a, End> {
    /// Delays the message at this place, and changes its properties accordingly.
    pub fn delay(&mut self, place: usize, delay_ms: u64) -> Result<(), Obstacle> {
        let Some(publication) = self.batch.get(place) else { return Ok(()) };
        let block = as_delivered(publication.payload.properties(), true)?;
        let at = self.rewritten.partition_point(|(at, _)| *at < place);
        self.rewritten.splice(at..at, [(place, block)]);
        self.rewritten.dedup_by_key(|(at, _)| *at);
        match self.times.binary_search_by_key(&place, |(at, _)| *at) {
            Ok(at) => self.times.get_mut(at).into_iter().for_each(|(_, times)| times.delay_ms = Some(delay_ms)),
            Err(at) => self.times.insert(at, (place, Times { delay_ms: Some(delay_ms), ..Times::default() })),
        }
        Ok(())
    }

    /// Gives the messages whose properties were rewritten those properties.
    pub fn set_properties(&mut self, rewritten: &'a [(usize, Vec<u8>)]) -> Result<(), Obstacle> {
        for (place, block) in rewritten {
            if let Some(publication) = self.batch.get_mut(*place) {
                let payload = publication.payload.with_properties(block);
                publication.payload =
                    payload.map_err(|error| Obstacle::Malformed(Refusal::invalid(error.to_string())))?;
            }
        }
        Ok(())
    }

    /// The times of the messages that have any, when they are stored now.
    pub fn attributes(&self, now_ms: u64) -> Vec<Attributes> {
        self.times.iter().map(|(_, times)| times.attributes(now_ms)).collect()
    }

    /// Gives the messages with times those times.
    pub fn set_times(&mut self, attributes: &'a [Attributes]) {
        for (&(place, _), attributes) in self.times.iter().zip(attributes) {
            if let Some(publication) = self.batch.get_mut(place) {
                publication.payload = publication.payload.with_attributes(attributes);
            }
        }
    }
}

impl<End: Copy + Default> Round<'_, End> {
    /// How many of its messages are done with once the first `stored` of its batch are, and where the last of them ends.
    pub fn until(&self, stored: usize, source: &impl Source<End = End>) -> (usize, End) {
        if stored >= self.batch.len() {
            return (self.count, self.end);
        }
        let (mut count, mut admitted) = (0, 0);
        let mut denied = self.denied.iter().peekable();
        while admitted < stored {
            if denied.next_if(|(at, _, _)| *at == count).is_none() {
                admitted += 1;
            }
            count += 1;
        }
        let mut end = End::default();
        // They were read before.
        let _ = source.each(count, |message| {
            end = message.end;
            Ok(ControlFlow::Continue(()))
        });
        (count, end)
    }

    /// The lowest sequence that is denied among the first so many messages.
    pub fn lowest_denied(&self, count: usize) -> Option<u64> {
        let denied = self.denied.iter().filter(|(at, _, _)| *at < count);
        denied.filter_map(|(_, sequence, _)| *sequence).min()
    }
}

/// What a round may have.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// At most [`MESSAGES_AT_ONCE`].
    pub messages: usize,
}

impl Bounds {
    pub fn widest() -> Bounds {
        Bounds { messages: MESSAGES_AT_ONCE }
    }

    /// The next round has as many messages as the engine took at once, and more again when it took all.
    pub fn follow(&mut self, stored: usize, asked: usize) {
        self.messages = if stored < asked { stored.max(1) } else { (2 * self.messages).min(MESSAGES_AT_ONCE) };
    }
}

/// What has to be asked for.
#[derive(Debug)]
pub enum Unknown {
    Exchange(Vec<u8>),
    /// Routing keys of this exchange.
    Keys(Vec<u8>),
    /// Whether the user may publish with another user's name.
    Impersonation,
}

/// Why a round could not be gathered.
#[derive(Debug)]
pub enum Obstacle {
    /// Something that has to be asked for.
    Unknown(Unknown),
    /// A message with properties that are to be converted first.
    Properties,
    Malformed(Refusal),
}

impl From<WireError> for Obstacle {
    fn from(error: WireError) -> Obstacle {
        Obstacle::Malformed(error.into())
    }
}

impl From<Refusal> for Obstacle {
    fn from(refusal: Refusal) -> Obstacle {
        Obstacle::Malformed(refusal)
    }
}

/// What a stream's messages may be.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub message_bytes_max: usize,
    /// Whom that limit was set for, unless it is everybody's.
    pub whose: Option<&'a str>,
    /// There for messages with sequences.
    pub producer: Option<&'a ProducerSession>,
    /// Who publishes.
    pub user: &'a [u8],
}

impl Limits<'_> {
    fn producer_of(&self, sequence: Option<u64>) -> Result<Option<Producer>, Obstacle> {
        let Some(sequence) = sequence else { return Ok(None) };
        let session = self.producer.ok_or_else(|| Obstacle::Malformed(Refusal::invalid(UNNAMED)))?;
        Ok(Some(Producer { id: session.id(), sequence }))
    }
}

const UNNAMED: &str = "a batch with producer_sequence on a stream without a producer; name one in `open`";

/// Reads the messages of a round and looks up their permits.
pub(crate) fn gather<'a, S: Source>(
    source: &'a S,
    bounds: Bounds,
    permits: &mut Permits,
    limits: Limits<'_>,
) -> Result<Round<'a, S::End>, Obstacle> {
    let batch = Vec::with_capacity(source.message_count().min(bounds.messages));
    let (times, rewritten, delays) = (Vec::new(), Vec::new(), Vec::new());
    let mut round = Round { batch, times, rewritten, delays, denied: Vec::new(), count: 0, end: S::End::default() };
    let mut has_denied_sequence = false;
    source.each(bounds.messages, |message| {
        let (sequence, block) = (message.sequence, message.properties.map(Properties::as_bytes));
        let producer = limits.producer_of(sequence)?;
        let routing_headers = message.properties.and_then(Properties::routing_headers);
        match denial_of(&message, routing_headers, permits, limits)? {
            // The engine has to hear of the denied one first.
            None if has_denied_sequence && sequence.is_some() => return Ok(ControlFlow::Break(())),
            None => {
                let mut times = Times { delay_ms: message.delay_ms, ..Times::default() };
                if let Some(block) = block {
                    times.expires_after_ms = expires_after(block)?;
                    // 0 is the priority of a message without one.
                    times.priority = priority_of(block)?.filter(|&priority| priority > 0);
                }
                if times != Times::default() {
                    round.times.push((round.batch.len(), times));
                }
                let mut publication = publication(&message)?;
                if let Some(producer) = producer {
                    publication.payload = publication.payload.with_producer(producer);
                }
                if let (Some(headers), Some(block)) = (routing_headers, block) {
                    publication.payload = publication.payload.with_more_keys();
                    round.delays.extend(headers.delay_ms().map(|delay_ms| (round.batch.len(), delay_ms)));
                    if headers.has_bcc() {
                        round.rewritten.push((round.batch.len(), as_delivered(block, false)?));
                    }
                }
                round.batch.push(publication);
            }
            Some(denial) => {
                has_denied_sequence |= sequence.is_some();
                round.denied.push((round.count, sequence, *denial));
            }
        }
        round.count += 1;
        round.end = message.end;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(round)
}

/// Return why a message is denied. The reason is boxed: hardly any message has one, and each passes this place.
#[inline]
fn denial_of<End>(
    message: &Message<'_, End>,
    routing_headers: Option<RoutingHeaders<'_>>,
    permits: &mut Permits,
    limits: Limits<'_>,
) -> Result<Option<Box<Refusal>>, Obstacle> {
    let (exchange, routing_key) = (message.exchange.as_bytes(), message.routing_key.as_bytes());
    match permits.look_up(exchange, routing_key) {
        Verdict::Admitted => {
            let block = message.properties.map(Properties::as_bytes);
            if let Some(block) = block
                && let Some(denial) = impersonates(block, permits, limits.user)?
            {
                return Ok(Some(Box::new(denial)));
            }
            if message.body.len() > limits.message_bytes_max {
                return Ok(Some(Box::new(too_large(message.body.len(), limits))));
            }
            let Some(block) = block else { return Ok(None) };
            let denial = match (denial_of_properties(block)?, routing_headers) {
                (None, Some(headers)) => denial_of_more_keys(message, headers, permits)?,
                (denial, _) => denial,
            };
            Ok(denial.map(Box::new))
        }
        Verdict::Denied(denial) => Ok(Some(Box::new(denial.clone()))),
        Verdict::KeyDenied => Ok(Some(Box::new(key_denial(exchange, routing_key)))),
        Verdict::UnknownExchange => Err(Obstacle::Unknown(Unknown::Exchange(exchange.to_vec()))),
        Verdict::UnknownKey => Err(Obstacle::Unknown(Unknown::Keys(exchange.to_vec()))),
    }
}

/// Return why the further routing keys of a message are denied: each needs the same right as the first.
#[cold]
fn denial_of_more_keys<End>(
    message: &Message<'_, End>,
    headers: RoutingHeaders<'_>,
    permits: &mut Permits,
) -> Result<Option<Refusal>, Obstacle> {
    if let Err(error) = headers.check() {
        return Ok(Some(Refusal::new(Kind::PreconditionFailed, error.to_string())));
    }
    let exchange = message.exchange.as_bytes();
    for key in headers.keys() {
        match permits.look_up(exchange, key) {
            Verdict::KeyDenied => return Ok(Some(key_denial(exchange, key))),
            Verdict::UnknownKey => return Err(Obstacle::Unknown(Unknown::Keys(exchange.to_vec()))),
            _ => {}
        }
    }
    Ok(None)
}

/// Return why a message with these properties is denied.
#[inline]
fn denial_of_properties(block: &[u8]) -> Result<Option<Refusal>, WireError> {
    let is_invalid = |text: &&[u8]| milliseconds(text).is_none();
    let expiration = expiration_of(block)?.filter(is_invalid).map(|text| {
        let text = String::from_utf8_lossy(text);
        Refusal::invalid(format!(
            "expiration '{text}' is not a number of milliseconds; send it as text, such as '60000'"
        ))
    });
    Ok(expiration)
}

/// After how many milliseconds a message expires.
#[inline]
fn expires_after(block: &[u8]) -> Result<Option<u64>, WireError> {
    Ok(expiration_of(block)?.and_then(milliseconds))
}

/// Return why a message with another user's name as `user_id` is denied.
#[inline]
fn impersonates(block: &[u8], permits: &Permits, user: &[u8]) -> Result<Option<Refusal>, Obstacle> {
    let Some(user_id) = user_id_of(block)?.filter(|user_id| *user_id != user) else { return Ok(None) };
    match permits.impersonation() {
        Some(true) => Ok(None),
        Some(false) => Ok(Some(user_id_denial(user_id, user))),
        None => Err(Obstacle::Unknown(Unknown::Impersonation)),
    }
}

/// The routing keys that a round's messages have for an exchange and that were not asked for yet, once each.
pub(crate) fn unknown_keys(
    source: &impl Source,
    bounds: Bounds,
    permits: &mut Permits,
    exchange: &[u8],
) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut keys = HashSet::new();
    let read = source.each(bounds.messages, |message| {
        if message.exchange.as_bytes() != exchange {
            return Ok(ControlFlow::Continue(()));
        }
        let headers = message.properties.and_then(Properties::routing_headers);
        // Of a message that will be refused no more are asked for than it may have.
        let more_keys = headers.into_iter().flat_map(RoutingHeaders::keys).take(KEYS_MAX);
        for key in more_keys.chain([message.routing_key.as_bytes()]) {
            if !keys.contains(key) && permits.look_up(exchange, key) == Verdict::UnknownKey {
                keys.insert(key.to_vec());
            }
        }
        Ok(ControlFlow::Continue(()))
    });
    match read {
        // Those behind properties that are not converted yet are asked for later.
        Ok(()) | Err(Obstacle::Properties | Obstacle::Unknown(_)) => Ok(keys.into_iter().collect()),
        Err(Obstacle::Malformed(refused)) => Err(refused),
    }
}

#[inline]
fn publication<'a, End>(message: &Message<'a, End>) -> Result<Publication<'a>, Obstacle> {
    let block = message.properties.map(Properties::as_bytes);
    let (headers, persistent) = match block {
        Some(block) => (headers_of(block)?, delivery_mode_of(block)? == PERSISTENT),
        None => (None, true),
    };
    let (exchange, key, mandatory) = (message.exchange.as_bytes(), message.routing_key.as_bytes(), message.mandatory);
    let payload = Payload::new(exchange, key, block.unwrap_or(&PERSISTENT_ONLY), message.body)
        .and_then(|payload| message.key.map_or(Ok(payload), |key| payload.with_key(key)))
        .map_err(|error| Obstacle::Malformed(Refusal::invalid(error.to_string())))?;
    Ok(Publication { payload, exchange, key, headers, persistent, mandatory })
}

#[cold]
fn too_large(size: usize, limits: Limits<'_>) -> Refusal {
    let max = limits.message_bytes_max;
    let limit = limits.whose.map_or("message_bytes_max".to_owned(), |whose| format!("max-message-bytes of {whose}"));
    Refusal::limit_reached(format!("a message of {size} bytes is larger than {limit}, {max}; split it"))
}

#[cfg(test)]
mod tests {
    use super::{DEADLINE_MS_MAX, Times};

    #[test]
    fn a_delayed_message_expires_so_long_after_it_is_due() {
        let times = |delay_ms, expires_after_ms| {
            let attributes = Times { delay_ms, expires_after_ms, priority: None }.attributes(1000);
            (attributes.due_at_ms, attributes.expires_at_ms)
        };

        assert_eq!(times(None, Some(50)), (None, Some(1050)));
        assert_eq!(times(Some(7), None), (Some(1007), None));
        assert_eq!(times(Some(7), Some(50)), (Some(1007), Some(1057)));
        assert_eq!(times(Some(u64::MAX), Some(u64::MAX)), (Some(DEADLINE_MS_MAX), Some(DEADLINE_MS_MAX)));
    }
}
