//! What distinguishes a stream from every other, also from one that had its name: random bytes from its declaration on, as a
//! mark in the log.
//!
//! Invariant: an id is returned together with a position; once that is on the disk, no failure changes the id.

use std::collections::BTreeMap;
use std::fmt;

use penstock_log::{Position, marks};
use penstock_queue::QueueId;
use rustc_hash::FxHashMap;

/// See the module. It is written in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity(pub(crate) [u8; 16]);

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The ids of a log's streams, and the positions of their marks.
pub(crate) type Identities = FxHashMap<QueueId, (Identity, Position)>;

/// The ids that a start found; they are on the disk.
pub(crate) fn identities_in(marks: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> Identities {
    let found = marks.iter().filter_map(|((owner, _), value)| {
        let id = Identity(value.as_slice().try_into().ok()?);
        Some((marks::queue_of_identity(owner)?, (id, Position(0))))
    });
    found.collect()
}
