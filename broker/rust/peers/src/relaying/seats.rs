//! How many relays a broker has, and how many bytes each of them may have waiting.
//!
//! The window of a relay is its part of [`UNREAD_BYTES_MAX`], so that unread bytes of all relays together are bounded. One that was
//! granted a larger window, when relays were fewer, keeps it until its bytes are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Relays of one broker, in both directions.
pub(crate) const RELAYS_MAX: usize = 16_384;
/// Unread bytes of all relays together; each has a part of them.
const UNREAD_BYTES_MAX: usize = 128 << 20;
const WINDOW_BYTES_MAX: usize = 256 << 10;
/// Both sides of a relay begin with it.
pub(crate) const WINDOW_BYTES_MIN: usize = 16 << 10;

/// The relays of a broker, and the bytes that they carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelaysUse {
    pub open_count: usize,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Seats {
    open_count: AtomicUsize,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

/// One relay, until this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

impl Seats {
    /// A seat, when there is one left.
    pub fn take(self: &Arc<Self>) -> Option<Seat> {
        let seat = Seat(Arc::clone(self));
        let before = self.open_count.fetch_add(1, Ordering::AcqRel);
        (before < RELAYS_MAX).then_some(seat)
    }

    pub fn used(&self) -> RelaysUse {
        RelaysUse {
            open_count: self.open_count.load(Ordering::Acquire),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Seat {
    /// How many bytes may wait in one direction of the relay.
    pub fn window_bytes(&self) -> usize {
        window_bytes(self.0.open_count.load(Ordering::Relaxed))
    }

    pub fn note_sent(&self, bytes: usize) {
        self.0.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn note_received(&self, bytes: usize) {
        self.0.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.open_count.fetch_sub(1, Ordering::AcqRel);
    }
}

fn window_bytes(open_count: usize) -> usize {
    (UNREAD_BYTES_MAX / open_count.max(1)).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_relays_have_large_windows_and_many_share_what_there_is() {
        assert_eq!(window_bytes(1), WINDOW_BYTES_MAX);
        assert_eq!(window_bytes(UNREAD_BYTES_MAX / WINDOW_BYTES_MAX), WINDOW_BYTES_MAX);
        assert_eq!(window_bytes(1024), 128 << 10);
        assert_eq!(window_bytes(RELAYS_MAX), WINDOW_BYTES_MIN);
    }

    #[test]
    fn a_relay_without_a_seat_is_refused_until_another_one_ends() {
        let seats = Arc::new(Seats::default());
        let mut taken: Vec<_> = (0..RELAYS_MAX).map(|_| seats.take()).collect();
        assert!(taken.iter().all(Option::is_some));

        assert!(seats.take().is_none());
        taken.pop();
        assert!(seats.take().is_some());
        drop(taken);

        assert_eq!(seats.used().open_count, 0);
    }
}
