//! One exchange: its routes, in the fastest form for its kind, and its alternate.
//!
//! Adding and removing a route costs the same however many there are. It knows other exchanges by their numbers only.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::headers::{HeaderIndex, HeaderRoutes};
use super::partitions::Partitions;
use super::topic::{TopicRoutes, TopicScratch};
use super::{ExchangeKind, ExchangeNumber, Keys, RoutingError, Target};
use crate::ids::QueueId;

#[derive(Debug)]
pub(super) struct Exchange {
    /// Used when nothing matches here; it need not exist.
    pub(super) alternate: Option<Box<[u8]>>,
    routes: Routes,
}

#[derive(Debug)]
enum Routes {
    Direct(FxHashMap<Box<[u8]>, Targets>),
    Fanout(KeyedTargets),
    Topic(TopicRoutes),
    Headers(HeaderRoutes),
    Partitions(Partitions),
}

/// Targets for every key. The keys make routes distinct: a target stays until the last of them is gone.
#[derive(Debug, Default)]
pub(super) struct KeyedTargets {
    keys: FxHashMap<Target, BTreeSet<Box<[u8]>>>,
    targets: Targets,
}

/// Targets of the routes of one pattern. Invariant: kept only while not empty.
#[derive(Debug, Default)]
pub(super) struct Targets {
    queues: BTreeSet<QueueId>,
    exchanges: BTreeSet<ExchangeNumber>,
}

impl Targets {
    pub(super) fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.queues.iter().copied()
    }

    pub(super) fn exchanges(&self) -> impl Iterator<Item = ExchangeNumber> + '_ {
        self.exchanges.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.exchanges.is_empty()
    }

    pub(super) fn add(&mut self, target: Target) {
        match target {
            Target::Queue(id) => self.queues.insert(id),
            Target::Exchange(number) => self.exchanges.insert(number),
        };
    }

    pub(super) fn remove(&mut self, target: Target) {
        match target {
            Target::Queue(id) => self.queues.remove(&id),
            Target::Exchange(number) => self.exchanges.remove(&number),
        };
    }
}

impl Exchange {
    pub(super) fn new(kind: ExchangeKind, alternate: Option<Box<[u8]>>) -> Self {
        let routes = match kind {
            ExchangeKind::Direct => Routes::Direct(FxHashMap::default()),
            ExchangeKind::Fanout => Routes::Fanout(KeyedTargets::default()),
            ExchangeKind::Topic => Routes::Topic(TopicRoutes::default()),
            ExchangeKind::Headers => Routes::Headers(HeaderRoutes::default()),
            ExchangeKind::Partitions => Routes::Partitions(Partitions::default()),
        };
        Exchange { alternate, routes }
    }

    pub(super) fn kind(&self) -> ExchangeKind {
        match self.routes {
            Routes::Direct(_) => ExchangeKind::Direct,
            Routes::Fanout(_) => ExchangeKind::Fanout,
            Routes::Topic(_) => ExchangeKind::Topic,
            Routes::Headers(_) => ExchangeKind::Headers,
            Routes::Partitions(_) => ExchangeKind::Partitions,
        }
    }

    pub(super) fn add(&mut self, key: &[u8], matching: &[u8], target: Target) -> Result<(), RoutingError> {
        match &mut self.routes {
            Routes::Direct(keys) => keys.entry(key.into()).or_default().add(target),
            Routes::Fanout(fanout) => fanout.add(key, target),
            Routes::Topic(topic) => topic.add(key, target),
            Routes::Headers(headers) => headers.add(key, matching, target)?,
            Routes::Partitions(partitions) => partitions.add(key, target),
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &[u8], matching: &[u8], target: Target) {
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
        }
    }

    /// Calls `matched` with the targets of every pattern that a message matches.
    pub(super) fn find<'a>(
        &'a self,
        keys: Keys<'_>,
        headers: &mut HeaderIndex<'_>,
        scratch: &mut TopicScratch,
        mut matched: impl FnMut(&'a Targets),
    ) {
        match &self.routes {
            Routes::Direct(direct) => {
                if let Some(targets) = direct.get(keys.routing) {
                    matched(targets);
                }
            }
            Routes::Fanout(fanout) if fanout.targets().is_empty() => (),
            Routes::Fanout(fanout) => matched(fanout.targets()),
            Routes::Topic(topic) => topic.find(keys.routing, scratch, matched),
            Routes::Headers(routes) => routes.find(headers, matched),
            Routes::Partitions(partitions) => {
                if let Some(targets) = partitions.pick(keys.own.unwrap_or(keys.routing)) {
                    matched(targets);
                }
            }
        }
    }
}

impl KeyedTargets {
    pub(super) fn targets(&self) -> &Targets {
        &self.targets
    }

    pub(super) fn add(&mut self, key: &[u8], target: Target) {
        self.keys.entry(target).or_default().insert(key.into());
        self.targets.add(target);
    }

    pub(super) fn remove(&mut self, key: &[u8], target: Target) {
        let Some(keys) = self.keys.get_mut(&target) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(&target);
            self.targets.remove(target);
        }
    }
}
