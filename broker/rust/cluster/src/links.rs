//! The connections that are known, for replicas that are opened later.

use std::collections::BTreeMap;
use std::sync::Mutex;

use penstock_replica::{BrokerId, Link};

use crate::lock::lock;

#[derive(Default)]
pub(crate) struct Links(Mutex<BTreeMap<BrokerId, Link>>);

impl Links {
    pub fn set(&self, broker: BrokerId, link: Link) {
        lock(&self.0).insert(broker, link);
    }

    /// Calls for each of them. None changes meanwhile, so a replica hears the last state last.
    pub fn each(&self, mut call: impl FnMut(BrokerId, Link)) {
        lock(&self.0).iter().for_each(|(&broker, &link)| call(broker, link));
    }
}
