//! The coordinator: one record that is changed by compare-and-set. Requests may be late or lost, and so may answers.

use std::collections::BTreeMap;

use penstock_replica::{BrokerId, ChangeId, Leader, Outcome, ReadId, ReplicaId, ShardRecord, Version};

use super::{BROKERS, Due, Input, World};

/// After this time a broker takes a change without an answer as unknown.
const GIVES_UP_AFTER: u64 = 2_000;

pub struct Coordinator {
    record: ShardRecord,
    version: u64,
    /// In thousandths.
    pub loss: u64,
}

#[derive(Debug)]
pub enum Request {
    Read { node: usize, boot: u64, read: ReadId },
    Change { node: usize, boot: u64, change: ChangeId, base: Version, record: ShardRecord },
}

impl Coordinator {
    pub fn new(replicas: BTreeMap<ReplicaId, BrokerId>) -> Coordinator {
        let first = replicas.iter().next().map(|(&replica, &broker)| Leader { broker, replica, boot: 0 }).unwrap();
        let record = ShardRecord {
            epoch: 0,
            leader: first,
            in_sync: replicas.keys().copied().collect(),
            replicas,
            min_in_sync: 2,
        };
        Coordinator { record, version: 1, loss: 0 }
    }

    pub fn record(&self) -> &ShardRecord {
        &self.record
    }
}

impl World {
    pub(super) fn ask(&mut self, request: Request) {
        if let &Request::Change { node, boot, change, .. } = &request {
            let input = Some(Input::Answered { change, outcome: Outcome::Unknown });
            self.after(GIVES_UP_AFTER, Due::Input { node, boot, input });
        }
        let late = if self.happens(self.coordinator.loss) { self.below(4_000) } else { 0 };
        let delay = 1 + self.below(20) + late;
        self.after(delay, Due::AtCoordinator(request));
    }

    pub(super) fn answer(&mut self, request: Request) {
        let (node, boot, input) = match request {
            Request::Read { node, boot, read } => {
                let record = Some((self.coordinator.record.clone(), Version(self.coordinator.version)));
                (node, boot, Input::Read { read: Some(read), record })
            }
            Request::Change { node, boot, change, base, record } => {
                let is_made = base == Version(self.coordinator.version);
                if is_made {
                    self.coordinator.record = record;
                    self.coordinator.version += 1;
                    self.watched();
                }
                let made = Outcome::Changed(Version(self.coordinator.version));
                (node, boot, Input::Answered { change, outcome: if is_made { made } else { Outcome::Conflict } })
            }
        };
        if !self.happens(self.coordinator.loss) {
            let delay = 1 + self.below(20);
            self.after(delay, Due::Input { node, boot, input: Some(input) });
        }
    }

    /// Some brokers watch the record.
    fn watched(&mut self) {
        for node in 0..BROKERS {
            if self.happens(500) {
                let record = Some((self.coordinator.record.clone(), Version(self.coordinator.version)));
                let (boot, delay) = (self.nodes[node].boot, 1 + self.below(500));
                self.after(delay, Due::Input { node, boot, input: Some(Input::Read { read: None, record }) });
            }
        }
    }
}
