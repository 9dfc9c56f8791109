//! A bug in the work of one replica ends that replica, and no thread: the timer, the threads for disks and the connections are those of all.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::shard::Shard;

impl Shard {
    /// Acts on the replica. After a bug it is closed: it is silent, and another one leads soon.
    pub(crate) fn guard(&self, act: impl FnOnce(&Shard)) {
        if catch_unwind(AssertUnwindSafe(|| act(self))).is_err() {
            self.close();
            let id = self.id;
            self.shared.events.noticed(&format!(
                "a bug ended an operation of replica {id:02x?} half way: it is closed until the broker is restarted"
            ));
        }
    }
}
