//! From places in segments to wire bytes: what was taken waits here until the client's stream has room for it.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_engine::{
    EngineError, Filled, LogError, MessageView, Picked, QueueId, Segment, Sequence, Subscription, Target,
};
use penstock_wire::grpc::deliveries::{DeliveriesEncoder, DeliveryRef};
use tonic::Status;

use crate::responses::FramedMessage;
use crate::status;

/// One response carries about this many bytes of deliveries; a larger message goes alone.
const RESPONSE_BYTES: usize = 48 * 1024;

/// What a small message takes in a response.
const MESSAGE_BYTES_ABOUT: usize = 128;

/// The pages of a sealed segment are looked after this many bytes at a time.
const CHUNK_BYTES: u32 = 1 << 20;

/// Messages that were taken and not yet sent, in order.
#[derive(Default)]
pub(crate) struct Pending {
    runs: VecDeque<Run>,
    sizes: Vec<(Sequence, u32)>,
    /// Messages that cannot be read: they are dropped before anything else is sent.
    damaged: Vec<(Sequence, LogError)>,
}

struct Run {
    segment: Arc<Segment>,
    picked: std::vec::IntoIter<Picked>,
    /// How many of the next ones can be read at once.
    warm_count: usize,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn extend(&mut self, filled: Vec<Filled>) {
        for Filled { segment, picked } in filled {
            self.runs.push_back(Run { segment, picked: picked.into_iter(), warm_count: 0 });
        }
    }

    /// Encodes one response's worth and tells the subscription what went out; `None` when nothing of it could be read.
    pub async fn encode(&mut self, subscription: &Subscription) -> Result<Option<FramedMessage>, Status> {
        self.warm().await?;
        self.sizes.clear();
        let queue = subscription.queue();
        let out = FramedMessage::new(self.bytes_about(), |out| {
            let mut encoder = DeliveriesEncoder::begin(out);
            self.push(&mut encoder, queue, RESPONSE_BYTES)?;
            encoder.finish();
            Ok::<(), Status>(())
        })?;
        self.tell(subscription)?;
        Ok((!self.sizes.is_empty()).then_some(out))
    }

    /// Encodes everything that is pending as the answer to a Get.
    pub async fn encode_all(&mut self, subscription: &Subscription, ready_count: u64) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        let mut encoder = DeliveriesEncoder::begin_get(&mut out);
        self.sizes.clear();
        while !self.is_empty() {
            self.warm().await?;
            self.push(&mut encoder, subscription.queue(), usize::MAX)?;
        }
        encoder.finish_get(ready_count);
        self.tell(subscription)?;
        Ok(out)
    }

    /// Tells the subscription what went out and what cannot be read.
    fn tell(&mut self, subscription: &Subscription) -> Result<(), Status> {
        for (sequence, error) in self.damaged.drain(..) {
            subscription.drop_damaged(sequence, &error).map_err(|error| status::of_engine(&error))?;
        }
        if self.sizes.is_empty() {
            return Ok(());
        }
        subscription.sent(&self.sizes).map_err(|error| status::of_engine(&error))
    }

    /// A guess at the size of the next response, so that a few small messages do not take a large buffer.
    fn bytes_about(&self) -> usize {
        let count = self.runs.front().map_or(0, |run| run.picked.as_slice().len());
        count.saturating_mul(MESSAGE_BYTES_ABOUT).min(RESPONSE_BYTES + 4096)
    }

    fn push(&mut self, encoder: &mut DeliveriesEncoder<'_>, queue: QueueId, bytes_max: usize) -> Result<(), Status> {
        let Some(run) = self.runs.front_mut() else { return Ok(()) };
        while run.warm_count > 0 {
            let Some(picked) = run.picked.next() else { break };
            run.warm_count -= 1;
            match run.segment.message_for(picked.offset, Target { queue, sequence: picked.taken.sequence }) {
                Ok(view) => self.sizes.push(push_one(encoder, &view, picked)?),
                Err(error @ LogError::Damaged { .. }) => self.damaged.push((picked.taken.sequence, error)),
                Err(error) => return Err(status::of_engine(&EngineError::Log(error))),
            }
            if encoder.size() >= bytes_max {
                break;
            }
        }
        if run.picked.as_slice().is_empty() {
            self.runs.pop_front();
        }
        Ok(())
    }

    /// Makes sure that the next messages can be read without waiting for the disk, so that a cold read never blocks other
    /// streams and a bad sector is an error. What is written to is always there.
    async fn warm(&mut self) -> Result<(), Status> {
        while let Some(run) = self.runs.front_mut() {
            let picked = run.picked.as_slice();
            let Some(first) = picked.first().filter(|_| run.warm_count == 0) else { return Ok(()) };
            if !run.segment.is_sealed() {
                run.warm_count = picked.len();
                return Ok(());
            }
            let (from, limit) = (first.offset, first.offset.saturating_add(CHUNK_BYTES));
            let chunk = picked.iter().take_while(|picked| (from..limit).contains(&picked.offset));
            let (warm_count, last) =
                chunk.fold((0, from), |(count, last), picked| (count + 1, last.max(picked.offset)));
            if run.segment.is_resident(from, last) || bring_in(&run.segment, from, last).await?.is_ok() {
                run.warm_count = warm_count;
                return Ok(());
            }
            // Somewhere in there are sectors that cannot be read: one message at a time, and those they lie in are dropped.
            match bring_in(&run.segment, from, from).await? {
                Ok(()) => {
                    run.warm_count = 1;
                    return Ok(());
                }
                Err(error) => self.damaged.extend(run.picked.next().map(|picked| (picked.taken.sequence, error))),
            }
            if run.picked.as_slice().is_empty() {
                self.runs.pop_front();
            }
        }
        Ok(())
    }
}

/// Brings in pages on a thread that may block. The inner error says that they cannot be read.
async fn bring_in(segment: &Arc<Segment>, from: u32, to: u32) -> Result<Result<(), LogError>, Status> {
    let segment = Arc::clone(segment);
    let populated = tokio::task::spawn_blocking(move || segment.populate(from, to)).await;
    match populated.map_err(|_| Status::internal("reading a segment failed"))? {
        Err(error) if !matches!(error, LogError::Damaged { .. }) => Err(status::of_engine(&EngineError::Log(error))),
        populated => Ok(populated),
    }
}

fn push_one(
    encoder: &mut DeliveriesEncoder<'_>,
    view: &MessageView<'_>,
    picked: Picked,
) -> Result<(Sequence, u32), Status> {
    let delivery = DeliveryRef {
        sequence: picked.taken.sequence.0,
        body: view.body,
        exchange: view.exchange,
        routing_key: view.routing_key,
        properties_amqp: view.properties,
        redelivered: picked.taken.delivery_count > 0,
        delivery_count: picked.taken.delivery_count,
        stored_at_ms: view.stored_at_ms,
    };
    encoder.push(&delivery).map_err(|error| Status::data_loss(error.to_string()))?;
    Ok((picked.taken.sequence, u32::try_from(view.body.len()).unwrap_or(u32::MAX)))
}
