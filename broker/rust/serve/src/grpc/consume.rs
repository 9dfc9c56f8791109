//! A consume stream: settlements are taken as they come, deliveries are sent while the client's stream has room.
//!
//! The stream of responses drives everything: while the client does not read, nothing more is taken from the queue, so a slow
//! consumer costs at most one response and what it holds unacked. A message that is too large for the memory that is left waits,
//! and settlements are taken meanwhile.

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::{DEADLINE_MS_MAX, Sequence, SequenceRange, Settle};
use penstock_wire::grpc::consume::{
    ConsumeFrame, encode_consume_cancelled, encode_consume_opened, parse_consume_request,
};
use penstock_wire::grpc::settlement::SettlementView;
use tokio::sync::watch;
use tonic::Status;

use crate::grpc::deliveries::Responses;
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::consuming::{Consuming, Turn};
use crate::host::publishing::now_ms;
use crate::host::refusal::Refusal;
use crate::host::stopping::until_stopped;

/// Requests read in a row before deliveries get their turn.
const REQUESTS_MAX: usize = 256;

/// Outcomes as `penstock.v1.Outcome` numbers them.
const ACK: u32 = 1;
const REJECT: u32 = 2;
const REQUEUE: u32 = 3;

pub(crate) struct ConsumeStream {
    input: Input,
    stopping: watch::Receiver<bool>,
    consuming: Consuming,
    responses: Responses,
    opened: Option<FramedMessage>,
    ended: bool,
}

impl ConsumeStream {
    pub fn new(
        input: Input,
        stopping: watch::Receiver<bool>,
        consuming: Consuming,
        responses: Responses,
    ) -> ConsumeStream {
        let opened = FramedMessage::of(64, |out| encode_consume_opened(out, consuming.consumer_tag()));
        ConsumeStream { input, stopping, consuming, responses, opened: Some(opened), ended: false }
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
        let next = self.next().await.transpose();
        if !matches!(next, Some(Ok(_))) || self.ended {
            self.ended = true;
            self.consuming.leave().await;
        }
        next
    }
}

impl ConsumeStream {
    async fn next(&mut self) -> Result<Option<FramedMessage>, Status> {
        loop {
            if !self.read_waiting().await? {
                return Ok(None);
            }
            let stopping = *self.stopping.borrow();
            let pause = match self.consuming.turn(stopping).await? {
                Turn::Cancelled(reason) if self.consuming.is_deposed() => return Err(status::led_elsewhere(reason)),
                Turn::Cancelled(reason) => return Ok(Some(self.cancelled(&reason))),
                Turn::TimedOut(limit_ms) => return Ok(Some(self.cancelled(&overdue(limit_ms)))),
                Turn::Send => match self.deliver().await? {
                    Some(response) => return Ok(Some(response)),
                    None if self.responses.waits() => None,
                    None => continue,
                },
                Turn::Wait(pause) => pause,
            };
            if stopping && self.consuming.unacked_count().await == 0 {
                return Err(status::stopping());
            }
            let request = tokio::select! {
                biased;
                request = self.input.message() => request,
                turn = self.consuming.until_turn(pause) => {
                    turn?;
                    continue;
                }
                () = self.responses.until_room(), if self.responses.waits() => continue,
                () = until_stopped(&mut self.stopping), if !stopping => continue,
            };
            if !self.apply(request).await? {
                return Ok(None);
            }
        }
    }

    /// The last response, which says why the broker ends the consumer.
    fn cancelled(&mut self, reason: &str) -> FramedMessage {
        self.ended = true;
        FramedMessage::of(64, |out| encode_consume_cancelled(out, reason))
    }

    /// One response's worth; `None` when nothing of it could be read.
    async fn deliver(&mut self) -> Result<Option<FramedMessage>, Refusal> {
        let mut response = self.responses.begin(self.consuming.next_count());
        let mut filling = response.fill();
        let is_sent = self.consuming.send(&mut |view, picked| filling.deliver(view, picked)).await?;
        filling.finish();
        Ok(self.responses.end(response, is_sent))
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
        match parse_consume_request(&request).map_err(|error| status::of_wire(&error))? {
            ConsumeFrame::Open(_) => return Err(status::opened_twice()),
            ConsumeFrame::Settlement(settlement) => {
                let (ranges, how) = settled_by(&settlement)?;
                self.consuming.settle(&ranges, how).await?;
            }
            ConsumeFrame::Flow { prefetch } => self.consuming.set_prefetch(prefetch).await?,
        }
        Ok(true)
    }
}

/// Why a consumer ends that kept a message for too long.
fn overdue(limit_ms: u64) -> String {
    format!(
        "a message was not settled within {limit_ms} ms, the consumer timeout; the unacked messages are back in the queue: \
         settle sooner, or set a longer x-consumer-timeout"
    )
}

/// The ranges that a client settles, and how.
pub(crate) fn settled_by(settlement: &SettlementView<'_>) -> Result<(Vec<SequenceRange>, Settle), Refusal> {
    let how = match (settlement.outcome, settlement.delay_ms) {
        (ACK, None) => Settle::Ack,
        (REJECT, None) => Settle::Reject,
        (REQUEUE, None) => Settle::Requeue,
        (REQUEUE, Some(delay_ms)) => Settle::RequeueAt(now_ms().saturating_add(delay_ms).min(DEADLINE_MS_MAX)),
        (ACK | REJECT, Some(_)) => {
            return Err(Refusal::invalid("delay_ms is for messages that are requeued; leave it out"));
        }
        (other, _) => {
            let text = format!("unknown outcome {other}; use 1 (ack), 2 (reject) or 3 (requeue)");
            return Err(Refusal::invalid(text));
        }
    };
    let mut ranges = Vec::with_capacity(settlement.range_count);
    for (first, last) in settlement.ranges() {
        ranges.extend(SequenceRange::new(Sequence(first), Sequence(last)));
    }
    Ok((ranges, how))
}
