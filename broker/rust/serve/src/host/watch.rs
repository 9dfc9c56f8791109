//! Looks after the budget of memory once a second: nobody waits who need not, and nobody waits for a connection that never ends.
//! Passes on which queues the engine found unused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest};

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

/// Runs until the host's runtime ends: tells the front end of queues that were unused for their time.
pub(crate) async fn report_unused(broker: Broker) {
    let unused = Arc::clone(broker.engine.unused());
    let caller = Caller { protocol: "engine", ..Caller::default() };
    loop {
        for found in unused.wait().await {
            let request = CallRequest::QueueUnused { vhost: found.vhost, queue: found.queue, queue_id: found.id.0 };
            broker.calls.tell(Call::new(request, &caller));
        }
    }
}
