//! The logs of a vhost: shard 0, which routes, its further shards, and the dedicated logs of queues.
//!
//! Pure. A log keeps the same number for ever, also in marks on the disk.

use std::collections::BTreeMap;

use penstock_log::marks;
use penstock_queue::QueueId;

/// The number of a shard is above this bit of a log's number; the number of a queue is below.
const SHARD_SHIFT: u32 = 48;

/// The folder in a vhost's folder with one folder for each further shard, named by its number.
pub(crate) const SHARDS_FOLDER: &str = "logs";

/// The folder in a vhost's folder with one folder for each dedicated log, named by the number of its queue.
pub(crate) const DEDICATED_FOLDER: &str = "shards";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogNumber(u64);

impl LogNumber {
    /// The log that routes. No queue has this number.
    pub const VHOST: LogNumber = LogNumber(0);

    /// The dedicated log of a queue.
    pub const fn of(queue: QueueId) -> LogNumber {
        LogNumber(queue.0)
    }

    /// The log of a shard.
    pub const fn of_shard(shard: u16) -> LogNumber {
        LogNumber((shard as u64) << SHARD_SHIFT)
    }

    /// The queue whose dedicated log it is.
    pub fn queue(self) -> Option<QueueId> {
        (self.0 > 0 && self.0 >> SHARD_SHIFT == 0).then_some(QueueId(self.0))
    }

    /// The shard that it is.
    pub fn shard(self) -> Option<u16> {
        self.queue().is_none().then_some((self.0 >> SHARD_SHIFT) as u16)
    }

    /// The folder with the folder of this log, and the name of that one; `None` for shard 0, whose files are in the
    /// vhost's folder.
    pub fn folder(self) -> Option<(&'static str, String)> {
        match (self.queue(), self.shard()) {
            (Some(queue), _) => Some((DEDICATED_FOLDER, queue.0.to_string())),
            (None, Some(shard)) if shard > 0 => Some((SHARDS_FOLDER, shard.to_string())),
            _ => None,
        }
    }

    /// The path of one of its files relative to the vhost's folder.
    pub fn place_of(self, file: &str) -> String {
        self.folder().map_or_else(|| file.to_owned(), |(folder, name)| format!("{folder}/{name}/{file}"))
    }

    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub fn from_bytes(bytes: [u8; 8]) -> LogNumber {
        LogNumber(u64::from_le_bytes(bytes))
    }
}

/// How many shards the marks of shard 0 count.
pub(crate) fn shard_count_in(marks: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> u16 {
    let found = marks.get(&(marks::SHARD_COUNT.to_vec(), Vec::new()));
    found.and_then(|value| value.as_slice().try_into().ok()).map_or(1, u16::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_is_of_a_shard_or_of_a_queue_and_has_its_folder() {
        let (own, second) = (LogNumber::of(QueueId::MAX), LogNumber::of_shard(u16::MAX));

        assert_eq!((own.queue(), own.shard()), (Some(QueueId::MAX), None));
        assert_eq!((second.queue(), second.shard()), (None, Some(u16::MAX)));
        assert_eq!((LogNumber::VHOST.queue(), LogNumber::VHOST.shard()), (None, Some(0)));
        assert_eq!(LogNumber::of_shard(0), LogNumber::VHOST);
        assert_eq!(own.place_of("msgs.0000000001"), "shards/1099511627775/msgs.0000000001");
        assert_eq!(LogNumber::of_shard(2).place_of("synced"), "logs/2/synced");
        assert_eq!(LogNumber::VHOST.place_of("synced"), "synced");
        assert_eq!(LogNumber::from_bytes(second.to_bytes()), second);
    }
}
