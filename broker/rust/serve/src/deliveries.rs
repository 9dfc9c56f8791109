//! From places in segments to wire bytes: what was taken waits here until the client's stream has room for it.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_engine::{EngineError, Filled, Picked, Segment, Sequence, Subscription};
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

    /// Encodes one response's worth and tells the subscription what went out.
    pub async fn encode(&mut self, subscription: &Subscription) -> Result<FramedMessage, Status> {
        self.warm().await?;
        self.sizes.clear();
        let out = FramedMessage::new(self.bytes_about(), |out| {
            let mut encoder = DeliveriesEncoder::begin(out);
            self.push(&mut encoder, RESPONSE_BYTES)?;
            encoder.finish();
            Ok::<(), Status>(())
        })?;
        subscription.sent(&self.sizes).map_err(|error| status::of_engine(&error))?;
        Ok(out)
    }

    /// Encodes everything that is pending as the answer to a Get.
    pub async fn encode_all(&mut self, subscription: &Subscription, ready_count: u64) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        let mut encoder = DeliveriesEncoder::begin_get(&mut out);
        self.sizes.clear();
        while !self.is_empty() {
            self.warm().await?;
            self.push(&mut encoder, usize::MAX)?;
        }
        encoder.finish_get(ready_count);
        subscription.sent(&self.sizes).map_err(|error| status::of_engine(&error))?;
        Ok(out)
    }

    /// A guess at the size of the next response, so that a few small messages do not take a large buffer.
    fn bytes_about(&self) -> usize {
        let count = self.runs.front().map_or(0, |run| run.picked.as_slice().len());
        count.saturating_mul(MESSAGE_BYTES_ABOUT).min(RESPONSE_BYTES + 4096)
    }

    fn push(&mut self, encoder: &mut DeliveriesEncoder<'_>, bytes_max: usize) -> Result<(), Status> {
        let Some(run) = self.runs.front_mut() else { return Ok(()) };
        while run.warm_count > 0 {
            let Some(picked) = run.picked.next() else { break };
            run.warm_count -= 1;
            self.sizes.push(push_one(encoder, &run.segment, picked)?);
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
        let Some(run) = self.runs.front_mut() else { return Ok(()) };
        let picked = run.picked.as_slice();
        let Some(first) = picked.first().filter(|_| run.warm_count == 0) else { return Ok(()) };
        if !run.segment.is_sealed() {
            run.warm_count = picked.len();
            return Ok(());
        }
        let limit = first.offset.saturating_add(CHUNK_BYTES);
        let chunk = picked.iter().take_while(|picked| (first.offset..limit).contains(&picked.offset));
        let (warm_count, last) =
            chunk.fold((0, first.offset), |(count, last), picked| (count + 1, last.max(picked.offset)));
        if !run.segment.is_resident(first.offset, last) {
            let (segment, from) = (Arc::clone(&run.segment), first.offset);
            let populated = tokio::task::spawn_blocking(move || segment.populate(from, last)).await;
            let populated = populated.map_err(|_| Status::internal("reading a segment failed"))?;
            populated.map_err(|error| status::of_engine(&EngineError::Log(error)))?;
        }
        run.warm_count = warm_count;
        Ok(())
    }
}

fn push_one(encoder: &mut DeliveriesEncoder<'_>, segment: &Segment, picked: Picked) -> Result<(Sequence, u32), Status> {
    let view = segment.message(picked.offset).map_err(|error| status::of_engine(&EngineError::Log(error)))?;
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
