//! What a queue's declaration and policies say about its consumers: whether one of them is active at a time, and how long they
//! may keep a message unacked.

use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::shard::Shard;
use crate::state::State;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerRules {
    pub single_active: bool,
    pub ack_timeout_ms: Option<u64>,
}

impl Shard {
    /// Sets what holds for the consumers of queues. Another limit of time counts at once, also for messages that they have.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn rule_consumers(&self, rules: impl IntoIterator<Item = (QueueId, ConsumerRules)>) -> Result<(), EngineError> {
        let mut elsewhere = Vec::new();
        let mut guard = self.lock()?;
        for (id, rule) in rules {
            if guard.elsewhere.contains_key(&id) {
                elsewhere.push((id, rule));
            } else {
                guard.rule_consumers(id, rule);
            }
        }
        drop(guard);
        for (id, rule) in elsewhere {
            if let Some(home) = self.others.home(id) {
                home.lock()?.rule_consumers(id, rule);
            }
        }
        Ok(())
    }
}

impl State {
    fn rule_consumers(&mut self, id: QueueId, rules: ConsumerRules) {
        let State { queues, wakes, .. } = self;
        if let Some(entry) = queues.get_mut(&id) {
            entry.machine.set_single_active(rules.single_active);
            entry.ack_timeout_ms = rules.ack_timeout_ms;
            let concerned = entry.signals.values().filter(|signal| signal.limit_unacked(rules.ack_timeout_ms));
            concerned.for_each(|signal| wakes.add(signal));
        }
    }
}
