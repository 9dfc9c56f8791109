//! Which brokers have a replica: the leader brings in those that are to have one, and takes out those that are not to any more.
//!
//! Invariants: one broker at a time comes or goes, and none goes as long as one that is to stay is not in sync. A replica comes as a learner,
//! and is added to the in-sync set like any other (rule 5). One that goes leaves the in-sync set and the record by one change, and
//! counts until the coordinator has confirmed that (rule 2); the minimum is lowered only with the number of replicas (rule 10). A leader
//! takes no acknowledgement of a replica for the present one that left before (rule 3): its disk may be deleted since. A leader never takes
//! itself out: it hands over before, at the word of its host.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::{Replica, State};
use crate::{BrokerId, ReplicaId, ShardRecord};

/// How many of the replicas of so many brokers have to be in sync at least: more than half, where their number is odd or two. With one broker
/// more than an odd number, as during a move, the loss of as many has to be survived as before.
#[must_use]
pub fn minimum_of(brokers: usize) -> usize {
    if brokers > 2 { brokers.div_ceil(2) } else { brokers }
}

impl Replica {
    /// The other brokers that a leader sends beats to: those with a replica, and those that are to have one.
    pub(crate) fn listeners(&self) -> BTreeSet<BrokerId> {
        let to_come = self.placed.iter().copied().filter(|&broker| broker != self.me.broker);
        self.others().into_iter().chain(to_come).collect()
    }

    /// A learner more: the replica of a broker that is to have one, and has said where its log is.
    pub(crate) fn with_newcomer(&mut self, record: &ShardRecord) -> Option<ShardRecord> {
        let (brokers, placed) = (record.brokers(), self.placed.clone());
        if !self.may_move(record) || brokers.len() > placed.len() {
            return None;
        }
        let leading = self.leading()?;
        let mut known = leading.sessions.iter();
        let (&broker, &(_, replica)) =
            known.find(|(broker, _)| placed.contains(broker) && !brokers.contains(broker))?;
        if record.replicas.contains_key(&replica) {
            return None;
        }
        let mut wanted = record.clone();
        wanted.replicas.insert(replica, broker);
        Some(wanted)
    }

    /// Fewer replicas: without those of a broker that is not to have one any more. Those that are not in sync go first.
    pub(crate) fn without_leaver(&mut self, record: &ShardRecord) -> Option<ShardRecord> {
        let me = self.me.broker;
        if !self.may_move(record) || !self.may_lose_one(record) {
            return None;
        }
        let in_sync =
            |broker: &BrokerId| record.in_sync.iter().any(|replica| record.replicas.get(replica) == Some(broker));
        let brokers = record.brokers();
        let leavers = brokers.iter().filter(|&&broker| broker != me && !self.placed.contains(&broker));
        let leaver = leavers.copied().min_by_key(|broker| (in_sync(broker), *broker))?;
        let mut wanted = record.clone();
        wanted.replicas.retain(|_, &mut broker| broker != leaver);
        wanted.in_sync.retain(|replica| wanted.replicas.contains_key(replica));
        wanted.min_in_sync = record.min_in_sync.min(minimum_of(brokers.len() - 1));
        (wanted.in_sync.len() >= wanted.min_in_sync).then_some(wanted)
    }

    /// Whether a broker may come or go: it is known which ones are to have a replica, those of them that have one are in sync, and no leader
    /// before delivers any more, which may know as many brokers less.
    fn may_move(&mut self, record: &ShardRecord) -> bool {
        let are_settled = record
            .replicas
            .iter()
            .all(|(replica, broker)| record.in_sync.contains(replica) || !self.placed.contains(broker));
        let is_known = !self.placed.is_empty();
        is_known && are_settled && self.leading().is_some_and(|leading| leading.alone_from.is_some())
    }

    /// Whether the shard has enough replicas without one of those that are to go.
    fn may_lose_one(&self, record: &ShardRecord) -> bool {
        let brokers = record.brokers();
        brokers.len() > self.placed.len() || self.placed.is_subset(&brokers)
    }

    /// Knows which brokers are to have a replica.
    pub(crate) fn place(&mut self, brokers: BTreeSet<BrokerId>) {
        self.placed = brokers;
        self.forget_strangers(&BTreeMap::new());
    }

    /// Forgets what replicas have acknowledged that were in a record and are not in the present one, and those of brokers that have no part in
    /// the shard.
    pub(crate) fn forget_strangers(&mut self, before: &BTreeMap<ReplicaId, BrokerId>) {
        let State::Leading(leading) = &mut self.state else { return };
        let Some((record, _)) = &self.record else { return };
        let (brokers, placed) = (record.brokers(), &self.placed);
        let has_left = |replica: &ReplicaId| before.contains_key(replica) && !record.replicas.contains_key(replica);
        let is_known = |broker: &BrokerId| brokers.contains(broker) || placed.contains(broker);
        leading.peers.retain(|replica, peer| is_known(&peer.broker) && !has_left(replica));
        leading.sessions.retain(|broker, (_, replica)| is_known(broker) && !has_left(replica));
    }

    /// Whether a broker has a part in the shard: a replica, or a place for one.
    pub(crate) fn is_known(&self, broker: BrokerId) -> bool {
        self.placed.contains(&broker) || self.record().is_some_and(|record| record.brokers().contains(&broker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_more_than_an_odd_number_raises_no_minimum() {
        assert_eq!([1, 2, 3, 4, 5, 6].map(minimum_of), [1, 2, 2, 2, 3, 3]);
    }
}
