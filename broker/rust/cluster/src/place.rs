//! Where the log of a replica is: with the replica, or with the queues of its shard while this broker leads.
//!
//! Invariant: the queues' lock is taken while the replica's is held, never the other way round.

use std::sync::Arc;

use penstock_engine::Shard as Queues;
use penstock_log::{Log, Position};
use penstock_replica::{Epoch, Role};
use penstock_replication::{ReplicatedLog, Replicator};

pub(crate) enum Place {
    Here(Box<ReplicatedLog>),
    Led(Box<Led>),
}

/// A log that is with its queues for a term, and until that has ended and no fold is under way.
pub(crate) struct Led {
    pub replicator: Replicator,
    pub queues: Arc<Queues>,
    pub epoch: Epoch,
}

/// The queues of a term, for the outputs of their replica.
pub(crate) struct Term {
    queues: Arc<Queues>,
    epoch: Epoch,
}

impl Led {
    pub fn term(&self) -> Term {
        Term { queues: Arc::clone(&self.queues), epoch: self.epoch }
    }

    /// It may have ended in another shard of the virtual host, while this replica leads on.
    fn is_over(&self) -> bool {
        !is_of(self.replicator.role(), self.epoch) || self.queues.is_deposed()
    }
}

fn is_of(role: Role, term: Epoch) -> bool {
    matches!(role, Role::Leader { epoch, .. } if epoch == term)
}

impl Term {
    /// Tells the queues how far the log is committed. The queues of an ended term ignore it.
    pub fn hear_committed(&self, below: Position) {
        self.queues.committed(below);
    }

    /// Passes a new role on: the queues learn whether they may deliver messages, or their term ends.
    pub fn hear_role(&self, role: Role) {
        if is_of(role, self.epoch) {
            self.queues.set_delivers(matches!(role, Role::Leader { delivers: true, .. }));
        } else {
            self.queues.end_term();
        }
    }
}

impl Place {
    pub fn replicator(&self) -> &Replicator {
        match self {
            Place::Here(replicated) => replicated.replicator(),
            Place::Led(led) => &led.replicator,
        }
    }

    /// The queues, if they have the log.
    pub fn led(&self) -> Option<&Led> {
        if let Place::Led(led) = self { Some(led) } else { None }
    }

    /// Acts on the replica and its log. The default after a bug in the queues: such a replica is silent, and another one leads soon.
    pub fn act<T: Default>(&mut self, act: impl FnOnce(&mut Replicator, &mut Log) -> T) -> T {
        match self {
            Place::Here(replicated) => {
                let (log, replicator) = replicated.parts();
                act(replicator, log)
            }
            Place::Led(led) => {
                let Led { replicator, queues, .. } = &mut **led;
                queues.with_log(|log| act(replicator, log)).unwrap_or_default()
            }
        }
    }

    /// The log and its epoch, if the queues may be opened on it.
    pub fn ready_to_lead(&mut self) -> Option<(Epoch, &mut Log)> {
        let Place::Here(replicated) = self else { return None };
        match replicated.role() {
            Role::Leader { epoch, appends: true, .. } => Some((epoch, replicated.log())),
            _ => None,
        }
    }
}

/// Ends a term that is over, or in any case, and takes the log back, unless a fold is under way.
pub(crate) fn take_back(place: &mut Option<Place>, in_any_case: bool) {
    if !matches!(place, Some(Place::Led(led)) if in_any_case || led.is_over()) {
        return;
    }
    let Some(Place::Led(led)) = place.take() else { return };
    led.queues.end_term();
    *place = Some(match led.queues.take_log() {
        Some(log) => Place::Here(Box::new(ReplicatedLog::of(log, led.replicator))),
        None => Place::Led(led),
    });
}
