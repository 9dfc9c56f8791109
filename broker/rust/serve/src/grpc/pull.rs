//! Get and Settle: messages taken without a stream belong to the user on the client's connection until they are settled, the
//! connection ends, or the user may not get messages of the queue any more.
//!
//! What must stay true:
//! * a response to Get takes about as many bytes as a client accepts that was told nothing, and memory once; a larger message
//!   goes alone. The responses of one connection that are on their way are bounded together, as a consumer's window is;
//! * what a response holds is the client's only once the response was handed to the transport. One that is cancelled, times out
//!   or is refused by the client before that returns its messages as delivered once more; with auto-ack it settles nothing;
//! * a user of a connection holds no more messages of a queue than a consumer may: settling costs by what is held;
//! * nobody waits for a decision or a client while it holds what another call of the connection needs: a turn belongs to one
//!   queue, waits for nothing but its shard, and lasts as long as taking or settling.
//!
//! Limits: a response that reached the client's machine and was not read there has arrived.

use std::sync::Arc;

use bytes::Bytes;
use penstock_engine::{QueueId, SequenceRange, Settle, Subscription, SubscriptionOptions};
use penstock_wire::grpc::get::{GetRequest, encode_settle_response, parse_get_request, parse_settle_request};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::grpc::consume::settled_by;
use crate::grpc::deliveries::{encode_get, next_bytes};
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Call, CallRequest};
use crate::host::consuming::{PREFETCH_MAX, settle};
use crate::host::deliveries::Pending;
use crate::host::memory::Outgoing;
use crate::host::pulls::{Held, Key, Place, Pulls};
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::Question;
use crate::host::stalls::{Later, when_free};

/// One Get gives at most this many messages.
const COUNT_MAX: u32 = 1000;

/// One Get that found none to give takes no more after so many that were too early, over their time or unreadable.
const PASSED_MAX: usize = 10_000;

/// gRPC's clients refuse more than 4 MiB unless they are told to take it.
pub(crate) const RESPONSE_BYTES_MAX: usize = (4 << 20) - (64 << 10);

/// What a pull needs to know of the process and the client.
pub(crate) struct PullContext {
    pub broker: Broker,
    pub caller: Caller,
    pub pulls: Arc<Pulls>,
}

impl PullContext {
    /// Reads the request; nothing of the queue is touched before the client has room for an answer.
    pub async fn get(self, mut input: Input) -> Result<GetAnswer, Status> {
        let payload = input.message().await?.ok_or_else(|| Status::internal("Missing request message."))?;
        let request = parse_get_request(&payload).map_err(|error| status::of_wire(&error))?;
        let mut room = self.pulls.room_for(RESPONSE_BYTES_MAX).await?;
        // What it holds of the memory is known once it is encoded.
        Outgoing::new(&self.caller.state.account).until_room().await;
        let (vhost, queue) = (request.vhost.to_owned(), request.queue.to_owned());
        let call = Call::new(CallRequest::OpenGet { vhost, queue }, &self.caller);
        let question = Question::of(&self.broker.calls, &call);
        let admitted = self.broker.calls.admit(call).await?;
        let mut allowance = self.check_room(&admitted)?;
        let (mut passage, mut pending, mut ready_count) = self.take(admitted, question, &request).await?;
        let held = Arc::clone(&passage.subscription);
        let mut subscription = &**held;
        let mut passed = 0;
        let encoded = loop {
            let taken_count = pending.count();
            let bytes = next_bytes(&mut pending, &mut subscription).await?;
            if let Some(bytes) = bytes.filter(|bytes| *bytes > RESPONSE_BYTES_MAX) {
                // It goes alone; whoever holds nothing waits for room.
                ready_count = passage.put_back(&mut pending, 1).await?.unwrap_or(ready_count);
                drop(room);
                room = self.pulls.room_for(bytes).await?;
            }
            let encoded = encode_get(&mut pending, subscription, RESPONSE_BYTES_MAX).await?;
            ready_count = passage.put_back(&mut pending, 0).await?.unwrap_or(ready_count);
            passed += taken_count;
            if taken_count == 0 || passed >= PASSED_MAX || !encoded.is_empty() {
                break encoded;
            }
            // Other calls' turn.
            tokio::task::yield_now().await;
            let Some((more, more_ready)) = passage.take_again(request.count_max).await? else { break encoded };
            (pending, ready_count) = (more, more_ready);
        };
        allowance.delivered(pending.sent_bytes());
        let response = Some(encoded.finish_get(ready_count).waiting_for_room());
        Ok(GetAnswer { response, passage, _room: room, _allowance: allowance })
    }

    /// Takes messages into what the user holds; with auto-ack into what only the response holds.
    async fn take(
        &self,
        admitted: Admitted,
        question: Question,
        request: &GetRequest<'_>,
    ) -> Result<(Later<Passage>, Pending, u64), Status> {
        let Admitted { vhost, queue_id, user, .. } = admitted;
        let shard =
            self.broker.engine.shard(&vhost).ok_or_else(|| Status::not_found(format!("no virtual host '{vhost}'")))?;
        let queue = QueueId(queue_id);
        let home = shard.home_of(queue);
        let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
        let key = Key { user, vhost, queue: queue_id };
        // Made first, so that on a failure it goes last.
        let release = (!request.auto_ack).then(|| Later::new(&home, Release { pulls: Arc::clone(&self.pulls), key }));
        let place = release.as_ref().map_or_else(Place::default, |release| release.pulls.place(&release.key));
        let mut held = place.lock().await;
        let subscription = match Held::of(&mut held, &home) {
            Some(held) => Arc::clone(&held.subscription),
            None => {
                let subscribed = when_free(&home, || home.subscribe(queue, options)).await;
                Arc::new(Later::new(&home, subscribed.map_err(|error| status::of_engine(&error))?))
            }
        };
        if let (Some(release), None) = (&release, &*held) {
            *held = Some(self.pulls.hold(&release.key, &subscription, question));
        }
        let auto_ack = request.auto_ack;
        let passage = Passage { subscription, auto_ack, taken: Vec::new(), arrived: false, release };
        let mut passage = Later::new(&home, passage);
        let (pending, ready_count) = passage.take(request.count_max).await?;
        Ok((passage, pending, ready_count))
    }

    pub async fn settle(&self, payload: Bytes) -> Result<Vec<u8>, Status> {
        let request = parse_settle_request(&payload).map_err(|error| status::of_wire(&error))?;
        let (vhost, queue) = (request.vhost.to_owned(), request.queue.to_owned());
        let call = Call::new(CallRequest::OpenSettle { vhost, queue }, &self.caller);
        let Admitted { vhost, queue_id, user, .. } = self.broker.calls.admit(call).await?;
        let key = Key { user, vhost, queue: queue_id };
        let shard = self
            .broker
            .engine
            .shard(&key.vhost)
            .ok_or_else(|| Status::not_found(format!("no virtual host '{}'", key.vhost)))?;
        let home = shard.home_of(QueueId(queue_id));
        let place = self.pulls.place(&key);
        let settled = match Held::of(&mut *place.lock().await, &home) {
            Some(held) => match settled_by(&request.settlement) {
                Ok((ranges, how)) => settle(&held.subscription, &ranges, how).await.map(|(count, _)| count),
                Err(refused) => Err(refused),
            },
            None => Ok(0),
        };
        drop(place);
        when_free(&home, || self.pulls.release_empty(&key)).await;
        let mut out = Vec::new();
        encode_settle_response(&mut out, settled?);
        Ok(out)
    }

    /// Messages that are pulled are counted as in flight until their response was written; nobody gets more while what is
    /// counted is too much.
    fn check_room(&self, admitted: &Admitted) -> Result<Allowance, Status> {
        let counters = self.broker.engine.counters();
        let mut allowance = Allowance::of_call(&self.broker.quotas, counters, &admitted.user, &admitted.vhost);
        match allowance.delivery_pause() {
            None => Ok(allowance),
            Some(_) => Err(Status::resource_exhausted(
                "as many bytes are delivered and not settled as max-in-flight-bytes allows; settle some",
            )),
        }
    }
}

/// Messages between the queue and the client: they come back unless they arrive.
struct Passage {
    subscription: Arc<Later<Subscription>>,
    auto_ack: bool,
    taken: Vec<SequenceRange>,
    arrived: bool,
    /// Goes after the subscription does.
    release: Option<Later<Release>>,
}

/// Lets go of what a connection holds of a queue when that is nothing.
struct Release {
    pulls: Arc<Pulls>,
    key: Key,
}

impl Drop for Release {
    fn drop(&mut self) {
        self.pulls.release_empty(&self.key);
    }
}

impl Passage {
    /// Takes messages; also returns how many stay ready. Whoever calls it has the turn.
    async fn take(&mut self, count_max: u32) -> Result<(Pending, u64), Status> {
        let (subscription, mut filled) = (&self.subscription, Vec::new());
        let unacked_count = when_free(subscription.shard(), || subscription.unacked_count()).await;
        let room = PREFETCH_MAX.saturating_sub(unacked_count);
        if room == 0 {
            let text = format!("the connection has {PREFETCH_MAX} unacked messages of this queue; settle some");
            return Err(Status::resource_exhausted(text));
        }
        let count_max = count_max.clamp(1, COUNT_MAX.min(room));
        let taken = when_free(subscription.shard(), || subscription.take_now(count_max, &mut filled)).await;
        let ready_count = taken.map_err(|error| status::of_engine(&error))?;
        let mut pending = Pending::default();
        pending.extend(filled);
        self.taken = pending.ranges();
        Ok((pending, ready_count))
    }

    /// Takes again when it holds nothing, unless the user may not get messages any more.
    async fn take_again(&mut self, count_max: u32) -> Result<Option<(Pending, u64)>, Status> {
        let place = self.release.as_ref().map(|release| release.pulls.place(&release.key));
        let held = match &place {
            Some(place) => Some(place.lock().await),
            None => None,
        };
        let is_held = |held: &Held| Arc::ptr_eq(&held.subscription, &self.subscription);
        if held.as_ref().is_some_and(|held| !held.as_ref().is_some_and(is_held)) {
            return Ok(None);
        }
        self.take(count_max).await.map(Some)
    }

    /// Puts messages back that do not fit, all but so many of those that are pending; gives how many are ready then, when there
    /// were any. Another call of the connection may hold them next: they are none of this one's from then on.
    async fn put_back(&mut self, pending: &mut Pending, kept: usize) -> Result<Option<u64>, Refusal> {
        let ranges = pending.split_off(kept);
        let mut left = pending.sent_ranges();
        left.append(&mut pending.ranges());
        if ranges.is_empty() {
            self.taken = left;
            return Ok(None);
        }
        let (subscription, taken) = (&self.subscription, &mut self.taken);
        let put_back = when_free(subscription.shard(), || {
            // Not before: who is given up while it waits returns all of them.
            *taken = left;
            subscription.put_back(&ranges)
        });
        Ok(put_back.await.map(Some)?)
    }

    async fn arrive(&mut self) -> Result<(), Refusal> {
        if self.auto_ack {
            let (subscription, taken) = (&self.subscription, &self.taken);
            let settled = when_free(subscription.shard(), || subscription.settle(taken, Settle::Ack)).await;
            settled?;
        }
        self.arrived = true;
        Ok(())
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if !self.arrived {
            // It fails when the queue is gone, or nothing is written any more: a start finds them ready.
            let _ = self.subscription.settle(&self.taken, Settle::RequeueFailed);
        }
    }
}

/// The answer to a Get: the body asks for what follows the response once the transport has taken all of it.
pub(crate) struct GetAnswer {
    response: Option<FramedMessage>,
    passage: Later<Passage>,
    _room: OwnedSemaphorePermit,
    _allowance: Allowance,
}

impl Responder for GetAnswer {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        match self.response.take() {
            Some(response) => Some(Ok(response)),
            None => self.passage.arrive().await.err().map(|failed| Err(failed.into())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use futures_util::FutureExt;
    use penstock_engine::{Engine, EngineOptions, Payload, Publication, QueueId, QueueSettings, SubscriptionOptions};

    use super::{Passage, Pending};
    use crate::host::stalls::Later;

    const PATIENCE: Duration = Duration::from_secs(60);
    const QUEUE: QueueId = QueueId(1);

    /// Queues whose reading takes until it may go on, under the shard's lock.
    struct Slowly(Option<(Sender<()>, Receiver<()>)>);

    impl Iterator for Slowly {
        type Item = QueueSettings<'static>;

        fn next(&mut self) -> Option<Self::Item> {
            let (began, may_end) = self.0.take()?;
            began.send(()).unwrap();
            may_end.recv_timeout(PATIENCE).unwrap();
            None
        }
    }

    /// What did not fit was no more the response's when it waited for the lock to go back, and stayed with the connection under
    /// sequences that its client never saw.
    #[tokio::test]
    async fn who_stops_waiting_for_a_response_leaves_none_of_its_messages_behind() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            segment_bytes_min: 1 << 20,
            segment_bytes_max: 1 << 20,
            segment_idle: PATIENCE,
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let engine = Engine::new(options).unwrap();
        let shard = engine.open_shard("v", directory.path(), false).unwrap();
        shard.put_queue(QUEUE, "jobs", false, None).unwrap();
        let payload = Payload::new(b"", b"jobs", b"", b"x").unwrap();
        let (exchange, key) = (&b""[..], &b"jobs"[..]);
        let one = Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false };
        shard.publish(&[one; 10], None, 0, &mut Vec::new()).unwrap();
        let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
        let of_connection = Arc::new(Later::new(&shard, shard.subscribe(QUEUE, options).unwrap()));
        let mut filled = Vec::new();
        of_connection.take_now(10, &mut filled).unwrap();
        let mut pending = Pending::default();
        pending.extend(filled);
        let (subscription, taken) = (Arc::clone(&of_connection), pending.ranges());
        let mut passage = Passage { subscription, auto_ack: false, taken, arrived: false, release: None };
        let ((began, has_begun), (go_on, may_end)) = (channel(), channel());
        let held = Arc::clone(&shard);
        let holder = std::thread::spawn(move || held.put_queues(Slowly(Some((began, may_end)))).unwrap());
        has_begun.recv_timeout(PATIENCE).unwrap();

        assert!(passage.put_back(&mut pending, 4).now_or_never().is_none(), "it did not wait for the lock");
        go_on.send(()).unwrap();
        holder.join().unwrap();
        drop(passage);

        let counts = shard.queue_counts(&[QUEUE]).unwrap();
        assert_eq!((counts[0].ready_count, counts[0].unacked_count), (10, 0));
        engine.close().unwrap();
    }
}
