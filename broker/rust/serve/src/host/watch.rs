//! Looks after the budget of memory once a second: nobody waits who need not, and nobody waits for a connection that never ends.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::host::broker::Broker;

const EVERY: Duration = Duration::from_secs(1);

/// Runs until the host's runtime ends. A request or a response waits for as long as a log-in may take; then the connection that
/// holds most is closed, one at a time.
pub(crate) async fn look_after(broker: Broker) {
    let mut closed_at: Option<Instant> = None;
    loop {
        sleep(EVERY).await;
        let largest = broker.calls.look_at_accounts();
        let is_late = broker.memory.look(broker.first_request);
        if !is_late || closed_at.is_some_and(|at| at.elapsed() < broker.first_request) {
            continue;
        }
        if let Some((connection, bytes)) = largest
            && broker.calls.listing().close_for_memory(connection)
        {
            closed_at = Some(Instant::now());
            broker.memory.note_closed();
            broker.engine.notices().tell(format!(
                "connection {connection} was closed: it holds {bytes} bytes of requests and responses, more than any \
                 other, and others have waited for memory for more than {} s",
                broker.first_request.as_secs()
            ));
        }
    }
}
