//! `penstock.v1.StagingService`: stages rows and has staged batches decided, after Python said where the stage is; every other
//! method goes to Python as it came.
//!
//! What must stay true: an answer means that what it says is on the disk. A decision that was begun is carried out though the
//! caller goes away.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use penstock_engine::{EngineError, MESSAGES_AT_ONCE, Payload, QueueId, Shard, StageTag, StagedAttempt, StagedBatch};
use penstock_wire::amqp::properties::{PERSISTENT_ONLY, properties_to_amqp, user_id_of};
use penstock_wire::grpc::publish::MessageRef;
use penstock_wire::grpc::staging::{
    DecideRequest, StageRequest, StageTarget, encode_discard_staged_response, encode_publish_staged_response,
    encode_stage_response, parse_decide_request, parse_stage_request,
};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use crate::grpc::admin::ask;
use crate::grpc::codec::BytesCodec;
use crate::grpc::messaging::ENVELOPE_BYTES_MAX;
use crate::grpc::peer::caller_of;
use crate::grpc::service::Answers;
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Answer, Call, CallRequest, StagePlace};
use crate::host::permits::{Asker, Permits, times_denial};
use crate::host::publishing::now_ms;
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::stalls::when_free;

/// One round stages about as many bytes, so that other streams get their turn.
const ROUND_BYTES_MAX: usize = 1 << 20;
/// How long until a stage is asked for again that another call decides about.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Staging {
    pub broker: Broker,
}

#[derive(Clone, Copy)]
enum Method {
    Stage,
    Publish,
    Discard,
}

impl Answers for Staging {
    const NAME: &'static str = "penstock.v1.StagingService";

    fn broker(&self) -> &Broker {
        &self.broker
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let broker = self.broker;
        let method = match request.uri().path().rsplit('/').next().unwrap_or_default() {
            "Stage" => Method::Stage,
            "PublishStaged" => Method::Publish,
            "DiscardStaged" => Method::Discard,
            _ => return ask(broker.calls, broker.message_bytes_max, request).await,
        };
        let bytes_max = broker.message_bytes_max.saturating_add(ENVELOPE_BYTES_MAX);
        let mut grpc = Grpc::new(BytesCodec).max_decoding_message_size(bytes_max);
        grpc.unary(Asked { broker, method }, request).await
    }
}

struct Asked {
    broker: Broker,
    method: Method,
}

impl UnaryService<Bytes> for Asked {
    type Response = Vec<u8>;
    type Future = BoxFuture<'static, Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (broker, method) = (self.broker.clone(), self.method);
        Box::pin(async move {
            let caller = caller_of(&request)?;
            let payload = request.into_inner();
            let answer = match method {
                Method::Stage => stage(&broker, &caller, &payload).await?,
                Method::Publish => publish(&broker, &caller, &payload).await?,
                Method::Discard => discard(&broker, &caller, &payload).await?,
            };
            Ok(Response::new(answer))
        })
    }
}

/// A stage that the caller may write to.
#[derive(Clone)]
pub(crate) struct Place {
    pub shard: Arc<Shard>,
    pub queue: QueueId,
    pub exchange: String,
    pub routing_key: String,
    pub user: String,
}

impl Place {
    /// What its user may do in its virtual host, as one who publishes.
    pub fn allowance(&self, broker: &Broker) -> Result<Allowance, Refusal> {
        let (vhost, user) = (self.shard.name().to_owned(), self.user.clone());
        broker.enter(&Admitted { vhost, user, ..Admitted::default() }).map(|(_, allowance)| allowance)
    }

    /// Asks for the stage of a target, which is made when it is not there.
    pub async fn find(broker: &Broker, caller: &Caller, target: &StageTarget<'_>) -> Result<Place, Status> {
        let Answer::Stage(place) = broker.calls.ask(call(caller, target)).await? else {
            return Err(Status::internal("the broker answered a stage with something else"));
        };
        let StagePlace { vhost, queue_id, user, exchange, routing_key } = place;
        Ok(Place { shard: broker.shard(&vhost)?, queue: QueueId(queue_id), exchange, routing_key, user })
    }
}

/// Asks for the stage of a target.
pub(crate) fn call(caller: &Caller, target: &StageTarget<'_>) -> Call {
    let request = CallRequest::OpenStage {
        vhost: target.vhost.to_owned(),
        stage: target.stage.to_owned(),
        stream: target.stream.to_owned(),
        exchange: target.exchange.to_owned(),
        routing_key: target.routing_key.to_owned(),
    };
    Call::new(request, caller)
}

async fn stage(broker: &Broker, caller: &Caller, payload: &Bytes) -> Result<Vec<u8>, Status> {
    let request = parse_stage_request(payload).map_err(|error| status::of_wire(&error))?;
    let place = Place::find(broker, caller, &request.target).await?;
    permit(broker, caller, &place, &request).await?;
    let mut allowance = place.allowance(broker)?;
    while let Some(pause) = allowance.publish_pause() {
        sleep(pause).await;
    }
    let (bytes_max, whose) = allowance.message_bytes_max(broker.message_bytes_max);
    let limit = whose.map_or("message_bytes_max".to_owned(), |whose| format!("max-message-bytes of {whose}"));
    if let Some(user_id) = foreign_user_id(&request, place.user.as_bytes(), (bytes_max, &limit))? {
        let asker = Asker { calls: &broker.calls, caller, user: &place.user, vhost: place.shard.name() };
        asker.admit_user_id(&user_id, place.user.as_bytes()).await?;
    }
    let Place { shard, queue, .. } = place;
    let of_engine = |error: EngineError| status::of_engine(&error);
    let attempt = match request.attempt {
        0 => when_free(&shard, || shard.new_attempt()).await.map_err(of_engine)?,
        attempt => attempt,
    };
    let (count, end) = store(&shard, queue, &request, attempt, (bytes_max, &limit)).await?;
    allowance.published(count, payload.len() as u64, None);
    if let Some(end) = end.filter(|end| *end > shard.synced()) {
        shard.request_sync();
        shard.wait_synced(end).await.map_err(of_engine)?;
    }
    let mut out = Vec::new();
    encode_stage_response(&mut out, attempt, count);
    Ok(out)
}

/// Asks whether the target's exchange may be written with the rows' routing keys.
async fn permit(broker: &Broker, caller: &Caller, place: &Place, request: &StageRequest<'_>) -> Result<(), Status> {
    let asker = Asker { calls: &broker.calls, caller, user: &place.user, vhost: place.shard.name() };
    let mut permits = Permits::default();
    let mut rows = rows_of(request).peekable();
    while rows.peek().is_some() {
        let mut keys = Vec::new();
        for message in rows.by_ref().take(MESSAGES_AT_ONCE) {
            let key = message?.routing_key.as_bytes();
            keys.push(if key.is_empty() { place.routing_key.as_bytes() } else { key });
        }
        asker.admit(&mut permits, place.exchange.as_bytes(), &keys).await?;
    }
    Ok(())
}

fn rows_of<'a>(request: &StageRequest<'a>) -> impl Iterator<Item = Result<MessageRef<'a>, Status>> + use<'a> {
    let rows = request.rows.into_iter().flat_map(|rows| rows.messages());
    rows.map(|message| message.map_err(|error| status::of_wire(&error)))
}

type Stored = (u64, Option<penstock_engine::Position>);

/// Look at all rows before the first is stored; return a `user_id` among them that is not the user's name.
fn foreign_user_id(request: &StageRequest<'_>, user: &[u8], largest: (usize, &str)) -> Result<Option<Vec<u8>>, Status> {
    let mut found = None;
    let tag = StageTag { batch: u64::MAX, attempt: u64::MAX }.to_text();
    for message in rows_of(request) {
        let message = message?;
        let block = block_of(&message, largest)?;
        payload_of(&message, tag.as_bytes(), &block)?;
        let user_id = user_id_of(&block).map_err(|error| status::of_wire(&error))?;
        if let Some(user_id) = user_id.filter(|user_id| *user_id != user) {
            found.get_or_insert(user_id.to_vec());
        }
    }
    Ok(found)
}

/// Stores all rows or, but for a full disk, none: all were looked at before. A round of them is taken apart at a time, as a
/// request may hold millions.
async fn store(
    shard: &Shard,
    queue: QueueId,
    request: &StageRequest<'_>,
    attempt: u64,
    largest: (usize, &str),
) -> Result<Stored, Status> {
    let tag = StageTag { batch: request.batch, attempt }.to_text();
    let (mut count, mut end) = (0, None);
    let mut rows = rows_of(request).peekable();
    while rows.peek().is_some() {
        let mut round = Vec::new();
        let mut bytes = 0;
        while bytes < ROUND_BYTES_MAX && round.len() < MESSAGES_AT_ONCE {
            let Some(message) = rows.next().transpose()? else { break };
            bytes += message.body.len();
            round.push((message, block_of(&message, largest)?));
        }
        let payloads = round.iter().map(|(message, block)| payload_of(message, tag.as_bytes(), block));
        let payloads = payloads.collect::<Result<Vec<_>, _>>()?;
        let staged = when_free(shard, || shard.stage(queue, &payloads, now_ms())).await;
        end = Some(staged.map_err(|error| status::of_engine(&error))?);
        count += payloads.len() as u64;
        // Other streams' turn.
        yield_now().await;
    }
    Ok((count, end))
}

fn payload_of<'a>(message: &MessageRef<'a>, tag: &'a [u8], block: &'a [u8]) -> Result<Payload<'a>, Status> {
    let payload = Payload::new(tag, message.routing_key.as_bytes(), block, message.body);
    let payload = payload.and_then(|payload| message.key.map_or(Ok(payload), |key| payload.with_key(key)));
    payload.map_err(|error| Status::invalid_argument(error.to_string()))
}

/// A row's properties as they are stored.
fn block_of(message: &MessageRef<'_>, (bytes_max, limit): (usize, &str)) -> Result<Vec<u8>, Status> {
    if !message.exchange.is_empty() {
        return Err(Status::invalid_argument("staged rows go to the stage's target; leave their exchange out"));
    }
    if message.body.len() > bytes_max {
        let size = message.body.len();
        let text = format!("a row of {size} bytes is larger than {limit}, {bytes_max}; split it");
        return Err(Status::resource_exhausted(text));
    }
    let Some(properties) = message.properties else { return Ok(PERSISTENT_ONLY.to_vec()) };
    let mut block = Vec::new();
    let delay_ms = properties_to_amqp(Some(properties), &mut block).map_err(|error| status::of_wire(&error))?;
    let times = times_denial(&block, delay_ms).map_err(|error| status::of_wire(&error))?;
    times.map_or(Ok(block), |denial| Err(denial.into()))
}

async fn publish(broker: &Broker, caller: &Caller, payload: &Bytes) -> Result<Vec<u8>, Status> {
    let (place, request) = decided(broker, caller, payload).await?;
    let (batch, attempts) = (request.batch, request.attempts);
    let attempts: Vec<_> = attempts.into_iter().map(|(attempt, count)| StagedAttempt { attempt, count }).collect();
    let outcome = in_turn(move || {
        let Place { shard, queue, exchange, routing_key, .. } = &place;
        shard.publish_staged(*queue, &StagedBatch { batch, attempts: &attempts, exchange, routing_key })
    });
    let outcome = outcome.await?;
    let mut out = Vec::new();
    encode_publish_staged_response(&mut out, outcome.was_decided, outcome.stored, outcome.unroutable);
    Ok(out)
}

async fn discard(broker: &Broker, caller: &Caller, payload: &Bytes) -> Result<Vec<u8>, Status> {
    let (place, request) = decided(broker, caller, payload).await?;
    let (batch, attempts) = (request.batch, request.attempts);
    let attempts: Vec<u64> = attempts.into_iter().map(|(attempt, _)| attempt).collect();
    let dropped = in_turn(move || place.shard.discard_staged(place.queue, batch, &attempts)).await?;
    let mut out = Vec::new();
    encode_discard_staged_response(&mut out, dropped);
    Ok(out)
}

async fn decided<'a>(
    broker: &Broker,
    caller: &Caller,
    payload: &'a Bytes,
) -> Result<(Place, DecideRequest<'a>), Status> {
    let request = parse_decide_request(payload).map_err(|error| status::of_wire(&error))?;
    Ok((Place::find(broker, caller, &request.target).await?, request))
}

/// On a thread that may block; waits without one while another call decides about the same stage.
async fn in_turn<T: Send + 'static>(
    decide: impl Fn() -> Result<T, EngineError> + Send + Sync + 'static,
) -> Result<T, Status> {
    let decide = Arc::new(decide);
    loop {
        let this_time = Arc::clone(&decide);
        let ended = spawn_blocking(move || this_time()).await;
        match ended.map_err(|_| Status::internal("deciding about a stage failed"))? {
            Err(EngineError::StageBusy) => sleep(BUSY_PAUSE).await,
            other => return other.map_err(|error| status::of_engine(&error)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_engine::{Engine, EngineOptions, QueueLevels, QueueSettings, StreamSettings};

    use super::*;

    const STAGE: QueueId = QueueId(2);
    const COUNT: u16 = 16_000;

    #[tokio::test]
    async fn others_have_their_turn_between_rounds_of_rows_without_a_byte() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            segment_bytes_min: 16 << 20,
            segment_bytes_max: 16 << 20,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let engine = Engine::new(options).unwrap();
        let shard = engine.open_shard("v", directory.path(), false).unwrap();
        let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
        let stage = QueueSettings { id: STAGE, name: "amq.stage.x", auto_delete: false, levels, stream };
        shard.put_queues([stage]).unwrap();
        let rows = b"\x22\x00".repeat(COUNT.into());
        let length = rows.len();
        let mut payload =
            vec![0x10, 1, 0x18, 1, 0x22, length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8];
        payload.extend(rows);
        let request = parse_stage_request(&payload).unwrap();
        let before = shard.holds();

        let (count, end) = store(&shard, STAGE, &request, 1, (100, "")).await.unwrap();

        assert_eq!((count, end.is_some()), (COUNT.into(), true));
        let holds = shard.holds() - before;
        assert!(
            holds >= u64::from(COUNT) / MESSAGES_AT_ONCE as u64,
            "all of it was stored under {holds} holds of the lock"
        );
        engine.close().unwrap();
    }
}
