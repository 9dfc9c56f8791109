//! Where routes lead: queues, and other exchanges by their numbers.

use super::shared_map::SharedMap;
use super::shared_set::SharedSet;
use crate::ids::QueueId;

/// One declaration of an exchange: a later one of the same name has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ExchangeNumber(pub(super) u64);

/// A resolved destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    Queue(QueueId),
    Exchange(ExchangeNumber),
}

/// Targets for every key. The keys make routes distinct: a target stays until the last of them is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyedTargets {
    keys: SharedMap<Target, SharedMap<Box<[u8]>, ()>>,
    targets: Targets,
}

/// Targets of the routes of one pattern. Invariant: kept only while not empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    queues: SharedSet<QueueId>,
    exchanges: SharedSet<ExchangeNumber>,
}

impl Targets {
    pub(super) fn of(target: Target) -> Self {
        let mut targets = Targets::default();
        targets.add(target);
        targets
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.queues.iter()
    }

    pub(super) fn exchanges(&self) -> impl Iterator<Item = ExchangeNumber> + '_ {
        self.exchanges.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.exchanges.is_empty()
    }

    pub(super) fn add(&mut self, target: Target) {
        match target {
            Target::Queue(id) => self.queues.insert(id),
            Target::Exchange(number) => self.exchanges.insert(number),
        }
    }

    pub(super) fn remove(&mut self, target: Target) {
        match target {
            Target::Queue(id) => self.queues.remove(id),
            Target::Exchange(number) => self.exchanges.remove(number),
        }
    }
}

impl KeyedTargets {
    pub(super) fn targets(&self) -> &Targets {
        &self.targets
    }

    pub(super) fn has(&self, target: Target) -> bool {
        self.keys.get(&target).is_some()
    }

    pub(super) fn add(&mut self, key: &[u8], target: Target) {
        match self.keys.get_mut(&target) {
            Some(keys) => keys.insert(key.into(), ()),
            None => {
                let mut keys = SharedMap::default();
                keys.insert(key.into(), ());
                self.keys.insert(target, keys);
            }
        }
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
