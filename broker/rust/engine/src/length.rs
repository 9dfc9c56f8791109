//! The limit of a queue's length: how many messages it may have, and how many bytes of bodies.
//!
//! Messages that no consumer has are counted, also delayed ones. Those that connected consumers are about to take are not
//! counted, up to [`EAGER_MAX`]. This module knows no shard.

use penstock_queue::QueueId;

/// Messages that the consumers of a queue may be about to take and that do not count: what arrives while they are woken.
pub(crate) const EAGER_MAX: u64 = 16_384;

/// The action of a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    DropHead,
    RejectPublish,
    /// It refuses messages, too, and they are dead letters.
    RejectPublishDlx,
}

/// How many messages a queue may have, and how many bytes of bodies; the largest number is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthLimit {
    pub messages_max: u64,
    pub bytes_max: u64,
    pub overflow: Overflow,
}

impl LengthLimit {
    /// A limit of the number alone.
    #[must_use]
    pub fn of_messages(messages_max: u64, overflow: Overflow) -> LengthLimit {
        LengthLimit { messages_max, bytes_max: u64::MAX, overflow }
    }

    /// Whether so many messages are too many, of which consumers are about to take some.
    pub(crate) fn is_exceeded(self, count: u64, bytes: u64, eager: u64) -> bool {
        count.saturating_sub(eager) > self.messages_max || bytes > self.bytes_max && count > eager
    }

    /// About how many messages have to go.
    pub(crate) fn excess(self, count: u64, bytes: u64, eager: u64) -> u64 {
        let by_count = count.saturating_sub(eager).saturating_sub(self.messages_max);
        let over = u128::from(bytes.saturating_sub(self.bytes_max));
        let by_bytes = u64::try_from(over * u128::from(count) / u128::from(bytes.max(1))).unwrap_or(u64::MAX);
        by_count.max(by_bytes).max(1)
    }
}

/// The limit of a queue that drops its oldest messages.
#[derive(Debug)]
pub(crate) struct HeadLimit {
    pub limit: LengthLimit,
    /// A message of the current publish is for this queue.
    pub is_touched: bool,
}

/// Notes that a message of the current publish is for a queue that drops its head.
#[inline]
pub(crate) fn touch(limited: &mut Vec<QueueId>, id: QueueId, head: &mut Option<Box<HeadLimit>>) {
    if let Some(head) = head
        && !std::mem::replace(&mut head.is_touched, true)
    {
        limited.push(id);
    }
}

#[cfg(test)]
mod tests {
    use super::{LengthLimit, Overflow};

    const BOTH: LengthLimit = LengthLimit { messages_max: 10, bytes_max: 1000, overflow: Overflow::DropHead };

    #[test]
    fn each_of_both_limits_counts_and_what_is_about_to_be_taken_does_not() {
        assert!(!BOTH.is_exceeded(10, 1000, 0));
        assert!(BOTH.is_exceeded(11, 0, 0) && !BOTH.is_exceeded(11, 0, 1) && BOTH.is_exceeded(12, 0, 1));
        assert!(BOTH.is_exceeded(1, 1001, 0) && !BOTH.is_exceeded(1, 1001, 1) && BOTH.is_exceeded(2, 1001, 1));
        assert!(!LengthLimit::of_messages(1, Overflow::DropHead).is_exceeded(1, u64::MAX, 0));
    }

    #[test]
    fn the_excess_of_bytes_is_counted_in_messages_of_the_mean_size() {
        assert_eq!(BOTH.excess(25, 1000, 0), 15);
        assert_eq!(BOTH.excess(25, 1000, 5), 10);
        assert_eq!(BOTH.excess(10, 2000, 0), 5);
        assert_eq!(BOTH.excess(1, 1001, 0), 1, "the only message is too large");
        assert_eq!(BOTH.excess(0, u64::MAX, 0), 1);
    }
}
