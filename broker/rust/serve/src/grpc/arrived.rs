//! What a publish stream has sent, as the host stores it: with its properties as AMQP has them.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_wire::amqp::properties::properties_to_amqp;
use tonic::Status;

use crate::grpc::requests::{End, Incoming, Requests};
use crate::host::gather::{Message, Obstacle, Source};
use crate::host::refusal::Refusal;

/// See the module.
#[derive(Default)]
pub(crate) struct Arrived {
    requests: Requests,
    blocks: Blocks,
}

impl Arrived {
    /// See [`Requests::push`].
    pub fn push(&mut self, frame: Bytes) -> Result<(), Status> {
        self.requests.push(frame)
    }

    pub fn clear(&mut self) {
        self.requests.clear();
    }
}

impl Source for Arrived {
    type End = End;

    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    fn message_count(&self) -> usize {
        self.requests.message_count()
    }

    #[inline]
    fn each<'a>(
        &'a self,
        messages_max: usize,
        mut take: impl FnMut(Message<'a, End>) -> Result<ControlFlow<()>, Obstacle>,
    ) -> Result<(), Obstacle> {
        let mut block_index = 0;
        self.requests.each(messages_max, |Incoming { message, mandatory, sequence, end }| {
            let (properties, delay_ms) = match message.properties {
                None => (None, None),
                Some(_) => {
                    block_index += 1;
                    let block = self.blocks.get(block_index - 1).ok_or(Obstacle::Properties)?;
                    (Some(block), self.blocks.delay_of(block_index - 1))
                }
            };
            take(Message {
                exchange: message.exchange,
                routing_key: message.routing_key,
                properties,
                body: message.body,
                key: message.key,
                mandatory,
                delay_ms,
                sequence,
                end,
            })
        })
    }

    fn advance(&mut self, end: End) -> usize {
        self.requests.advance(end)
    }

    fn convert_properties(&mut self, messages_max: usize) -> Result<(), Refusal> {
        self.blocks.clear();
        let blocks = &mut self.blocks;
        self.requests.each(messages_max, |Incoming { message, .. }| {
            if let Some(properties) = message.properties {
                let delay_ms = properties_to_amqp(Some(properties), &mut blocks.bytes)?;
                blocks.delays.extend(delay_ms.map(|delay_ms| (blocks.ends.len(), delay_ms)));
                blocks.ends.push(blocks.bytes.len());
            }
            Ok::<_, Refusal>(ControlFlow::Continue(()))
        })
    }
}

/// The properties of a round's messages as AMQP blocks, in the order of the messages that have any.
#[derive(Default)]
struct Blocks {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Of messages that have one, in milliseconds, by the index of the block.
    delays: Vec<(usize, u64)>,
}

impl Blocks {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.delays.clear();
    }

    fn delay_of(&self, index: usize) -> Option<u64> {
        let found = self.delays.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.delays.get(found).map(|(_, delay_ms)| *delay_ms)
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let start = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.bytes.get(start..*self.ends.get(index)?)
    }
}
