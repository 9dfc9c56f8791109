//! The stop of the broker, as the tasks of streams hear of it.

use tokio::sync::watch;

/// Completes once the broker stops.
pub(crate) async fn until_stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server itself is gone, which is a stop too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
