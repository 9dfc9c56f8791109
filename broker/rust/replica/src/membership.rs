//! Which replicas are in sync: the leader removes those that lag and adds those that caught up.
//!
//! Invariants: a change whose outcome is unknown stays pending, and its replicas count, until the record has another version
//! than the change expects (rule 8); a replica is added only with everything that is committed and the beginning of the epoch
//! (rule 5); the set never shrinks below its minimum (rule 10); a seat is a disk, so a blank disk is a new replica (rule 3).

use crate::state::{Pending, Replica};
use crate::{BrokerId, ChangeId, Outcome, Position, ReplicaId, ShardRecord};

impl Replica {
    /// Asks for the change of membership that is due, if none is pending.
    pub(crate) fn change_membership(&mut self) {
        let Some((record, base)) = self.record.clone() else { return };
        if self.leading().is_none_or(|leading| leading.pending.is_some() || leading.start.is_none()) {
            return;
        }
        let wanted = self.without_laggard(&record).or_else(|| self.without_leaver(&record));
        let wanted = wanted.or_else(|| self.with_caught_up(&record)).or_else(|| self.with_blank_disks(&record));
        if let Some(wanted) = wanted.or_else(|| self.with_newcomer(&record)) {
            let change = self.change(base, wanted.clone());
            if let Some(leading) = self.leading() {
                leading.pending = Some(Pending { change, base, wanted, is_unknown: false });
            }
        }
    }

    /// A smaller set, without the replica that lags most.
    fn without_laggard(&mut self, record: &ShardRecord) -> Option<ShardRecord> {
        let (now, settings, end) = (self.now, self.settings, self.log.end);
        let leading = self.leading()?;
        if record.in_sync.len() <= record.min_in_sync {
            return None;
        }
        let lags = |replica: &ReplicaId| {
            let peer = leading.peers.get(replica)?;
            let is_late = now >= peer.caught_up + settings.shrink_after || peer.is_silent(now, settings.suspect_after);
            let is_behind = peer.acknowledged < end && is_late;
            let is_lost = peer.lost.is_some_and(|lost| now >= lost + settings.disconnected_after);
            (is_behind || is_lost).then_some(peer.acknowledged)
        };
        let lagging = record.in_sync.iter().filter_map(|replica| Some((lags(replica)?, *replica)));
        let (_, laggard) = lagging.min()?;
        let mut wanted = record.clone();
        wanted.in_sync.remove(&laggard);
        Some(wanted)
    }

    /// A larger set, with a learner that caught up, and that would not be removed again as one that lags.
    fn with_caught_up(&mut self, record: &ShardRecord) -> Option<ShardRecord> {
        let floor: Position = self.log.committed;
        let (now, end, settings) = (self.now, self.log.end, self.settings);
        let leading = self.leading()?;
        let floor = floor.max(leading.start?);
        let (replica, _) = leading.peers.iter().find(|(replica, peer)| {
            peer.lost.is_none()
                && !peer.is_silent(now, settings.suspect_after)
                && (peer.acknowledged == end || now < peer.caught_up + settings.shrink_after)
                && record.replicas.contains_key(replica)
                && !record.in_sync.contains(replica)
                && peer.acknowledged >= floor
        })?;
        let mut wanted = record.clone();
        wanted.in_sync.insert(*replica);
        Some(wanted)
    }

    /// Other replicas: with the blank disk of a broker, or without the disk that it replaced.
    fn with_blank_disks(&mut self, record: &ShardRecord) -> Option<ShardRecord> {
        let (brokers, me) = (record.brokers(), self.me);
        let leading = self.leading()?;
        let mut wanted = record.clone();
        let of_session = |broker: &BrokerId| leading.sessions.get(broker).map(|&(_, replica)| replica);
        let current = |broker: &BrokerId| if *broker == me.broker { Some(me.replica) } else { of_session(broker) };
        let mut known = leading.sessions.iter().filter(|(broker, _)| brokers.contains(broker));
        if let Some((&broker, &(_, replica))) = known.find(|(_, (_, replica))| !record.replicas.contains_key(replica)) {
            wanted.replicas.insert(replica, broker);
            return Some(wanted);
        }
        let (replaced, _) = record.replicas.iter().find(|(replica, broker)| {
            !record.in_sync.contains(replica) && current(broker).is_some_and(|current| current != **replica)
        })?;
        wanted.replicas.remove(replaced);
        Some(wanted)
    }

    pub(crate) fn take_change(&mut self, change: ChangeId, outcome: Outcome) {
        let Some(leading) = self.leading() else { return };
        let Some(pending) = leading.pending.as_mut().filter(|pending| pending.change == change) else { return };
        match outcome {
            Outcome::Changed(version) => {
                let wanted = pending.wanted.clone();
                leading.pending = None;
                self.know(wanted, version);
                self.advance();
            }
            Outcome::Conflict | Outcome::Unknown => {
                pending.is_unknown = true;
                self.ask_coordinator();
            }
        }
    }

    /// The record of this leader's epoch was read.
    pub(crate) fn take_membership(&mut self) {
        let Some(&(_, version)) = self.record.as_ref() else { return };
        let Some(leading) = self.leading() else { return };
        match &mut leading.pending {
            // The change may still be made, so it is asked for again: at most one of the two is.
            Some(pending) if pending.base == version => {
                if std::mem::take(&mut pending.is_unknown) {
                    let record = pending.wanted.clone();
                    let change = self.change(version, record);
                    if let Some(pending) = self.leading().and_then(|leading| leading.pending.as_mut()) {
                        pending.change = change;
                    }
                }
            }
            _ => leading.pending = None,
        }
        self.advance();
    }
}
