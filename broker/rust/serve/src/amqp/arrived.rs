//! The complete messages of a channel as a publisher's session stores them. They stay until it is known which of them return to
//! the client.

use std::ops::ControlFlow;

use penstock_wire::amqp::assembly::{Assembly, Publish};
use penstock_wire::amqp::replies::is_reply;

use crate::host::gather::{Message, Obstacle, Source};

/// See the module.
pub(super) struct Arrived<'a> {
    assembly: &'a Assembly,
    /// How many of the oldest messages are to be stored, and how many were, or were refused.
    count: usize,
    taken: usize,
}

impl<'a> Arrived<'a> {
    pub fn new(assembly: &'a Assembly, count: usize) -> Arrived<'a> {
        Arrived { assembly, count, taken: 0 }
    }

    pub fn taken(&self) -> usize {
        self.taken
    }
}

impl Source for Arrived<'_> {
    /// How many messages have been taken.
    type End = usize;

    fn is_empty(&self) -> bool {
        self.message_count() == 0
    }

    fn message_count(&self) -> usize {
        self.count - self.taken
    }

    fn each<'a>(
        &'a self,
        messages_max: usize,
        mut take: impl FnMut(Message<'a, usize>) -> Result<ControlFlow<()>, Obstacle>,
    ) -> Result<(), Obstacle> {
        let messages = self.assembly.messages().enumerate().take(self.count).skip(self.taken).take(messages_max);
        for (at, publish) in messages {
            if take(message_of(&publish, at + 1))?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn advance(&mut self, end: usize) -> usize {
        let taken = self.assembly.messages().take(end).skip(self.taken);
        let bytes = taken.map(|message| message.body.len()).sum();
        self.taken = end;
        bytes
    }
}

/// The messages of a channel that a transaction stores: all but direct replies, which no queue has.
pub(super) struct Transacted<'a> {
    messages: Vec<Publish<'a>>,
}

impl<'a> Transacted<'a> {
    pub fn new(assembly: &'a Assembly) -> Transacted<'a> {
        let messages = assembly.messages().filter(|one| !is_reply(one.exchange.as_bytes(), one.routing_key.as_bytes()));
        Transacted { messages: messages.collect() }
    }
}

impl Source for Transacted<'_> {
    type End = usize;

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn message_count(&self) -> usize {
        self.messages.len()
    }

    fn each<'a>(
        &'a self,
        messages_max: usize,
        mut take: impl FnMut(Message<'a, usize>) -> Result<ControlFlow<()>, Obstacle>,
    ) -> Result<(), Obstacle> {
        for (at, publish) in self.messages.iter().enumerate().take(messages_max) {
            if take(message_of(publish, at + 1))?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn advance(&mut self, end: usize) -> usize {
        self.messages.drain(..end).map(|message| message.body.len()).sum()
    }
}

fn message_of<'a>(publish: &Publish<'a>, end: usize) -> Message<'a, usize> {
    let Publish { exchange, routing_key, mandatory, properties, body } = *publish;
    Message {
        exchange,
        routing_key,
        properties: Some(properties),
        body,
        key: None,
        mandatory,
        delay_ms: None,
        sequence: None,
        end,
    }
}
