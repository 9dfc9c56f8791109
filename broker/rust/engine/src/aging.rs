//! Which messages may be delivered at some time: not before their own time, not after their time of expiry, and not once
//! they are over the age limit of their queue.
//!
//! Invariant: ages are computed from the stored times, so a changed limit counts for all messages at once. A delayed message
//! ages from its own time on.

use penstock_log::{Attributes, MessageView};

/// The age limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aging {
    pub max_age_ms: u64,
    /// No message is over the limit before this.
    pub next_ms: u64,
}

/// Whether a message may be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Now,
    /// Not before this time, in ms.
    Later(u64),
    Never,
}

/// The messages that may be delivered at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    now_ms: u64,
    /// Messages whose own time was over before this are not delivered.
    expires_from_ms: u64,
    stored_from_ms: u64,
}

impl Freshness {
    /// All messages, whatever their times.
    pub const ANY: Freshness = Freshness { now_ms: 0, expires_from_ms: 0, stored_from_ms: 0 };

    /// For a consumer. Without a limit, messages of any age. Those of a limit of 0, and those whose own time is over at once, are
    /// for consumers that wait for them: whether one did, the next check decides.
    pub(crate) fn at(now_ms: u64, max_age_ms: Option<u64>) -> Freshness {
        let max_age_ms = max_age_ms.filter(|&max_age_ms| max_age_ms > 0);
        Freshness { now_ms, expires_from_ms: now_ms, stored_from_ms: stored_from(now_ms, max_age_ms) }
    }

    /// For a pull, which takes messages that are there and never waits for more.
    pub(crate) fn for_pull(now_ms: u64, max_age_ms: Option<u64>) -> Freshness {
        let expires_from_ms = now_ms.saturating_add(1);
        Freshness { now_ms, expires_from_ms, stored_from_ms: stored_from(now_ms, max_age_ms) }
    }

    /// When a message may be delivered.
    #[inline]
    #[must_use]
    pub fn moment(&self, message: &MessageView<'_>) -> Moment {
        if message.stored_at_ms >= self.stored_from_ms && !message.has_deadlines() {
            return Moment::Now;
        }
        if *self == Freshness::ANY {
            return Moment::Now;
        }
        let Attributes { due_at_ms, expires_at_ms, .. } = message.attributes();
        self.moment_of(message.stored_at_ms, due_at_ms, expires_at_ms)
    }

    fn moment_of(&self, stored_at_ms: u64, due_at_ms: Option<u64>, expires_at_ms: Option<u64>) -> Moment {
        if expires_at_ms.is_some_and(|at_ms| at_ms < self.expires_from_ms) {
            return Moment::Never;
        }
        match due_at_ms {
            Some(due_at_ms) if due_at_ms > self.now_ms => Moment::Later(due_at_ms),
            due_at_ms if born_at(stored_at_ms, due_at_ms) < self.stored_from_ms => Moment::Never,
            _ => Moment::Now,
        }
    }
}

/// The earliest time of storage at which a message is not over the limit.
fn stored_from(now_ms: u64, max_age_ms: Option<u64>) -> u64 {
    let oldest = max_age_ms.and_then(|max_age_ms| now_ms.checked_sub(max_age_ms));
    oldest.map_or(0, |oldest| oldest.saturating_add(1))
}

/// The time from which on a message ages.
pub(crate) fn born_at(stored_at_ms: u64, due_at_ms: Option<u64>) -> u64 {
    due_at_ms.map_or(stored_at_ms, |due_at_ms| due_at_ms.max(stored_at_ms))
}

#[cfg(test)]
mod tests {
    use super::{Freshness, Moment};

    #[test]
    fn an_age_limit_counts_from_the_time_of_storage() {
        let stored_from = |now_ms, max_age_ms| Freshness::at(now_ms, max_age_ms).stored_from_ms;

        assert_eq!(stored_from(1000, Some(400)), 601);
        assert_eq!(stored_from(1000, None), 0);
        assert_eq!(stored_from(1000, Some(0)), 0);
        assert_eq!(stored_from(1000, Some(5000)), 0);
    }

    #[test]
    fn a_delayed_message_waits_then_ages_from_its_time_on() {
        let moment = |now_ms, due_at_ms, expires_at_ms| {
            Freshness::at(now_ms, Some(400)).moment_of(1000, due_at_ms, expires_at_ms)
        };

        assert_eq!(moment(1399, None, None), Moment::Now);
        assert_eq!(moment(1400, None, None), Moment::Never);
        assert_eq!(moment(1400, Some(1500), None), Moment::Later(1500));
        assert_eq!(moment(1899, Some(1500), None), Moment::Now);
        assert_eq!(moment(1900, Some(1500), None), Moment::Never);
        assert_eq!(moment(1300, None, Some(1300)), Moment::Now);
        assert_eq!(moment(1301, None, Some(1300)), Moment::Never);
        assert_eq!(moment(1301, Some(1500), Some(1300)), Moment::Never);
    }

    #[test]
    fn messages_with_no_time_to_wait_are_for_consumers_only() {
        let of_consumer = Freshness::at(1000, Some(0));
        let of_pull = Freshness::for_pull(1000, Some(0));

        assert_eq!(of_consumer.moment_of(1000, None, None), Moment::Now);
        assert_eq!(of_pull.moment_of(1000, None, None), Moment::Never);
        assert_eq!(of_consumer.moment_of(1000, None, Some(1000)), Moment::Now);
        assert_eq!(of_pull.moment_of(1000, None, Some(1000)), Moment::Never);
        let of_pull = Freshness::for_pull(1000, None);
        assert_eq!(of_pull.moment_of(1000, None, Some(1001)), Moment::Now);
        assert_eq!(of_pull.moment_of(1000, Some(1001), Some(2000)), Moment::Later(1001));
    }
}
