//! How long a connection may go on beyond the bound of the memory budget while others wait for room, and how far.
//!
//! What must stay true: it ends unless it stores what it holds, or sends the rest at a rate; and beyond the bound of all it never
//! holds more than the largest message. Small messages on one channel are no excuse for half a message on another.

use std::time::Duration;

use tokio::time::Instant;

/// How fast the rest of a message has to come while others wait.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Exceeding {
    /// What it has before it sends anything.
    patience: Duration,
    /// How much more it may hold than in the beginning.
    more_bytes_max: usize,
    since: Option<Since>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    until: Instant,
    begun_with: usize,
    least: usize,
    most: usize,
}

impl Exceeding {
    pub fn new(patience: Duration, more_bytes_max: usize) -> Exceeding {
        Exceeding { patience, more_bytes_max, since: None }
    }

    pub fn is_noted(&self) -> bool {
        self.since.is_some()
    }

    /// Notes whether it exceeds the bound, and what it holds. Returns false once it holds too much for the bound of all.
    pub fn note(&mut self, exceeds: bool, held: usize, now: Instant) -> bool {
        if !exceeds {
            self.since = None;
            return true;
        }
        let until = now + self.patience;
        let since = self.since.get_or_insert(Since { until, begun_with: held, least: held, most: held });
        if held < since.least {
            (since.until, since.least) = (until, held);
        }
        if let Some(more) = held.checked_sub(since.most) {
            since.until += Duration::from_micros(more as u64 * 1_000_000 / BYTES_PER_SECOND_MIN);
            since.most = held;
        }
        held <= since.begun_with.saturating_add(self.more_bytes_max)
    }

    /// When to ask whether it is too late.
    pub fn until(&self) -> Option<Instant> {
        self.since.map(|since| since.until)
    }

    /// Whether its time is over. While nobody waits it has more.
    pub fn is_too_late(&mut self, is_waited_for: bool, now: Instant) -> bool {
        let Some(since) = self.since.as_mut().filter(|since| since.until <= now) else { return false };
        since.until = now + self.patience;
        is_waited_for
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Exceeding;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn exceeding(held: usize) -> (Exceeding, Instant) {
        let (mut exceeding, now) = (Exceeding::new(PATIENCE, 100 << 20), Instant::now());
        assert!(exceeding.note(true, held, now));
        (exceeding, now)
    }

    #[test]
    fn one_that_sends_nothing_ends_when_others_wait() {
        let (mut exceeding, now) = exceeding(1000);
        assert!(!exceeding.is_too_late(true, now + PATIENCE / 2));
        assert!(!exceeding.is_too_late(false, now + PATIENCE), "nobody waits");
        assert!(exceeding.is_too_late(true, now + 2 * PATIENCE));
    }

    #[test]
    fn the_rest_of_a_message_has_the_time_of_its_bytes() {
        let (mut exceeding, now) = exceeding(0);
        exceeding.note(true, 5 << 20, now);
        assert_eq!(exceeding.until(), Some(now + PATIENCE + Duration::from_secs(5)));

        exceeding.note(true, 1, now);
        exceeding.note(true, 5 << 20, now);
        assert_eq!(exceeding.until(), Some(now + PATIENCE + Duration::from_secs(5)), "the same bytes count once");
    }

    #[test]
    fn what_is_stored_gives_new_time_when_less_is_held_than_before() {
        let (mut exceeding, now) = exceeding(1000);
        exceeding.note(true, 1010, now);
        let later = now + PATIENCE / 2;
        exceeding.note(true, 1000, later);
        assert!(exceeding.until() < Some(later + PATIENCE), "it holds what it held");

        exceeding.note(true, 999, later);

        assert_eq!(exceeding.until(), Some(later + PATIENCE));
    }

    #[test]
    fn it_holds_no_more_than_a_message_beyond_the_bound() {
        let (mut exceeding, now) = exceeding(1000);
        assert!(exceeding.note(true, 1000 + (100 << 20), now));
        assert!(!exceeding.note(true, 1001 + (100 << 20), now));
        assert!(exceeding.note(false, 1001 + (100 << 20), now) && exceeding.until().is_none());
    }
}
