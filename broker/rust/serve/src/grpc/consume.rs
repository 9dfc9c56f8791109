//! A consume stream: settlements are taken as they come, deliveries are filled while the client's stream has room.
//!
//! The stream of responses drives everything: while the client does not read, nothing more is taken from the queue, so a slow
//! consumer costs at most one response and what it holds unacked.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::{Sequence, SequenceRange, Settle, Settling, Subscription};
use penstock_wire::grpc::consume::{
    ConsumeFrame, encode_consume_cancelled, encode_consume_opened, parse_consume_request,
};
use penstock_wire::grpc::settlement::SettlementView;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;
use tonic::{Status, Streaming};

use crate::grpc::deliveries::Pending;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest, Calls};
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::Rights;
use crate::host::stalls::{Later, when_free};
use crate::host::stopping::until_stopped;

/// No consumer holds more: settling in the middle of what is held costs by its number.
pub(crate) const PREFETCH_MAX: u32 = 65_535;

/// Messages taken under one hold of the shard's lock.
const FILL_MAX: u32 = 1024;

/// Requests read in a row before deliveries get their turn.
const REQUESTS_MAX: usize = 256;

/// Outcomes as `penstock.v1.Outcome` numbers them.
const ACK: u32 = 1;
const REJECT: u32 = 2;
const REQUEUE: u32 = 3;

pub(crate) struct ConsumeStream {
    input: Streaming<Bytes>,
    stopping: watch::Receiver<bool>,
    consumer: Arc<Later<Consumer>>,
    rights: Rights,
    pending: Pending,
    allowance: Allowance,
    opened: Option<FramedMessage>,
    /// Whether it is to look for messages: not after it found none, until something happens.
    looks: bool,
    /// It was told of messages and did not look yet.
    rung: bool,
    ended: bool,
}

/// A consumer and whom to tell when it leaves.
pub(crate) struct Consumer {
    pub calls: Arc<Calls>,
    pub caller: Caller,
    pub subscription: Subscription,
    /// Its number among the open consumers.
    pub listed: u64,
}

impl Consumer {
    /// Returns what it holds. Leaving twice is leaving once.
    pub fn leave(&self) {
        self.calls.listing().left(self.listed);
        if let Some(unused) = self.subscription.close() {
            let vhost = self.subscription.shard().name().to_owned();
            let request = CallRequest::QueueUnused { vhost, queue: unused.queue, queue_id: unused.id.0 };
            self.calls.tell(Call::new(request, &self.caller));
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ConsumeStream {
    pub fn new(
        input: Streaming<Bytes>,
        stopping: watch::Receiver<bool>,
        consumer: Arc<Later<Consumer>>,
        (rights, allowance): (Rights, Allowance),
        consumer_tag: &str,
    ) -> ConsumeStream {
        let opened = FramedMessage::of(64, |out| encode_consume_opened(out, consumer_tag));
        ConsumeStream {
            input,
            stopping,
            consumer,
            rights,
            pending: Pending::default(),
            allowance,
            opened: Some(opened),
            looks: true,
            rung: false,
            ended: false,
        }
    }
}

impl Responder for ConsumeStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        if let Some(opened) = self.opened.take() {
            return Some(Ok(opened));
        }
        if self.ended {
            return None;
        }
        let next = self.next().await;
        if !matches!(next, Some(Ok(_))) || self.ended {
            self.ended = true;
            // Whoever hears of the end finds what it held in the queue.
            when_free(self.consumer.shard(), || self.consumer.leave()).await;
        }
        next
    }
}

impl ConsumeStream {
    async fn next(&mut self) -> Option<Result<FramedMessage, Status>> {
        loop {
            match self.read_waiting().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(failed) => return Some(Err(failed)),
            }
            if let Some(refused) = self.rights.refused() {
                return Some(Err(refused.into()));
            }
            let shard = Arc::clone(self.consumer.shard());
            let mut subscription = &self.consumer.subscription;
            // Before it is asked whether it is over, which rings, too.
            self.rung |= subscription.signal().heard().now_or_never().is_some();
            if let Some(reason) = subscription.signal().cancelled() {
                self.ended = true;
                return Some(Ok(FramedMessage::of(64, |out| encode_consume_cancelled(out, reason))));
            }
            let stopping = *self.stopping.borrow();
            let keeps = !subscription.is_auto_ack();
            let looks = self.pending.is_empty() && (self.looks || self.rung) && !stopping;
            let wants = looks || !self.pending.is_empty();
            let pause = if keeps && wants { self.allowance.delivery_pause() } else { None };
            if looks && pause.is_none() {
                let mut filled = Vec::new();
                if let Err(error) = when_free(&shard, || subscription.fill(FILL_MAX, &mut filled)).await {
                    return Some(Err(status::of_engine(&error)));
                }
                (self.looks, self.rung) = (!filled.is_empty(), false);
                self.pending.extend(filled);
            } else if looks {
                self.looks = true;
                if std::mem::take(&mut self.rung) {
                    when_free(&shard, || subscription.pass_on()).await;
                }
            }
            if !self.pending.is_empty() && pause.is_none() {
                match self.pending.encode(&mut subscription).await {
                    Ok(None) => continue,
                    Ok(Some(response)) => {
                        if keeps {
                            self.allowance.delivered(self.pending.sent_bytes());
                        }
                        return Some(Ok(response));
                    }
                    Err(failed) => return Some(Err(failed.into())),
                }
            }
            if stopping && when_free(&shard, || subscription.unacked_count()).await == 0 {
                return Some(Err(status::stopping()));
            }
            let request = tokio::select! {
                biased;
                request = self.input.message() => request,
                () = subscription.signal().heard() => {
                    self.rung = true;
                    continue;
                }
                refused = self.rights.until_refused() => return Some(Err(refused.into())),
                () = until_stopped(&mut self.stopping), if !stopping => continue,
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => continue,
            };
            match self.apply(request).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(failed) => return Some(Err(failed)),
            }
        }
    }

    /// Takes the requests that have arrived; false at the end of the client's side.
    async fn read_waiting(&mut self) -> Result<bool, Status> {
        for _ in 0..REQUESTS_MAX {
            let Some(request) = self.input.message().now_or_never() else { return Ok(true) };
            if !self.apply(request).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn apply(&mut self, request: Result<Option<Bytes>, Status>) -> Result<bool, Status> {
        let Some(request) = request? else { return Ok(false) };
        self.looks = true;
        let (shard, subscription) = (self.consumer.shard(), &self.consumer.subscription);
        match parse_consume_request(&request).map_err(|error| status::of_wire(&error))? {
            ConsumeFrame::Open(_) => return Err(status::opened_twice()),
            ConsumeFrame::Settlement(settlement) => {
                let (_, bytes) = apply_settlement(subscription, &settlement).await?;
                self.allowance.settled(bytes);
            }
            ConsumeFrame::Flow { prefetch } => {
                let set = when_free(shard, || subscription.set_prefetch(prefetch.min(PREFETCH_MAX))).await;
                set.map_err(|error| status::of_engine(&error))?;
                self.consumer.calls.listing().note_prefetch(self.consumer.listed, prefetch.min(PREFETCH_MAX));
            }
        }
        Ok(true)
    }
}

/// Settles what the subscription holds of the given ranges; gives how many messages that were, and their bytes. Other streams
/// have their turn between two parts; whoever stops waiting leaves the rest unacked.
pub(crate) async fn apply_settlement(
    subscription: &Subscription,
    settlement: &SettlementView<'_>,
) -> Result<(u64, u64), Refusal> {
    let how = match settlement.outcome {
        ACK => Settle::Ack,
        REJECT => Settle::Reject,
        REQUEUE => Settle::Requeue,
        other => {
            let text = format!("unknown outcome {other}; use 1 (ack), 2 (reject) or 3 (requeue)");
            return Err(Refusal::invalid(text));
        }
    };
    let mut ranges = Vec::with_capacity(settlement.range_count);
    for (first, last) in settlement.ranges() {
        ranges.extend(SequenceRange::new(Sequence(first), Sequence(last)));
    }
    let (mut count, mut bytes) = (0, 0);
    let mut settling = Settling::of(&ranges);
    while !settling.is_done() {
        let settled = when_free(subscription.shard(), || subscription.settle_part(&mut settling, how)).await;
        let (settled_count, settled_bytes) = settled?;
        count += settled_count;
        bytes += settled_bytes;
        if !settling.is_done() {
            yield_now().await;
        }
    }
    Ok((count, bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use penstock_engine::{Engine, EngineOptions, Payload, Publication, QueueId, SubscriptionOptions};
    use penstock_wire::grpc::consume::{ConsumeFrame, parse_consume_request};
    use penstock_wire::grpc::encode_settlement;

    use super::{ACK, apply_settlement};

    const COUNT: u32 = 10_000;

    #[tokio::test]
    async fn others_have_their_turn_between_the_parts_of_a_settlement() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions {
            segment_bytes_min: 1 << 20,
            segment_bytes_max: 1 << 20,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        };
        let engine = Engine::new(options).unwrap();
        let shard = engine.open_shard("v", directory.path(), false).unwrap();
        shard.put_queue(QueueId(1), "jobs", false, None).unwrap();
        let payload = Payload::new(b"", b"jobs", b"", b"x").unwrap();
        let (exchange, key) = (&b""[..], &b"jobs"[..]);
        let one = Publication { payload, exchange, key, headers: None, persistent: true, mandatory: false };
        let batch: Vec<_> = (0..COUNT).map(|_| one).collect();
        shard.publish_as(None, &batch, None, 0, &mut Vec::new()).unwrap();
        let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
        let subscription = shard.subscribe(QueueId(1), options).unwrap();
        subscription.take_now(COUNT, &mut Vec::new()).unwrap();
        let mut request = Vec::new();
        encode_settlement(&mut request, ACK, [(1, u64::MAX)]);
        let ConsumeFrame::Settlement(settlement) = parse_consume_request(&request).unwrap() else { unreachable!() };

        let mut settling = std::pin::pin!(apply_settlement(&subscription, &settlement));
        assert!(settling.as_mut().now_or_never().is_none(), "it went in one part");
        let left = subscription.unacked_count();
        assert!((1..COUNT).contains(&left), "{left} are left");

        assert_eq!(settling.await.unwrap().0, u64::from(COUNT));
        assert_eq!(subscription.unacked_count(), 0);
        engine.close().unwrap();
    }
}
