//! Relays that cannot be made: that is said once in a while for each broker, as there may be one for each call of a client.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_replica::BrokerId;

use crate::lock::lock;
use crate::shard::Events;

const SAID_EVERY: Duration = Duration::from_secs(60);

/// When a broker's last relay that could not be made was said.
#[derive(Default)]
pub(crate) struct Missed(Mutex<BTreeMap<BrokerId, Instant>>);

impl Missed {
    pub fn say(&self, events: &dyn Events, broker: BrokerId, error: &std::io::Error) {
        let mut said = lock(&self.0);
        said.retain(|_, at| at.elapsed() < SAID_EVERY);
        if said.contains_key(&broker) {
            return;
        }
        said.insert(broker, Instant::now());
        drop(said);
        let text = "clients are not relayed there, and are told to connect to it themselves";
        events.noticed(&format!("broker {broker} takes no relay: {error}; {text}"));
    }
}
