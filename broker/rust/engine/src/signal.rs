//! How a shard tells a consumer's task that there is work, or that it is over.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// One consumer's bell. A ring while nobody listens is kept; many rings are one.
#[derive(Debug, Default)]
pub struct Signal {
    bell: Notify,
    cancelled: OnceLock<String>,
}

impl Signal {
    /// There may be something to take.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// The consumer is over; the first reason stays.
    pub fn cancel(&self, reason: &str) {
        let _ = self.cancelled.set(reason.to_owned());
        self.bell.notify_one();
    }

    /// Why the consumer is over, once it is.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.get().map(String::as_str)
    }

    /// Waits for a ring.
    pub async fn heard(&self) {
        self.bell.notified().await;
    }
}
