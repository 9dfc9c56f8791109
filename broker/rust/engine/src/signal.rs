//! How a shard tells a consumer's task that there is work, or that it has ended.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// One consumer's waker. A signal without a listener is kept; several signals are merged.
#[derive(Debug, Default)]
pub struct Signal {
    bell: Notify,
    cancelled: OnceLock<String>,
}

impl Signal {
    /// Signals that there may be something to take.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Ends the consumer; the first reason stays.
    pub fn cancel(&self, reason: &str) {
        let _ = self.cancelled.set(reason.to_owned());
        self.bell.notify_one();
    }

    /// Why the consumer ended, once it has.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.get().map(String::as_str)
    }

    /// Waits for a signal.
    pub async fn heard(&self) {
        self.bell.notified().await;
    }
}
