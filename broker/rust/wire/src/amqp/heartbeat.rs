//! Heartbeats of a connection: when one has to be sent, and when a silent peer counts as gone. Times come from outside, in
//! milliseconds of any clock that never goes back.

/// A peer may be silent for so many intervals, as the specification says.
const SILENT_INTERVALS: u64 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Between two heartbeats of a silent sender; 0 is none.
    interval_ms: u64,
    sent_ms: u64,
    received_ms: u64,
}

/// The next thing to do about heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// Nothing before this time.
    At(u64),
    Send,
    /// The peer was silent for too long: close the socket, without a word.
    Gone,
}

impl Heartbeat {
    #[must_use]
    pub fn new(interval_seconds: u16, now_ms: u64) -> Heartbeat {
        Heartbeat { interval_ms: u64::from(interval_seconds) * 1000, sent_ms: now_ms, received_ms: now_ms }
    }

    /// Notes that bytes were sent, which count as a heartbeat.
    pub fn sent(&mut self, now_ms: u64) {
        self.sent_ms = now_ms;
    }

    /// Notes that bytes came.
    pub fn received(&mut self, now_ms: u64) {
        self.received_ms = now_ms;
    }

    /// Notes a time in which nothing was read: a peer is not silent whom nobody hears.
    pub fn not_read(&mut self, from_ms: u64, now_ms: u64) {
        self.received_ms = (self.received_ms + now_ms.saturating_sub(from_ms)).min(now_ms);
    }

    #[must_use]
    pub fn due(&self, now_ms: u64) -> Due {
        if self.interval_ms == 0 {
            return Due::Nothing;
        }
        // Half an interval: a heartbeat that is late by the network shall not be too late.
        let (send_at, gone_at) =
            (self.sent_ms + self.interval_ms / 2, self.received_ms + SILENT_INTERVALS * self.interval_ms);
        if now_ms >= gone_at {
            Due::Gone
        } else if now_ms >= send_at {
            Due::Send
        } else {
            Due::At(send_at.min(gone_at))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Heartbeat};

    #[test]
    fn a_silent_sender_sends_at_half_the_interval() {
        let mut heartbeat = Heartbeat::new(10, 1_000);
        assert_eq!(heartbeat.due(1_000), Due::At(6_000));
        assert_eq!(heartbeat.due(6_000), Due::Send);
        heartbeat.sent(6_000);
        assert_eq!(heartbeat.due(6_001), Due::At(11_000));
    }

    #[test]
    fn a_peer_that_is_silent_for_two_intervals_is_gone() {
        let mut heartbeat = Heartbeat::new(10, 0);
        heartbeat.sent(19_000);
        assert_eq!(heartbeat.due(19_999), Due::At(20_000));
        assert_eq!(heartbeat.due(20_000), Due::Gone);
        heartbeat.received(20_000);
        assert_eq!(heartbeat.due(20_000), Due::At(24_000));
    }

    #[test]
    fn a_time_in_which_nothing_is_read_does_not_count() {
        let mut heartbeat = Heartbeat::new(10, 0);
        heartbeat.sent(30_000);
        heartbeat.not_read(5_000, 25_000);
        assert_eq!(heartbeat.due(34_999), Due::At(35_000));
        heartbeat.received(39_000);
        heartbeat.not_read(30_000, 40_000);
        heartbeat.sent(59_999);
        assert_eq!(heartbeat.due(59_999), Due::At(60_000), "never later than now");
    }

    #[test]
    fn without_an_interval_nothing_is_ever_due() {
        assert_eq!(Heartbeat::new(0, 0).due(u64::MAX), Due::Nothing);
    }
}
