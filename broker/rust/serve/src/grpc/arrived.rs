//! What a publish stream has sent, as the host stores it: with its properties as AMQP has them.

use std::ops::ControlFlow;

use bytes::Bytes;
use penstock_wire::amqp::checked::Converted;
use tonic::Status;

use crate::grpc::requests::{End, Incoming, Requests};
use crate::host::gather::{Message, Obstacle, Source};
use crate::host::refusal::Refusal;

/// See the module.
#[derive(Default)]
pub(crate) struct Arrived {
    requests: Requests,
    converted: Converted,
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
                    let block = self.converted.get(block_index - 1).ok_or(Obstacle::Properties)?;
                    (Some(block), self.converted.delay_of(block_index - 1))
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
        self.converted.clear();
        let converted = &mut self.converted;
        self.requests.each(messages_max, |Incoming { message, .. }| {
            if let Some(properties) = message.properties {
                converted.push(properties)?;
            }
            Ok::<_, Refusal>(ControlFlow::Continue(()))
        })
    }
}
