//! The routing tables of one vhost: which queues a message reaches.
//!
//! The tables are given, not decided: permissions, and which routes end with a queue, are handled elsewhere. Routing
//! walks from exchange to exchange without recursion and visits each exchange at most once, so that cycles end.
//!
//! A copy of the tables is cheap: copies share their content, in small parts, until one of them is changed. So routing
//! goes on in a copy while the tables change.

mod choice;
mod content;
mod error;
mod exchange;
mod headers;
mod partitions;
mod routable;
mod shared_map;
mod shared_set;
mod targets;
mod topic;

use std::sync::Arc;

use penstock_wire::amqp::table::ValueRef;
use rustc_hash::FxHashSet;

pub use choice::Choosing;
pub use content::{HashOn, content_of};
pub use error::{NoSuchExchange, RoutingError};
pub use exchange::{ExchangeKind, ExchangeSettings};
pub use routable::Routable;

use crate::ids::QueueId;
use exchange::Exchange;
use headers::HeaderIndex;
use shared_map::SharedMap;
use targets::{ExchangeNumber, Target};
use topic::TopicScratch;

/// Target of a route, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination<'a> {
    Queue(&'a str),
    Exchange(&'a str),
}

impl<'a> Destination<'a> {
    fn name(self) -> &'a str {
        let (Destination::Queue(name) | Destination::Exchange(name)) = self;
        name
    }
}

/// The queues of one message, and buffers for the search, reused from message to message.
#[derive(Debug, Default)]
pub struct Matched {
    /// Ascending, each once.
    pub queues: Vec<QueueId>,
    /// Whether another message with the same routing key may reach others, also without headers and a key of its own.
    pub is_changeable: bool,
    /// Whether it comes through an exchange that delays messages.
    pub is_delayed: bool,
    /// How many of the queues are histories of exchanges.
    history_count: usize,
    /// Exchanges still to visit.
    pending: Vec<ExchangeNumber>,
    /// Exchanges that were visited or are pending; empty while the first one leads to no other.
    visited: FxHashSet<ExchangeNumber>,
    topic: TopicScratch,
}

impl Matched {
    /// Whether the message reaches a queue that consumers can have.
    #[must_use]
    pub fn reaches_queue(&self) -> bool {
        self.queues.len() > self.history_count
    }

    /// How many of the queues are histories of exchanges.
    #[must_use]
    pub fn history_count(&self) -> usize {
        self.history_count
    }
}

/// The header of a message that exchanges are not to keep.
const NO_STORE: &[u8] = b"x-recent-history-no-store";

/// The default exchange's number. It has no table of its own: it leads to the queue with the key as its name.
const DEFAULT: ExchangeNumber = ExchangeNumber(0);

/// The exchanges, queues and routes of one vhost.
///
/// Routes lead to the things that had their names when they were added; they are removed before those.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    queues: SharedMap<Box<[u8]>, QueueId>,
    numbers: SharedMap<Box<[u8]>, ExchangeNumber>,
    exchanges: SharedMap<ExchangeNumber, Arc<Exchange>>,
    last_number: u64,
    removals: u64,
}

impl Routing {
    #[must_use]
    pub fn new() -> Self {
        Routing::default()
    }

    /// How many queues were removed: while that is the same, all matched queues are still there.
    #[must_use]
    pub fn removals(&self) -> u64 {
        self.removals
    }

    /// Has messages routed again that were routed before and are not stored yet.
    pub fn reroute(&mut self) {
        self.removals += 1;
    }

    /// The queue in which an exchange keeps its last messages.
    #[must_use]
    pub fn history_of(&self, exchange: &str) -> Option<QueueId> {
        self.exchange(exchange)?.history
    }

    /// Whether an exchange that keeps its last messages has a route to a queue.
    #[must_use]
    pub fn leads_to_queue(&self, exchange: &str, queue: QueueId) -> bool {
        self.exchange(exchange).is_some_and(|exchange| exchange.leads_to(Target::Queue(queue)))
    }

    /// Whether it has a route to an exchange.
    #[must_use]
    pub fn leads_to_exchange(&self, exchange: &str, other: &str) -> bool {
        let Some(&number) = self.numbers.get(other.as_bytes()) else { return false };
        self.exchange(exchange).is_some_and(|exchange| exchange.leads_to(Target::Exchange(number)))
    }

    #[must_use]
    pub fn has_exchange(&self, name: &str) -> bool {
        self.number(name.as_bytes()).is_some()
    }

    /// The queue of that name.
    #[must_use]
    pub fn queue(&self, name: &[u8]) -> Option<QueueId> {
        self.queues.get(name).copied()
    }

    pub fn put_queue(&mut self, name: &str, id: QueueId) {
        self.queues.insert(name.as_bytes().into(), id);
    }

    /// Removes a queue's name. Its routes have to be removed before.
    pub fn remove_queue(&mut self, name: &str) {
        self.removals += 1;
        self.queues.remove(name.as_bytes());
    }

    /// Adds an exchange, or changes the alternate of the one with that name and kind. One of another kind is replaced,
    /// and its routes go.
    pub fn put_exchange(&mut self, name: &str, kind: ExchangeKind, alternate: Option<&str>) {
        self.put_exchange_as(name, &ExchangeSettings::new(kind, alternate));
    }

    /// The same with all settings of an exchange.
    pub fn put_exchange_as(&mut self, name: &str, settings: &ExchangeSettings<'_>) {
        if name.is_empty() {
            return;
        }
        if !self.exchange_mut(name).is_some_and(|exchange| exchange.kind() == settings.kind) {
            self.remove_exchange(name);
            self.last_number += 1;
            let number = ExchangeNumber(self.last_number);
            self.numbers.insert(name.as_bytes().into(), number);
            self.exchanges.insert(number, Arc::new(Exchange::new(settings.kind)));
        }
        if let Some(exchange) = self.exchange_mut(name) {
            exchange.alternate = settings.alternate.map(|alternate| alternate.as_bytes().into());
            exchange.hash_on = settings.hash_on.clone();
            exchange.is_delayed = settings.is_delayed;
            exchange.history = settings.history;
        }
    }

    /// Removes an exchange with the routes from it. Routes to it have to be removed before.
    pub fn remove_exchange(&mut self, name: &str) {
        if let Some(number) = self.numbers.remove(name.as_bytes()) {
            self.exchanges.remove(&number);
        }
    }

    /// Adds a route; an existing one stays one. `matching` is the field table of a headers exchange's binding, without
    /// its length; other exchanges ignore it.
    ///
    /// # Errors
    /// When either end does not exist, or `matching` is not valid for a headers binding.
    pub fn add_route(
        &mut self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), RoutingError> {
        if exchange.is_empty() {
            return Err(RoutingError::DefaultExchange);
        }
        let target = self.target(destination)?;
        let source = self.exchange_mut(exchange);
        let source = source.ok_or_else(|| RoutingError::NoSuchExchange(exchange.to_owned()))?;
        source.add(key.as_bytes(), matching.unwrap_or_default(), (destination.name().as_bytes(), target))
    }

    /// Removes a route, named as it was added. A missing one is ignored.
    ///
    /// # Errors
    /// None at present; a route that cannot exist counts as missing.
    pub fn remove_route(
        &mut self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), RoutingError> {
        let Ok(target) = self.target(destination) else { return Ok(()) };
        if let Some(source) = self.exchange_mut(exchange) {
            source.remove(key.as_bytes(), matching.unwrap_or_default(), (destination.name().as_bytes(), target));
        }
        Ok(())
    }

    /// Finds the queues that a message without a key of its own reaches.
    ///
    /// # Errors
    /// When the exchange does not exist.
    pub fn route(
        &self,
        exchange: &[u8],
        key: &[u8],
        headers: Option<&[u8]>,
        out: &mut Matched,
    ) -> Result<(), NoSuchExchange> {
        self.route_message(exchange, &Routable { key, headers, ..Routable::default() }, out)
    }

    /// Finds the queues that a message reaches, each once.
    ///
    /// # Errors
    /// When the exchange does not exist.
    pub fn route_message(
        &self,
        exchange: &[u8],
        message: &Routable<'_>,
        out: &mut Matched,
    ) -> Result<(), NoSuchExchange> {
        out.queues.clear();
        out.pending.clear();
        out.visited.clear();
        out.is_changeable = false;
        out.is_delayed = false;
        out.history_count = 0;
        let mut next = Some(self.number(exchange).ok_or(NoSuchExchange)?);
        let mut index = HeaderIndex::new(message.headers.unwrap_or_default());
        while let Some(number) = next {
            self.ask(number, message, &mut index, out);
            next = out.pending.pop();
        }
        if !out.queues.is_sorted_by(|one, other| one < other) {
            out.queues.sort_unstable();
            out.queues.dedup();
        }
        Ok(())
    }

    fn ask(&self, number: ExchangeNumber, message: &Routable<'_>, headers: &mut HeaderIndex<'_>, out: &mut Matched) {
        if number == DEFAULT {
            out.queues.extend(self.queues.get(message.key));
            out.queues.extend(message.more_keys.iter().filter_map(|key| self.queues.get(*key)));
            return;
        }
        let Some(exchange) = self.exchanges.get(&number) else { return };
        let Matched { queues, is_changeable, is_delayed, history_count, pending, visited, topic } = out;
        *is_changeable |= exchange.is_changeable();
        *is_delayed |= exchange.is_delayed;
        if let Some(history) = exchange.history
            && headers.get(NO_STORE) != Some(ValueRef::Bool(true))
        {
            queues.push(history);
            *history_count += 1;
        }
        let mut visit = |next: ExchangeNumber| {
            if visited.is_empty() {
                visited.insert(number);
            }
            if visited.insert(next) {
                pending.push(next);
            }
        };
        let mut has_matched = false;
        exchange.find(message, headers, topic, |targets| {
            has_matched = true;
            queues.extend(targets.queues());
            targets.exchanges().for_each(&mut visit);
        });
        if !has_matched && let Some(alternate) = &exchange.alternate {
            self.number(alternate).into_iter().for_each(&mut visit);
        }
    }

    fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.get(self.numbers.get(name.as_bytes())?).map(Arc::as_ref)
    }

    fn exchange_mut(&mut self, name: &str) -> Option<&mut Exchange> {
        let number = self.numbers.get(name.as_bytes())?;
        self.exchanges.get_mut(number).map(Arc::make_mut)
    }

    fn number(&self, exchange: &[u8]) -> Option<ExchangeNumber> {
        if exchange.is_empty() { Some(DEFAULT) } else { self.numbers.get(exchange).copied() }
    }

    fn target(&self, destination: Destination<'_>) -> Result<Target, RoutingError> {
        match destination {
            Destination::Queue(name) => {
                let id = self.queues.get(name.as_bytes());
                id.map(|&id| Target::Queue(id)).ok_or_else(|| RoutingError::NoSuchQueue(name.to_owned()))
            }
            Destination::Exchange("") => Err(RoutingError::DefaultExchange),
            Destination::Exchange(name) => {
                let number = self.numbers.get(name.as_bytes());
                number
                    .map(|&number| Target::Exchange(number))
                    .ok_or_else(|| RoutingError::NoSuchExchange(name.to_owned()))
            }
        }
    }
}
