//! The coordinator: one record that is changed by compare-and-set. Requests may be late, lost, or lose their answers.

use penstock_replica::{ChangeId, Event, Outcome, ReadId, ShardRecord, Version};

use super::{Due, World};

pub struct Coordinator {
    record: ShardRecord,
    version: u64,
    pub is_out: bool,
    /// In thousandths.
    pub loss: u64,
    pub delay: u64,
    /// Changes that may still be made.
    pub on_their_way: Vec<ShardRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read { broker: usize, boot: u64, read: ReadId },
    Change { broker: usize, boot: u64, change: ChangeId, base: Version, record: ShardRecord },
}

/// After this time a broker takes a change without an answer as unknown.
const GIVES_UP_AFTER: u64 = 2_000;

impl Coordinator {
    pub fn new(record: ShardRecord) -> Coordinator {
        Coordinator { record, version: 1, is_out: false, loss: 0, delay: 10, on_their_way: Vec::new() }
    }

    pub fn record(&self) -> &ShardRecord {
        &self.record
    }

    /// An operator replaces the record.
    pub fn replace(&mut self, record: ShardRecord) {
        self.record = record;
        self.version += 1;
    }

    pub fn version(&self) -> Version {
        Version(self.version)
    }
}

impl World {
    pub(super) fn ask(&mut self, request: Request) {
        if let Request::Change { broker, boot, change, record, .. } = &request {
            self.coordinator.on_their_way.push(record.clone());
            let event = Box::new(Event::Answered { change: *change, outcome: Outcome::Unknown });
            let (broker, boot) = (*broker, *boot);
            self.after(GIVES_UP_AFTER, Due::ToReplica { broker, boot, event, entries: Vec::new() });
        }
        let delay = 1 + self.random.below(self.coordinator.delay);
        // A request may arrive after its sender gave it up.
        let delay = if self.random.happens(self.coordinator.loss) { delay + self.random.below(4_000) } else { delay };
        self.after(delay, Due::AtCoordinator(request));
    }

    pub(super) fn answer(&mut self, request: Request) -> Result<(), String> {
        let (broker, boot, event) = match request {
            Request::Read { broker, boot, read } => {
                if self.coordinator.is_out {
                    return Ok(());
                }
                let record = Some((self.coordinator.record.clone(), self.coordinator.version()));
                (broker, boot, Event::Read { read: Some(read), record })
            }
            Request::Change { broker, boot, change, base, record } => {
                let on_their_way = &mut self.coordinator.on_their_way;
                if let Some(place) = on_their_way.iter().position(|other| *other == record) {
                    on_their_way.swap_remove(place);
                }
                if self.coordinator.is_out || self.random.happens(self.coordinator.loss / 4) {
                    return Ok(());
                }
                let outcome = if base == self.coordinator.version() {
                    check(&self.coordinator.record, &record)?;
                    self.check_disks_of(&record)?;
                    self.coordinator.record = record;
                    self.coordinator.version += 1;
                    Outcome::Changed(self.coordinator.version())
                } else {
                    Outcome::Conflict
                };
                (broker, boot, Event::Answered { change, outcome })
            }
        };
        if !self.random.happens(self.coordinator.loss) {
            let delay = 1 + self.random.below(self.coordinator.delay);
            self.after(delay, Due::ToReplica { broker, boot, event: Box::new(event), entries: Vec::new() });
        }
        Ok(())
    }
}

/// The in-sync set has its minimum, and an election changes nothing but the leader.
fn check(before: &ShardRecord, after: &ShardRecord) -> Result<(), String> {
    let elects =
        after.epoch == before.epoch + 1 && after.in_sync == before.in_sync && after.replicas == before.replicas;
    let changes = after.epoch == before.epoch && after.leader == before.leader;
    if before.brokers().symmetric_difference(&after.brokers()).count() > 1 {
        return Err(format!("several brokers come or go: {before:?} is changed to {after:?}"));
    }
    if after.in_sync.len() >= after.min_in_sync && (elects || changes) {
        return Ok(());
    }
    Err(format!("{before:?} is changed to {after:?}"))
}
