//! Relays that cannot be made: that is said once in a while for each broker, as there may be one for each call of a client.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_replica::BrokerId;

use crate::lock::lock;

const SAID_EVERY: Duration = Duration::from_secs(60);

/// When a broker's last relay that could not be made was said.
#[derive(Default)]
pub(crate) struct Missed(Mutex<BTreeMap<BrokerId, Instant>>);

impl Missed {
    /// Returns the log line for a relay that could not be made, or `None` if one was logged for this broker within the last minute.
    pub fn sentence(&self, broker: BrokerId, error: &std::io::Error) -> Option<String> {
        let mut said = lock(&self.0);
        said.retain(|_, at| at.elapsed() < SAID_EVERY);
        if said.contains_key(&broker) {
            return None;
        }
        said.insert(broker, Instant::now());
        let text = "clients are not relayed there, and are told to connect to it themselves";
        Some(format!("broker {broker} takes no relay: {error}; {text}"))
    }
}
