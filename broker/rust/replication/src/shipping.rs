//! Records on their way to a follower: they are read from the log when the connection can take them.
//!
//! Invariants: nothing is read ahead, so a slow connection keeps no records in memory. A message is made for the records that
//! were read, and only while this replica leads the epoch in which they were asked for: the log may be cut meanwhile.

use penstock_log::{Log, LogError, Position, Records, RecordsTicket};
use penstock_replica::{BrokerId, Epoch, Event, Message, ReplicaId, Role};

use crate::replicator::{Now, Output, Replicator};
use crate::wanted::Wanted;

/// Records to be read, by a thread without the replica's lock.
#[derive(Debug)]
#[must_use]
pub struct Shipment {
    wanted: Wanted,
    ticket: RecordsTicket,
}

/// Records that were read, for [`Replicator::finish_shipment`].
#[derive(Debug)]
#[must_use]
pub struct Shipped {
    wanted: Wanted,
    read: Result<Option<Records>, LogError>,
}

/// A message with its records, for a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub to: BrokerId,
    pub message: Message,
    pub bytes: Vec<u8>,
}

impl Shipment {
    /// Reads as many records as have at most so many bytes, and the first one in any case. Blocks.
    pub fn perform(self, bytes_max: usize) -> Shipped {
        let bytes_max = bytes_max.min(self.wanted.bytes_max);
        Shipped { wanted: Wanted { bytes_max, ..self.wanted }, read: self.ticket.perform(bytes_max) }
    }
}

impl Replicator {
    pub(crate) fn want(
        &mut self,
        to: ReplicaId,
        broker: BrokerId,
        epoch: Epoch,
        (after, until, of): (u64, u64, Epoch),
    ) {
        self.wanted.insert(to, Wanted { to, broker, epoch, after, until, of, bytes_max: usize::MAX });
        self.outputs.push(Output::Records { to, broker });
    }

    /// The next records for a replica, as [`Output::Records`] announced them. `None` when they are not needed any more, or when
    /// the log does not have them: [`Output::Lacks`] says so.
    pub fn begin_shipment(&mut self, log: &mut Log, to: ReplicaId) -> (Option<Shipment>, Vec<Output>) {
        let Some(wanted) = self.wanted.get(&to).copied() else { return (None, Vec::new()) };
        if self.lacking.contains(&to) || !self.leads(wanted.epoch) {
            return (None, Vec::new());
        }
        let shipment = match log.begin_records(Position(wanted.after), Position(wanted.until)) {
            Ok(Some(ticket)) => {
                self.wanted.remove(&to);
                Some(Shipment { wanted, ticket })
            }
            Ok(None) => {
                self.lack(wanted);
                None
            }
            Err(error) => {
                self.fail(error);
                None
            }
        };
        self.run(log);
        (shipment, std::mem::take(&mut self.outputs))
    }

    /// The message for records that were read, with their bytes, for the broker of the replica.
    pub fn finish_shipment(&mut self, log: &mut Log, now: Now, shipped: Shipped) -> (Option<Sent>, Vec<Output>) {
        self.now = now;
        let Shipped { wanted, read } = shipped;
        let Wanted { to, broker, epoch, of, .. } = wanted;
        if !self.leads(epoch) {
            return (None, Vec::new());
        }
        let sent = match read {
            Ok(Some(Records { after, until, bytes })) => {
                let message = self.replica.append_message(epoch, after.0, until.0, of);
                self.events.push_back(Event::Sent { to, until: until.0 });
                message.map(|message| Sent { to: broker, message, bytes })
            }
            Ok(None) => {
                self.lack(wanted);
                None
            }
            // After a start, a gap between two segments counts as a part of the first of them: less of it is read.
            Err(LogError::Corrupt { .. }) if wanted.bytes_max > 1 => {
                self.wanted.insert(to, Wanted { bytes_max: wanted.bytes_max / 2, ..wanted });
                self.outputs.push(Output::Records { to, broker });
                None
            }
            Err(error) => {
                self.fail(error);
                None
            }
        };
        self.run(log);
        (sent, std::mem::take(&mut self.outputs))
    }

    fn leads(&self, of: Epoch) -> bool {
        matches!(self.role, Role::Leader { epoch, .. } if epoch == of)
    }

    fn lack(&mut self, wanted: Wanted) {
        self.wanted.insert(wanted.to, wanted);
        self.lacking.insert(wanted.to);
        self.outputs.push(Output::Lacks { to: wanted.to, broker: wanted.broker });
    }

    /// A replica that lacked records asks again where the logs agree: it may have them by now.
    pub(crate) fn try_again(&mut self, to: ReplicaId) {
        if self.lacking.remove(&to)
            && let Some(wanted) = self.wanted.remove(&to)
        {
            self.events.push_back(Event::Sent { to, until: wanted.after });
        }
    }

    /// The connection to a broker is broken, so nothing is sent on it.
    pub(crate) fn forget_wanted(&mut self, broker: BrokerId) {
        let forgotten: Vec<Wanted> = self.wanted.values().copied().filter(|wanted| wanted.broker == broker).collect();
        for wanted in forgotten {
            self.wanted.remove(&wanted.to);
            self.lacking.remove(&wanted.to);
            self.events.push_back(Event::Sent { to: wanted.to, until: wanted.after });
        }
    }
}
