//! The headers of dead letters: which queues a message left, how often and why, as RabbitMQ writes them.
//!
//! A block of properties is rewritten for its way to the dead-letter exchange: the `x-death` entry of the queue and the reason
//! comes first and counts one more, `x-first-death-*` stay, `x-last-death-*` change, and the expiration is removed. All other
//! properties and headers stay as they were. The oldest entries go when properties would be longer than messages may have.
//! A delivery of a queue with a limit has a header that counts deliveries.

use std::borrow::Cow;
use std::fmt;

use super::block::{self, Field};
use super::properties::{PERSISTENT_ONLY, PROPERTIES_BYTES_MAX, headers_of};
use super::routing_headers::{BCC, CC, KEY_BYTES_MAX, KEYS_MAX, RoutingHeaders};
use super::table::{self, ValueRef};
use super::table_writer::{begin_long, end_long, put_long_bytes, put_tagged};
use crate::WireError;

const X_DEATH: &[u8] = b"x-death";
const X_FIRST: [&str; 3] = ["x-first-death-reason", "x-first-death-queue", "x-first-death-exchange"];
const X_LAST: [&str; 3] = ["x-last-death-reason", "x-last-death-queue", "x-last-death-exchange"];
const X_DELIVERY_COUNT: &[u8] = b"x-delivery-count";

/// A message that is not among the newest so many deaths of itself has forgotten them. Cycles are found by the newest ones.
const ENTRIES_MAX: usize = 1024;

/// Why a message left its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    Rejected,
    Expired,
    MaxLength,
    DeliveryLimit,
}

impl Reason {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::MaxLength => "maxlen",
            Reason::DeliveryLimit => "delivery_limit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How a message left a queue.
#[derive(Clone, Copy, Debug)]
pub struct Death<'a> {
    pub queue: &'a [u8],
    pub reason: Reason,
    /// Where and with which key it was published before.
    pub exchange: &'a [u8],
    pub routing_key: &'a [u8],
    pub at_ms: u64,
    /// Whether its keys are replaced by one of the queue: then those in its headers are removed.
    pub has_new_key: bool,
}

/// Properties of a dead letter, from those of the message.
///
/// # Errors
/// When the block or its headers cannot be read, or have no space for one more entry.
pub fn of_dead_letter(properties: &[u8], death: &Death<'_>) -> Result<Vec<u8>, WireError> {
    let properties = if properties.is_empty() { &PERSISTENT_ONLY } else { properties };
    let mut history = Some(ENTRIES_MAX);
    loop {
        let rewritten = rewrite(properties, death, history)?;
        let is_short = rewritten.len() <= PROPERTIES_BYTES_MAX;
        if is_short && headers_of(&rewritten)?.is_none_or(|headers| table::check(headers).is_ok()) {
            return Ok(rewritten);
        }
        history = match history {
            Some(0) => None,
            Some(count) => Some(count / 2),
            None => {
                let (what, max) = ("the properties of a dead letter", PROPERTIES_BYTES_MAX);
                return Err(WireError::TooLong { what, size: rewritten.len(), max });
            }
        };
    }
}

/// The further keys that a message was published with: those of the header `CC`, and of `BCC` if it still has that.
#[must_use]
pub fn further_keys(properties: &[u8]) -> Vec<&[u8]> {
    let headers = headers_of(properties).ok().flatten().unwrap_or_default();
    RoutingHeaders::of(headers).keys().filter(|key| key.len() <= KEY_BYTES_MAX).take(KEYS_MAX).collect()
}

/// The names of the queues that a dead letter left before, by no rejection since: it does not go there again unless it was
/// rejected now.
#[must_use]
pub fn left_without_rejection(properties: &[u8]) -> Vec<&[u8]> {
    let mut found: Vec<&[u8]> = Vec::new();
    for entry in entries_of(headers_of(properties).ok().flatten().unwrap_or_default()) {
        if entry.text("reason") == Some(Reason::Rejected.name().as_bytes()) {
            break;
        }
        found.extend(entry.text("queue").filter(|queue| !found.contains(queue)));
    }
    found
}

/// Properties of a message with the header `x-delivery-count`.
///
/// # Errors
/// When the block cannot be read.
pub fn with_delivery_count(properties: &[u8], count: u32) -> Result<Vec<u8>, WireError> {
    let properties = if properties.is_empty() { &PERSISTENT_ONLY } else { properties };
    with_headers(properties, true, |out, headers, _| {
        put_all_but(out, headers, |name| name == X_DELIVERY_COUNT)?;
        put_name(out, X_DELIVERY_COUNT);
        put_tagged(out, b'l', &i64::from(count).to_be_bytes());
        Ok(())
    })
}

/// Properties without headers that the broker added, so that they have at most so many bytes: the count of deliveries goes first,
/// then the history of deaths, then the first and the last death. Those that are longer without them are returned as they are.
#[must_use]
pub fn without_added(properties: &[u8], bytes_max: usize) -> Cow<'_, [u8]> {
    let one_death = X_FIRST.iter().chain(&X_LAST).map(|name| name.as_bytes());
    let added: Vec<&[u8]> = [X_DELIVERY_COUNT, X_DEATH].into_iter().chain(one_death).collect();
    let shorter = [1, 2, added.len()].into_iter().find_map(|count| {
        let is_left_out = |name: &[u8]| added.iter().take(count).any(|one| *one == name);
        let rewritten = with_headers(properties, true, |out, headers, _| put_all_but(out, headers, is_left_out));
        rewritten.ok().filter(|rewritten| rewritten.len() <= bytes_max)
    });
    shorter.map_or(Cow::Borrowed(properties), Cow::Owned)
}

/// With so many earlier entries; without any, the new one also has only the first key.
fn rewrite(properties: &[u8], death: &Death<'_>, history: Option<usize>) -> Result<Vec<u8>, WireError> {
    with_headers(properties, false, |out, headers, expiration| put_headers(out, headers, death, (expiration, history)))
}

/// The same properties with headers that `write` makes of theirs and of their expiration, which is kept or not.
fn with_headers<'a>(
    properties: &'a [u8],
    keeps_expiration: bool,
    write: impl FnOnce(&mut Vec<u8>, &'a [u8], Option<&'a [u8]>) -> Result<(), WireError>,
) -> Result<Vec<u8>, WireError> {
    let (mut flags, mut before, mut after) = (block::HEADERS, Vec::new(), Vec::new());
    let (mut headers, mut expiration) = (&[][..], None);
    for field in block::fields(properties)? {
        let (flag, field) = field?;
        if let (block::EXPIRATION, Field::Text(text)) = (flag, field) {
            expiration = Some(text);
        }
        match field {
            Field::Table(found) => headers = found,
            Field::Text(_) if flag == block::EXPIRATION && !keeps_expiration => {}
            _ => {
                flags |= flag;
                put_field(if flag > block::HEADERS { &mut before } else { &mut after }, field);
            }
        }
    }
    let mut out = Vec::with_capacity(properties.len() + 256);
    out.extend_from_slice(&flags.to_be_bytes());
    out.append(&mut before);
    let start = begin_long(&mut out);
    write(&mut out, headers, expiration)?;
    end_long(&mut out, start);
    out.append(&mut after);
    Ok(out)
}

fn put_field(out: &mut Vec<u8>, field: Field<'_>) {
    match field {
        Field::Text(text) => put_name(out, text),
        Field::Octet(octet) => out.push(octet),
        Field::Timestamp(seconds) => out.extend_from_slice(&seconds.to_be_bytes()),
        Field::Table(_) => {}
    }
}

fn put_headers(
    out: &mut Vec<u8>,
    headers: &[u8],
    death: &Death<'_>,
    (expiration, history): (Option<&[u8]>, Option<usize>),
) -> Result<(), WireError> {
    let mut is_first = true;
    put_all_but(out, headers, |name| {
        is_first &= name != X_FIRST[0].as_bytes();
        let is_replaced = name == X_DEATH || X_LAST.iter().any(|last| name == last.as_bytes());
        is_replaced || name == BCC || (name == CC && death.has_new_key)
    })?;
    let values = [death.reason.name().as_bytes(), death.queue, death.exchange];
    let names = X_FIRST.iter().filter(|_| is_first).zip(values).chain(X_LAST.iter().zip(values));
    for (name, value) in names {
        put_name(out, name.as_bytes());
        put_long_bytes(out, b'S', value);
    }
    put_name(out, X_DEATH);
    out.push(b'A');
    let start = begin_long(out);
    let is_same = |entry: &Entry<'_>| {
        entry.text("queue") == Some(death.queue) && entry.text("reason") == Some(death.reason.name().as_bytes())
    };
    let known = entries_of(headers).find(is_same);
    let others = if history.is_some() { headers } else { &[] };
    put_entry(out, known, death, (expiration, others));
    for entry in entries_of(headers).filter(|entry| !is_same(entry)).take(history.unwrap_or(0)) {
        put_long_bytes(out, b'F', entry.0);
    }
    end_long(out, start);
    Ok(())
}

/// Writes the newest entry: that of the same queue and reason with one more, or a new one.
fn put_entry(
    out: &mut Vec<u8>,
    known: Option<Entry<'_>>,
    death: &Death<'_>,
    (expiration, headers): (Option<&[u8]>, &[u8]),
) {
    out.push(b'F');
    let start = begin_long(out);
    let count = known.as_ref().map_or(0, Entry::count).saturating_add(1).max(1);
    put_name(out, b"count");
    put_tagged(out, b'l', &count.to_be_bytes());
    if let Some(Entry(entry)) = known {
        // It was read to its end before.
        let _ = put_all_but(out, entry, |name| name == b"count");
        end_long(out, start);
        return;
    }
    for (name, value) in [("reason", death.reason.name().as_bytes()), ("queue", death.queue)] {
        put_name(out, name.as_bytes());
        put_long_bytes(out, b'S', value);
    }
    put_name(out, b"time");
    put_tagged(out, b'T', &(death.at_ms / 1000).to_be_bytes());
    put_name(out, b"exchange");
    put_long_bytes(out, b'S', death.exchange);
    put_name(out, b"routing-keys");
    out.push(b'A');
    let keys = begin_long(out);
    std::iter::once(death.routing_key)
        .chain(RoutingHeaders::of(headers).cc_keys())
        .for_each(|key| put_long_bytes(out, b'S', key));
    end_long(out, keys);
    if let Some(expiration) = expiration {
        put_name(out, b"original-expiration");
        put_long_bytes(out, b'S', expiration);
    }
    end_long(out, start);
}

/// Writes the entries of a table without those of some names, as they are.
fn put_all_but(out: &mut Vec<u8>, table: &[u8], mut is_left_out: impl FnMut(&[u8]) -> bool) -> Result<(), WireError> {
    let mut rest = table;
    let mut entries = table::entries(table);
    while let Some(entry) = entries.next() {
        let (name, _) = entry?;
        let (whole, left) = rest.split_at_checked(rest.len() - entries.left()).unwrap_or((rest, &[]));
        rest = left;
        if !is_left_out(name) {
            out.extend_from_slice(whole);
        }
    }
    Ok(())
}

fn put_name(out: &mut Vec<u8>, name: &[u8]) {
    // Names that were read, and ours, have at most 255 bytes.
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// An entry of `x-death`: a table.
#[derive(Clone, Copy)]
struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    fn value(&self, wanted: &str) -> Option<ValueRef<'a>> {
        let mut entries = table::entries(self.0).map_while(Result::ok);
        entries.find_map(|(name, value)| (name == wanted.as_bytes()).then_some(value))
    }

    fn text(&self, wanted: &str) -> Option<&'a [u8]> {
        match self.value(wanted)? {
            ValueRef::Text(text) => Some(text),
            _ => None,
        }
    }

    fn count(&self) -> i64 {
        match self.value("count") {
            Some(ValueRef::I64(count)) => count,
            Some(ValueRef::I32(count)) => count.into(),
            Some(ValueRef::U32(count)) => count.into(),
            _ => 1,
        }
    }
}

/// The deaths in a table of headers, the newest first; what is none is left out.
fn entries_of(headers: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let values = array_of(headers, X_DEATH).into_iter().flat_map(table::ArrayRef::values).map_while(Result::ok);
    values.filter_map(|value| match value {
        ValueRef::Table(entry) if entry.entries().all(|entry| entry.is_ok()) => Some(Entry(entry.bytes())),
        _ => None,
    })
}

fn array_of<'a>(headers: &'a [u8], wanted: &'static [u8]) -> Option<table::ArrayRef<'a>> {
    let mut entries = table::entries(headers).map_while(Result::ok);
    entries.find_map(|(name, value)| match value {
        ValueRef::Array(array) if name == wanted => Some(array),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
