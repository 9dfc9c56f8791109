//! One exchange: its routes, in the fastest form for its kind, and its alternate.
//!
//! Adding and removing a route costs the same however many there are. Copies share their routes until one of them is
//! changed. It knows other exchanges by their numbers only.

use super::choice::{Choice, Choosing};
use super::content::HashOn;
use super::error::RoutingError;
use super::headers::{HeaderIndex, HeaderRoutes};
use super::partitions::Partitions;
use super::routable::Routable;
use super::shared_map::SharedMap;
use super::targets::{KeyedTargets, Target, Targets};
use super::topic::{TopicRoutes, TopicScratch};
use crate::ids::QueueId;

/// How an exchange matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
    /// Each message goes to one of the routes, by the hash of its own key or else of its routing key.
    Partitions,
    /// Each message goes to one of the routes.
    Choice(Choosing),
}

/// How an exchange routes.
#[derive(Clone, Debug)]
pub struct ExchangeSettings<'a> {
    pub kind: ExchangeKind,
    /// The exchange for messages that match nothing here; it need not exist.
    pub alternate: Option<&'a str>,
    /// The part of a message that is hashed, if the exchange chooses by a hash.
    pub hash_on: HashOn,
    /// Whether messages that ask for it are delayed.
    pub is_delayed: bool,
    /// The queue that gets every message beside those that it leads to.
    pub history: Option<QueueId>,
}

impl<'a> ExchangeSettings<'a> {
    #[must_use]
    pub fn new(kind: ExchangeKind, alternate: Option<&'a str>) -> Self {
        ExchangeSettings { kind, alternate, hash_on: HashOn::RoutingKey, is_delayed: false, history: None }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Used when nothing matches here; it need not exist.
    pub(super) alternate: Option<Box<[u8]>>,
    pub(super) hash_on: HashOn,
    pub(super) is_delayed: bool,
    pub(super) history: Option<QueueId>,
    routes: Routes,
}

#[derive(Clone, Debug)]
enum Routes {
    Direct(SharedMap<Box<[u8]>, Targets>),
    Fanout(KeyedTargets),
    Topic(TopicRoutes),
    Headers(HeaderRoutes),
    Partitions(Partitions),
    Choice(Choice),
}

impl Exchange {
    pub(super) fn new(kind: ExchangeKind) -> Self {
        let routes = match kind {
            ExchangeKind::Direct => Routes::Direct(SharedMap::default()),
            ExchangeKind::Fanout => Routes::Fanout(KeyedTargets::default()),
            ExchangeKind::Topic => Routes::Topic(TopicRoutes::default()),
            ExchangeKind::Headers => Routes::Headers(HeaderRoutes::default()),
            ExchangeKind::Partitions => Routes::Partitions(Partitions::default()),
            ExchangeKind::Choice(choosing) => Routes::Choice(Choice::new(choosing)),
        };
        Exchange { alternate: None, hash_on: HashOn::RoutingKey, is_delayed: false, history: None, routes }
    }

    pub(super) fn kind(&self) -> ExchangeKind {
        match self.routes {
            Routes::Direct(_) => ExchangeKind::Direct,
            Routes::Fanout(_) => ExchangeKind::Fanout,
            Routes::Topic(_) => ExchangeKind::Topic,
            Routes::Headers(_) => ExchangeKind::Headers,
            Routes::Partitions(_) => ExchangeKind::Partitions,
            Routes::Choice(ref choice) => ExchangeKind::Choice(choice.choosing()),
        }
    }

    /// Whether it may lead two messages with one routing key, and without headers and keys of their own, different ways.
    pub(super) fn is_changeable(&self) -> bool {
        match &self.routes {
            Routes::Choice(choice) => choice.choosing() == Choosing::Random || !self.hash_on.is_fixed(),
            _ => false,
        }
    }

    /// Whether any of its routes leads to a target; known of fanout exchanges alone.
    pub(super) fn leads_to(&self, target: Target) -> bool {
        matches!(&self.routes, Routes::Fanout(fanout) if fanout.has(target))
    }

    /// Adds a route to a target with that name.
    pub(super) fn add(
        &mut self,
        key: &[u8],
        matching: &[u8],
        (name, target): (&[u8], Target),
    ) -> Result<(), RoutingError> {
        match &mut self.routes {
            Routes::Direct(keys) => match keys.get_mut(key) {
                Some(targets) => targets.add(target),
                None => keys.insert(key.into(), Targets::of(target)),
            },
            Routes::Fanout(fanout) => fanout.add(key, target),
            Routes::Topic(topic) => topic.add(key, target),
            Routes::Headers(headers) => headers.add(key, matching, target)?,
            Routes::Partitions(partitions) => partitions.add(key, target),
            Routes::Choice(choice) => choice.add(key, name, target),
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &[u8], matching: &[u8], (name, target): (&[u8], Target)) {
        match &mut self.routes {
            Routes::Direct(keys) => {
                let Some(targets) = keys.get_mut(key) else { return };
                targets.remove(target);
                if targets.is_empty() {
                    keys.remove(key);
                }
            }
            Routes::Fanout(fanout) => fanout.remove(key, target),
            Routes::Topic(topic) => topic.remove(key, target),
            Routes::Headers(headers) => headers.remove(key, matching, target),
            Routes::Partitions(partitions) => partitions.remove(key, target),
            Routes::Choice(choice) => choice.remove(key, name, target),
        }
    }

    /// Calls `matched` with the targets of every pattern that a message matches.
    pub(super) fn find<'a>(
        &'a self,
        message: &Routable<'_>,
        headers: &mut HeaderIndex<'_>,
        scratch: &mut TopicScratch,
        mut matched: impl FnMut(&'a Targets),
    ) {
        for key in message.more_keys {
            match &self.routes {
                Routes::Direct(direct) => direct.get(*key).into_iter().for_each(&mut matched),
                Routes::Topic(topic) => topic.find(key, scratch, &mut matched),
                _ => break,
            }
        }
        match &self.routes {
            Routes::Direct(direct) => {
                if let Some(targets) = direct.get(message.key) {
                    matched(targets);
                }
            }
            Routes::Fanout(fanout) if fanout.targets().is_empty() => (),
            Routes::Fanout(fanout) => matched(fanout.targets()),
            Routes::Topic(topic) => topic.find(message.key, scratch, matched),
            Routes::Headers(routes) => routes.find(headers, matched),
            Routes::Partitions(partitions) => {
                if let Some(targets) = partitions.pick(message.own_key.unwrap_or(message.key)) {
                    matched(targets);
                }
            }
            Routes::Choice(choice) => {
                let content = || self.hash_on.hash(message, headers);
                if let Some(targets) = choice.pick(content, message.draw) {
                    matched(targets);
                }
            }
        }
    }
}
