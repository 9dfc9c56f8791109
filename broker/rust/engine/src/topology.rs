//! Topology changes that Python decided, applied to a shard's queues and routing table.
//!
//! Batches are applied in slices, so that messages get their turn in between. The table names a queue only while the
//! shard has it: it changes under the shard's lock where queues come and go, and without it otherwise.

use std::collections::BTreeMap;

use penstock_log::Outcome;
use penstock_queue::{Destination, ExchangeKind, ExchangeSettings, Matched, QueueId};
use rustc_hash::FxHashSet;

use crate::error::EngineError;
use crate::level::{Level, QueueLevels};
use crate::queue_entry::{QueueCounts, QueueSettings, counts_of};
use crate::shard::Shard;
use crate::subscription::SETTLED_AT_ONCE;

/// Queues that are deleted in one hold of the lock: each is up to four records.
const DELETED_AT_ONCE: usize = 1024;

/// The queues that the definitions name, and those with priorities among them.
struct Known {
    ids: FxHashSet<QueueId>,
    priorities: BTreeMap<QueueId, u8>,
}

impl Known {
    /// Whether it is the number of a queue or of one of its lanes.
    fn has(&self, id: QueueId) -> bool {
        if let Some((queue, _)) = id.of_turn() {
            return self.ids.contains(&queue);
        }
        let lanes_of = self.priorities.range(..id).next_back();
        self.ids.contains(&id) || lanes_of.is_some_and(|(queue, &highest)| id <= queue.lane(highest.into()))
    }
}

/// A route of the topology.
#[derive(Clone, Copy, Debug)]
pub struct RouteSettings<'a> {
    pub exchange: &'a str,
    pub key: &'a str,
    pub matching: Option<&'a [u8]>,
    pub destination: Destination<'a>,
}

impl Shard {
    /// Deletes the queues of all logs that the definitions do not name, once after they are read; returns their number.
    ///
    /// # Errors
    /// `Log` when the deletions cannot be written.
    pub fn retain_queues(&self, ids: &[QueueId]) -> Result<usize, EngineError> {
        self.retain_with_lanes(ids, &[])
    }

    /// The same where some queues have priorities, each with its highest: their lanes are kept, too.
    ///
    /// # Errors
    /// As [`Shard::retain_queues`].
    pub fn retain_with_lanes(&self, ids: &[QueueId], priorities: &[(QueueId, u8)]) -> Result<usize, EngineError> {
        let known = Known { ids: ids.iter().copied().collect(), priorities: priorities.iter().copied().collect() };
        let mut count = self.retain_here(&known)?;
        for (_, shard) in self.others.all().into_iter().filter(|(_, other)| !other.is_dedicated()) {
            count += shard.retain_here(&known)?;
        }
        Ok(count + self.retain_dedicated(|id| known.ids.contains(&id))?)
    }

    fn retain_here(&self, known: &Known) -> Result<usize, EngineError> {
        let mut guard = self.lock()?;
        guard.waiting_leases.retain(|id, _| known.ids.contains(id));
        let found = guard.queues.keys().chain(guard.identities.keys()).chain(guard.sources.keys());
        let is_known = |id: QueueId| known.has(id) || guard.histories.has(id);
        let gone: FxHashSet<QueueId> = found.copied().filter(|id| !is_known(*id)).collect();
        drop(guard);
        let gone: Vec<QueueId> = gone.into_iter().collect();
        for some in gone.chunks(DELETED_AT_ONCE) {
            let mut guard = self.lock()?;
            for &id in some {
                guard.queues.remove(&id);
                guard.recovered_groups.remove(&id);
                guard.identities.remove(&id);
                guard.windows.forget_queue(id);
                guard.forget_source(id);
                guard.forget_stage(id)?;
                guard.log.append_delete(id)?;
            }
            guard.write()?;
        }
        Ok(gone.len())
    }

    /// Makes queues keep their messages by priority, up to a highest one each. Call it before a queue is put, also after a start.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn prioritize_queues(&self, queues: impl IntoIterator<Item = (QueueId, u8)>) -> Result<(), EngineError> {
        self.lay_out_queues(queues.into_iter().map(|(id, highest)| (id, highest, false)))
    }

    /// The same where some also have keys that take turns. A start needs it for every queue: messages of keys may be left in one
    /// whose keys take no turns any more.
    ///
    /// # Errors
    /// As [`Shard::prioritize_queues`].
    pub fn lay_out_queues(&self, queues: impl IntoIterator<Item = (QueueId, u8, bool)>) -> Result<(), EngineError> {
        for (id, highest, has_keys) in queues {
            match self.others.home(id) {
                Some(home) => home.lock()?.lay_out(id, highest, has_keys),
                None => self.lock()?.lay_out(id, highest, has_keys),
            }
        }
        Ok(())
    }

    /// Adds a queue, or assigns a recovered one its name.
    ///
    /// # Errors
    /// `Stopped` and `Closed`.
    pub fn put_queue(
        &self,
        id: QueueId,
        name: &str,
        auto_delete: bool,
        level: Option<Level>,
    ) -> Result<(), EngineError> {
        let levels = QueueLevels { chosen: level, least: None };
        self.put_queues([QueueSettings { id, name, auto_delete, levels, stream: None }])
    }

    /// The same for many in one hold of the lock: callers limit their number.
    ///
    /// # Errors
    /// `QueueNumber`, when those before it are added; `Stopped` and `Closed`.
    pub fn put_queues<'a>(&self, queues: impl IntoIterator<Item = QueueSettings<'a>>) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        guard.check(self.name())?;
        let mut elsewhere = Vec::new();
        for settings in queues {
            check_number(settings.id)?;
            if guard.elsewhere.contains_key(&settings.id) {
                elsewhere.push(settings);
            } else {
                guard.put_queue(settings);
                self.change_routing(|routing| routing.put_queue(settings.name, settings.id));
                if settings.stream.is_some() {
                    guard.identify_if_room(settings.id)?;
                }
            }
        }
        drop(guard);
        elsewhere.into_iter().try_for_each(|settings| self.put_elsewhere(settings))
    }

    /// Ends the queue's consumers and drops its messages; returns their number, unacked ones included. Also removes
    /// an own log whose queue was not put.
    ///
    /// # Errors
    /// `NoQueue`; `Log` when the deletion cannot be written.
    pub fn delete_queue(&self, id: QueueId) -> Result<u64, EngineError> {
        let home = self.others.home(id);
        // The routing loses the queue before its own log is waited for.
        let count = self.delete_at_home(id)?;
        let highest = home.as_deref().unwrap_or(self).lock()?.priorities.remove(&id).unwrap_or(0);
        self.forget_sources(id, highest)?;
        Ok(count)
    }

    fn delete_at_home(&self, id: QueueId) -> Result<u64, EngineError> {
        let Some(home) = self.others.home(id) else { return self.delete_here(id, None) };
        if home.is_dedicated() {
            return self.delete_dedicated(id, &home);
        }
        let removals = self.unroute(&mut *self.lock()?, id);
        self.others.remove_queue(id);
        // One that was placed and never put has nothing to delete.
        if home.has_queue(id)? { home.delete_here(id, Some(removals)) } else { Ok(0) }
    }

    fn has_queue(&self, id: QueueId) -> Result<bool, EngineError> {
        Ok(self.lock()?.queues.contains_key(&id))
    }

    /// `removals` are those of the routing, unless it has the queue yet.
    pub(crate) fn delete_here(&self, id: QueueId, removals: Option<u64>) -> Result<u64, EngineError> {
        let mut guard = self.lock()?;
        let Some(mut entry) = guard.queues.remove(&id) else {
            return Err(EngineError::NoQueue(id.0, guard.gone.absent(id, self.name())));
        };
        guard.gone.add(id, &entry.name);
        let removals = removals.unwrap_or_else(|| self.remove_from_routing(&entry.name));
        guard.removals = removals.max(guard.removals);
        guard.shut.remove(&id);
        guard.rejecting.remove(&id);
        guard.too_long.remove(&id);
        guard.keyed.remove(&id);
        guard.found_keys.remove(&id);
        guard.idle.forget(id);
        guard.aging.remove(&id);
        guard.dead_letters.remove(&id);
        guard.delivery_limits.remove(&id);
        guard.retry_schedules.remove(&id);
        guard.windows.forget_queue(id);
        guard.dying.forget(id);
        guard.identities.remove(&id);
        guard.forget_source(id);
        entry.cancel(&format!("queue '{}' was deleted", entry.name), &mut guard.wakes);
        match guard.forget_stage(id).and_then(|()| guard.delete_lanes(id, &entry)) {
            // The definitions decide: the next start deletes queues that they do not name.
            Err(error) if error.is_full() => {}
            other => other?,
        }
        guard.write()?;
        // Freeing a long queue takes time.
        drop(guard);
        Ok(entry.machine.free_count() + entry.machine.unacked_count())
    }

    /// Refuses new messages in a queue without ready ones, so that it can be deleted as empty whenever that is recorded; returns
    /// its counts. A queue with ready messages is unchanged.
    ///
    /// # Errors
    /// `NoQueue`; `Stopped` when a bug poisoned the shard.
    pub fn shut_empty_queue(&self, id: QueueId) -> Result<QueueCounts, EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.shut_empty_queue(id);
        }
        let mut guard = self.lock()?;
        let dying = guard.dying.count_of(id);
        let counts = counts_of(self.entry(&mut guard, id)?, dying);
        if counts.ready_count == 0 {
            guard.shut.insert(id);
        }
        Ok(counts)
    }

    /// Refuses new messages in a queue until it is deleted or reopened: the next start may delete it. A deleted queue
    /// may be named.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn shut_queue(&self, id: QueueId) -> Result<(), EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.shut_queue(id);
        }
        self.lock()?.shut.insert(id);
        Ok(())
    }

    /// Accepts messages again: it is not deleted after all.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn reopen_queue(&self, id: QueueId) -> Result<(), EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.reopen_queue(id);
        }
        self.lock()?.shut.remove(&id);
        Ok(())
    }

    /// Drops the ready messages of a queue; returns their number. Requeued messages, which are kept one by one, go in
    /// parts, and so do the others where settled ones lie between them, with those that came meanwhile.
    ///
    /// # Errors
    /// `NoQueue`; `Log` when the purge cannot be written.
    pub fn purge_queue(&self, id: QueueId) -> Result<u64, EngineError> {
        if let Some(home) = self.others.home(id) {
            return home.purge_queue(id);
        }
        let lanes: Vec<u16> = self.entry(&mut *self.lock()?, id)?.machine.lanes().collect();
        lanes.into_iter().chain([0]).try_fold(0, |count, lane| Ok(count + self.purge_lane(id, lane)?))
    }

    fn purge_lane(&self, id: QueueId, lane: u16) -> Result<u64, EngineError> {
        let mut count = 0;
        // Messages that others requeue meanwhile do not extend the loop.
        let mut parts_left = self.entry(&mut *self.lock()?, id)?.machine.returned_count(lane) / SETTLED_AT_ONCE;
        loop {
            let mut guard = self.lock()?;
            let machine = &mut self.entry(&mut guard, id)?.machine;
            let is_returned = parts_left > 0;
            let settled = if is_returned {
                machine.purge_returned(lane, SETTLED_AT_ONCE)
            } else {
                machine.purge_lane(lane, SETTLED_AT_ONCE)
            };
            guard.log_settled(id, Outcome::Drop, &settled)?;
            count += settled.count;
            if !is_returned && settled.ranges.len() < SETTLED_AT_ONCE {
                // A reader may have reached its end.
                guard.wake(id, 0);
                return Ok(count);
            }
            parts_left = parts_left.saturating_sub(1);
        }
    }

    /// Adds an exchange, or changes its alternate.
    ///
    /// # Errors
    /// None at present.
    pub fn put_exchange(&self, name: &str, kind: ExchangeKind, alternate: Option<&str>) -> Result<(), EngineError> {
        self.put_exchange_as(name, &ExchangeSettings::new(kind, alternate))
    }

    /// The same with all settings of an exchange.
    ///
    /// # Errors
    /// None at present.
    pub fn put_exchange_as(&self, name: &str, settings: &ExchangeSettings<'_>) -> Result<(), EngineError> {
        self.change_routing(|routing| routing.put_exchange_as(name, settings));
        Ok(())
    }

    /// # Errors
    /// `Log` when it cannot be written that what the exchange has seen is forgotten.
    pub fn delete_exchange(&self, name: &str) -> Result<(), EngineError> {
        self.change_routing(|routing| routing.remove_exchange(name));
        self.forget_history(name)?;
        self.deduplicate_exchange(name, None)
    }

    /// # Errors
    /// `Routing` when the exchange does not exist or `matching` is no field table.
    pub fn add_route(
        &self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), EngineError> {
        self.add_routes([RouteSettings { exchange, key, matching, destination }])
    }

    /// The same for many in one change: callers limit their number. Those before a failing one stay.
    ///
    /// # Errors
    /// As [`Shard::add_route`].
    pub fn add_routes<'a>(&self, routes: impl IntoIterator<Item = RouteSettings<'a>>) -> Result<(), EngineError> {
        let routes: Vec<RouteSettings<'a>> = routes.into_iter().collect();
        let table = self.routing();
        let keeps = routes.iter().any(|route| table.history_of(route.exchange).is_some());
        drop(table);
        if keeps {
            return routes.into_iter().try_for_each(|route| self.add_route_with_history(route));
        }
        Ok(self.change_routing(|routing| {
            routes.into_iter().try_for_each(|RouteSettings { exchange, key, matching, destination }| {
                routing.add_route(exchange, key, matching, destination)
            })
        })?)
    }

    /// # Errors
    /// `Routing` when `matching` is no field table.
    pub fn remove_route(
        &self,
        exchange: &str,
        key: &str,
        matching: Option<&[u8]>,
        destination: Destination<'_>,
    ) -> Result<(), EngineError> {
        self.change_routing(|routing| routing.remove_route(exchange, key, matching, destination))?;
        self.end_giving(exchange, destination)
    }

    /// The names of the queues that a message would reach, sorted.
    ///
    /// # Errors
    /// `NoExchange`; `Stopped` when a bug poisoned the shard.
    pub fn route(&self, exchange: &str, key: &str, headers: Option<&[u8]>) -> Result<Vec<String>, EngineError> {
        let mut matched = Matched::default();
        self.routing()
            .route(exchange.as_bytes(), key.as_bytes(), headers, &mut matched)
            .map_err(|_| EngineError::NoExchange(exchange.to_owned(), self.name().to_owned()))?;
        let guard = self.lock()?;
        let here = |id: &QueueId| Some(guard.queues.get(id).filter(|entry| !entry.is_history)?.name.clone());
        let elsewhere = |id: &QueueId| guard.elsewhere.get(id).and_then(|found| found.name.clone());
        let mut names: Vec<String> =
            matched.queues.iter().filter_map(|id| here(id).or_else(|| elsewhere(id))).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// # Errors
/// `QueueNumber` for a number that no record can name.
pub(crate) fn check_number(id: QueueId) -> Result<(), EngineError> {
    if id <= QueueId::MAX { Ok(()) } else { Err(EngineError::QueueNumber(id.0)) }
}
