//! The action DescribeStreams: Python finds the partitions, their shards say how they stand.
//!
//! What must stay true: a wait costs nothing while nothing happens. It ends when a message is stored, when a stream is deleted,
//! when the caller may not see the streams any more, when the broker stops, and when the client leaves. Whoever waits is no
//! reader of a stream.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{QueueId, Shard, Signal, StreamOutlook};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use super::description::{Description, Wanted, described, is_covered, runs_max};
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Answer, Call, Calls, FoundStreams};
use crate::host::rights::Question;
use crate::host::stalls::when_free;
use crate::host::stopping::until_stopped;

/// Streams may move on to their archives between two questions about them, and a stream is deleted in its log a moment before
/// Python forgets its name. Each pause before the next question is twice as long.
const ASKS_MAX: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// The answer to a body, as JSON.
pub(super) async fn answer(broker: Broker, caller: Caller, body: &[u8]) -> Result<Vec<u8>, Status> {
    let wanted = Wanted::parse(body)?;
    let call = Call::new(wanted.request(), &caller);
    let question = Question::of(&broker.calls, &call);
    let mut found = ask(&broker.calls, call).await?;
    if let Some(wait) = wanted.wait()
        && until_new(&broker, &caller, (&wanted, wait), &found, question).await?
        && wanted.depends_on_time()
    {
        found = ask(&broker.calls, Call::new(wanted.request(), &caller)).await?;
    }
    for round in 0..ASKS_MAX {
        if let Some(description) = look(&broker, &found).await? {
            return Ok(description.to_json());
        }
        sleep(FIRST_PAUSE * 2_u32.pow(round)).await;
        found = ask(&broker.calls, Call::new(wanted.request(), &caller)).await?;
    }
    Err(Status::unavailable("the streams change too fast to be described; ask again"))
}

async fn ask(calls: &Calls, call: Call) -> Result<FoundStreams, Status> {
    match calls.ask(call).await? {
        Answer::Streams(found) => Ok(found),
        _ => Err(Status::internal("the broker answered a question for streams with something else")),
    }
}

/// How the partitions stand now; `None` when one is gone, or the archive has to be asked about more of it.
async fn look(broker: &Broker, found: &FoundStreams) -> Result<Option<Description>, Status> {
    let shard = broker.shard(&found.vhost)?;
    let runs_max = runs_max(found.partitions.len());
    let mut description = Description::default();
    for partition in &found.partitions {
        let outlook = outlook(&shard, QueueId(partition.queue_id), runs_max).await?;
        let Some(outlook) = outlook.filter(|outlook| is_covered(partition, outlook)) else { return Ok(None) };
        description.partitions.push(described(partition.clone(), outlook, runs_max));
    }
    Ok(Some(description))
}

/// How a stream stands, with an id that stays.
pub(super) async fn outlook(
    shard: &Arc<Shard>,
    queue: QueueId,
    runs_max: usize,
) -> Result<Option<StreamOutlook>, Status> {
    let home = shard.home_of(queue);
    let looked = when_free(&home, || home.stream_outlook(queue, runs_max)).await;
    let outlook = looked.map_err(|error| status::of_engine(&error))?;
    if let Some(outlook) = &outlook
        && home.synced() < outlook.known_at
    {
        home.request_sync();
        home.wait_synced(outlook.known_at).await.map_err(|error| status::of_engine(&error))?;
    }
    Ok(outlook)
}

/// Waits until something is new, or the time is over; returns whether it had to wait.
async fn until_new(
    broker: &Broker,
    caller: &Caller,
    (wanted, wait): (&Wanted, Duration),
    found: &FoundStreams,
    question: Question,
) -> Result<bool, Status> {
    let shard = broker.shard(&found.vhost)?;
    let end = Instant::now() + wait;
    let mut signal = Arc::<Signal>::default();
    if is_anything_new(&shard, wanted, found, &signal).await? {
        return Ok(false);
    }
    let _place = broker.calls.wait_place(caller)?;
    let (mut stopping, mut rights) = (broker.stopping.clone(), question.watch(&found.user, &found.vhost, || ()));
    loop {
        tokio::select! {
            biased;
            refused = rights.until_refused() => return Err(refused.into()),
            () = until_stopped(&mut stopping) => return Err(status::stopping()),
            () = sleep_until(end) => return Ok(true),
            () = signal.heard() => {}
        }
        // The old one stays with partitions that did not ring it, until it is gone.
        signal = Arc::default();
        if is_anything_new(&shard, wanted, found, &signal).await? {
            return Ok(true);
        }
    }
}

/// Whether there is anything new; if not, the signal is rung once there is.
async fn is_anything_new(
    shard: &Arc<Shard>,
    wanted: &Wanted,
    found: &FoundStreams,
    signal: &Arc<Signal>,
) -> Result<bool, Status> {
    for partition in &found.partitions {
        let queue = QueueId(partition.queue_id);
        let home = shard.home_of(queue);
        let next = when_free(&home, || home.watch_stream(queue, signal)).await;
        let next = next.map_err(|error| status::of_engine(&error))?;
        if wanted.is_new(&partition.name, next) {
            return Ok(true);
        }
    }
    Ok(false)
}
