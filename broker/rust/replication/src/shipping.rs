//! Records on their way to a follower: they are read from the log when the connection can take them.
//!
//! Invariants: nothing is read ahead, so a slow connection keeps no records in memory. A message is made for the records that
//! were read, and only while this replica leads the epoch in which they were asked for: the log may be cut meanwhile.

use bytes::Bytes;
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

/// The records that were read last. Followers that keep up want the same ones, one after the other: they are read and checked once.
/// Only records read in the present epoch of this leader are used, because its log is not cut in that time.
#[derive(Debug, Default)]
pub struct LastRead(Option<(Epoch, Records)>);

impl LastRead {
    /// Keeps records for the other followers.
    pub fn keep(&mut self, shipped: &Shipped) {
        if let Ok(Some(records)) = &shipped.read {
            self.0 = Some((shipped.wanted.epoch, records.clone()));
        }
    }

    /// Frees the memory.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

/// A message with its records, for a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub to: BrokerId,
    pub message: Message,
    pub bytes: Bytes,
}

impl Shipment {
    /// The records, if those that were read last are the first ones of those that are wanted. Else they have to be read.
    #[must_use]
    pub fn found(&self, last: &LastRead) -> Option<Shipped> {
        let Wanted { epoch, after, until, bytes_max, .. } = self.wanted;
        let (_, read) = last.0.as_ref().filter(|(of, _)| *of == epoch)?;
        let is_first = read.after.0 == after && read.until.0 <= until && read.bytes.len() <= bytes_max;
        is_first.then(|| Shipped { wanted: self.wanted, read: Ok(Some(read.clone())) })
    }

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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use penstock_log::{Format, LogOptions};

    use super::*;

    const WANTED: Wanted = Wanted { to: 5, broker: 2, epoch: 7, after: 0, until: 0, of: 1, bytes_max: usize::MAX };

    #[test]
    fn records_that_were_read_for_one_follower_serve_another_one_of_the_same_epoch_from_the_same_position() {
        let directory = tempfile::tempdir().unwrap();
        let options = LogOptions { format: Format::Two, ..LogOptions::default() };
        let mut log = Log::open(directory.path(), options).unwrap().log;
        log.follow_epoch(1, 0, penstock_log::Begun::default()).unwrap();
        log.write().unwrap();
        let after = log.end();
        let middle = log.append_mark(b"x", b"1", &[1; 100]).unwrap();
        let until = log.append_mark(b"x", b"2", &[2; 100]).unwrap();
        log.write().unwrap();
        let wanted = Wanted { after: after.0, until: until.0, ..WANTED };
        let shipment = |wanted: Wanted| {
            let ticket = log.begin_records(Position(wanted.after), Position(wanted.until)).unwrap().unwrap();
            Shipment { wanted, ticket }
        };
        let mut last = LastRead::default();
        assert!(shipment(wanted).found(&last).is_none());
        let read = shipment(wanted).perform(usize::MAX);
        last.keep(&read);

        let found = shipment(Wanted { to: 6, ..wanted }).found(&last).unwrap();
        assert_eq!((found.wanted.to, found.read.unwrap()), (6, read.read.unwrap()));

        for other in [
            Wanted { epoch: 8, ..wanted },
            Wanted { after: middle.0, ..wanted },
            Wanted { until: middle.0, ..wanted },
            Wanted { bytes_max: 100, ..wanted },
        ] {
            assert!(shipment(other).found(&last).is_none(), "{other:?}");
        }
        last.forget();
        assert!(shipment(wanted).found(&last).is_none());
    }
}
