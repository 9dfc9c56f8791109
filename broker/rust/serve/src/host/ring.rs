//! How the consumers of one connection wake its task: the engine's ready list, and those that may not go on.
//!
//! The task waits once for all of them, takes the numbers of those that were rung, and gives each of them its turn.

use std::sync::{Arc, Mutex, PoisonError};

use penstock_engine::{ReadyList, Signal};
use tokio::sync::Notify;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    list: Arc<ReadyList>,
    refused: Arc<Refused>,
}

#[derive(Debug, Default)]
struct Refused {
    numbers: Mutex<Vec<u64>>,
    waker: Notify,
}

impl Ring {
    /// Waits until a consumer was rung.
    pub async fn heard(&self) {
        tokio::select! {
            () = self.list.heard() => {}
            () = self.refused.waker.notified() => {}
        }
    }

    /// Moves the numbers of the consumers that were rung to `numbers`.
    pub fn take(&self, numbers: &mut Vec<u64>) {
        self.list.take(numbers);
        numbers.append(&mut self.refused.numbers.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn signal(&self, number: u64) -> Arc<Signal> {
        self.list.signal(number)
    }

    /// Rings for a consumer that may not go on.
    pub(crate) fn ring_for(&self, number: u64) {
        self.refused.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        self.refused.waker.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::Ring;

    #[test]
    fn a_consumer_that_may_not_go_on_is_rung_once() {
        let ring = Ring::default();
        assert!(ring.heard().now_or_never().is_none());

        ring.ring_for(7);

        let mut numbers = Vec::new();
        assert!(ring.heard().now_or_never().is_some());
        ring.take(&mut numbers);
        assert_eq!(numbers, [7]);
        assert!(ring.heard().now_or_never().is_none());
    }
}
