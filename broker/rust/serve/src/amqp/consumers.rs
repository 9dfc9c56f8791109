//! The consumers of a connection: one task serves all of them, in turns, and they are woken by one ring. Deliveries that the client
//! has to settle are kept by channel, under their delivery tags.
//!
//! Acks are gathered and settled together. A consumer that was cancelled is none of its queue any more, and stays here until what
//! it has delivered is settled, which is the client's to do.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Credit, MessageView, Picked, Sequence, SequenceRange, Settle};
use penstock_wire::Name;
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::delivery::{DeliveryRef, put_delivery};
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::reply::Exception;
use penstock_wire::amqp::unacked::{Delivery, Unacked};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::space::Space;
use crate::host::Ring;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::consuming::{ConsumeOptions, Consuming, Turn};
use crate::host::deliveries::Room;
use crate::host::getting::{Getting, Got};
use crate::host::memory::Account;
use crate::host::refusal::Refusal;
use crate::host::replies::Address;

/// Messages of fewer bytes are counted with what is written together.
const COUNTED_BYTES: usize = 4 << 10;

struct Consumer {
    channel: u16,
    tag: Vec<u8>,
    session: Consuming,
    auto_ack: bool,
    is_cancelled: bool,
}

struct Get {
    channel: u16,
    queue: String,
    session: Getting,
}

/// A consumer of direct replies.
struct Replies {
    channel: u16,
    tag: Vec<u8>,
    address: Address,
}

/// A consumer that the broker has ended.
pub(super) struct Ended {
    pub channel: u16,
    pub tag: Vec<u8>,
}

/// The buffer for deliveries, with its limits.
pub(super) struct Outgoing<'a> {
    pub out: &'a mut Vec<u8>,
    /// Nothing is delivered beyond so many bytes; the message that reaches them is written whole.
    pub bytes_max: usize,
    pub frame_bytes_max: u32,
    pub space: &'a mut Space,
}

impl Outgoing<'_> {
    /// Whether there is room for a message. A small one is left to the bound of all.
    fn has_room(&self, view: &MessageView<'_>) -> bool {
        let bytes = bytes_of(view);
        bytes < COUNTED_BYTES || self.space.allows(self.out.len(), bytes)
    }

    /// Counts a message that was written.
    fn count(&mut self, view: &MessageView<'_>) {
        if bytes_of(view) >= COUNTED_BYTES {
            self.space.count(self.out.len());
        }
    }

    fn put_got(&mut self, channel: u16, view: &MessageView<'_>, (tag, redelivered, ready_count): (u64, bool, u64)) {
        let name = |bytes| Name::new("a stored name", bytes).unwrap_or(Name::EMPTY);
        let (exchange, routing_key) = (name(view.exchange), name(view.routing_key));
        let (delivery_tag, message_count) = (tag, u32::try_from(ready_count).unwrap_or(u32::MAX));
        Method::BasicGetOk { delivery_tag, redelivered, exchange, routing_key, message_count }.put(channel, self.out);
        put_content(channel, view.properties, view.body, self.frame_bytes_max, self.out);
        self.count(view);
    }
}

fn bytes_of(view: &MessageView<'_>) -> usize {
    view.properties.len() + view.body.len()
}

/// See the module.
#[derive(Default)]
pub(super) struct Consumers {
    ring: Ring,
    last_number: u64,
    open: FxHashMap<u64, Consumer>,
    unacked: FxHashMap<u16, Unacked>,
    /// Queues that messages are got from one at a time, by numbers as consumers have.
    gets: FxHashMap<u64, Get>,
    /// Channels whose client wants no deliveries.
    stopped: FxHashSet<u16>,
    /// Those of direct replies, by numbers as consumers have; one of a channel.
    replies: FxHashMap<u64, Replies>,
    /// Consumers that have a turn.
    rung: Vec<u64>,
    /// Consumers that a limit holds up, until when.
    paused: Vec<(Instant, u64)>,
    /// Settlements of the client, by consumer, in the order in which they came.
    settled: Vec<(u64, Settle, Vec<SequenceRange>)>,
}

impl Consumers {
    /// Opens a consumer, and returns its tag.
    ///
    /// # Errors
    /// Why it may not be, or what its queue does not allow.
    pub async fn open(
        &mut self,
        (broker, caller): (&Broker, Caller),
        wanted: ConsumeOptions<'_>,
        (channel, credit): (u16, &Arc<Credit>),
    ) -> Result<(), Refusal> {
        self.last_number += 1;
        let (number, auto_ack, tag) = (self.last_number, wanted.auto_ack, wanted.consumer_tag.as_bytes().to_vec());
        let ring = Some((&self.ring, number));
        let mut session = Consuming::open_with(broker, caller, wanted, ring, Some(credit)).await?;
        if self.stopped.contains(&channel) {
            session.pause().await?;
        }
        self.open.insert(number, Consumer { channel, tag, session, auto_ack, is_cancelled: false });
        self.rung.push(number);
        Ok(())
    }

    /// The number that the next consumer gets: names that the broker makes have it.
    pub fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    pub fn has(&self, channel: u16, tag: &[u8]) -> bool {
        let mut replies = self.replies.values();
        self.find(channel, tag).is_some() || replies.any(|each| each.channel == channel && each.tag == tag)
    }

    /// Opens a consumer of direct replies, and returns the name that they come to; nothing where the channel has one.
    pub fn open_replies(
        &mut self,
        (broker, vhost): (&Broker, &str),
        (channel, tag): (u16, &[u8]),
        account: &Arc<Account>,
    ) -> Option<&[u8]> {
        if self.replies.values().any(|each| each.channel == channel) {
            return None;
        }
        self.last_number += 1;
        let address = broker.replies.open(vhost, (&self.ring, self.last_number), account);
        let replies = Replies { channel, tag: tag.to_vec(), address };
        Some(&self.replies.entry(self.last_number).or_insert(replies).address.name)
    }

    /// Ends a consumer of direct replies; says whether it was one.
    pub fn cancel_replies(&mut self, channel: u16, tag: &[u8]) -> bool {
        let before = self.replies.len();
        self.replies.retain(|_, each| each.channel != channel || each.tag != tag);
        self.replies.len() < before
    }

    fn find(&self, channel: u16, tag: &[u8]) -> Option<u64> {
        let mut open = self.open.iter();
        let is_it = |consumer: &Consumer| consumer.channel == channel && consumer.tag == tag && !consumer.is_cancelled;
        open.find_map(|(number, consumer)| is_it(consumer).then_some(*number))
    }

    /// Stops the deliveries of a channel, or goes on with them. Others get the messages meanwhile.
    pub async fn set_flow(&mut self, channel: u16, is_active: bool) {
        self.settle().await;
        if is_active != self.stopped.contains(&channel) {
            return;
        }
        if is_active {
            self.stopped.remove(&channel)
        } else {
            self.stopped.insert(channel)
        };
        let of_channel = |consumer: &&mut Consumer| consumer.channel == channel && !consumer.is_cancelled;
        for consumer in self.open.values_mut().filter(of_channel) {
            // A failure ends the consumer, as its next turn finds.
            let _ = if is_active { consumer.session.resume().await } else { consumer.session.pause().await };
        }
        let numbers = self.open.iter().filter(|(_, consumer)| consumer.channel == channel);
        self.rung.extend(numbers.map(|(number, _)| *number));
        let numbers = self.replies.iter().filter(|(_, each)| each.channel == channel);
        self.rung.extend(numbers.map(|(number, _)| *number));
    }

    /// Ends a consumer as its client wishes.
    pub async fn cancel(&mut self, channel: u16, tag: &[u8]) {
        let Some(number) = self.find(channel, tag) else { return };
        let holds = self.unacked.get(&channel).is_some_and(|unacked| unacked.count() > 0);
        if holds
            && let Some(consumer) = self.open.get_mut(&number)
            && consumer.session.retire().await.is_ok()
            && consumer.session.unacked_count().await > 0
        {
            consumer.is_cancelled = true;
            return;
        }
        self.end(number).await;
    }

    async fn end(&mut self, number: u64) {
        if let Some(consumer) = self.open.remove(&number) {
            consumer.session.leave().await;
        }
    }

    /// Ends everything of a channel: what it held returns to its queues.
    pub async fn end_channel(&mut self, channel: u16) {
        self.settle().await;
        let of_channel = self.open.iter().filter(|(_, consumer)| consumer.channel == channel);
        let numbers: Vec<u64> = of_channel.map(|(number, _)| *number).collect();
        for number in numbers {
            self.end(number).await;
        }
        // Dropped, they return what was got.
        self.gets.retain(|_, get| get.channel != channel);
        self.replies.retain(|_, each| each.channel != channel);
        self.unacked.remove(&channel);
        self.stopped.remove(&channel);
    }

    /// Writes the next message of a queue, if there is room for it.
    ///
    /// # Errors
    /// Why there cannot be one.
    pub async fn get(
        &mut self,
        (broker, caller, vhost): (&Broker, &Caller, &str),
        (channel, queue, no_ack): (u16, &str, bool),
        outgoing: &mut Outgoing<'_>,
    ) -> Result<Got, Refusal> {
        self.settle().await;
        let mut gets = self.gets.iter();
        let open = gets.find(|(_, get)| get.channel == channel && get.queue == queue).map(|(number, _)| *number);
        let number = match open {
            Some(number) => number,
            None => {
                let session = Getting::open(broker, caller, vhost, queue).await?;
                self.last_number += 1;
                self.gets.insert(self.last_number, Get { channel, queue: queue.to_owned(), session });
                self.last_number
            }
        };
        let Some(get) = self.gets.get_mut(&number) else { return Ok(Got::Nothing) };
        let (unacked, mut got) = (self.unacked.entry(channel).or_default(), None);
        let found = get.session.get(|view, picked, ready_count| {
            if !outgoing.has_room(view) {
                return Room::NotForThis;
            }
            let sequence = picked.taken.sequence;
            let delivery = Delivery { consumer: number, sequence: sequence.0 };
            let tag = if no_ack { unacked.next_tag() } else { unacked.deliver(delivery) };
            outgoing.put_got(channel, view, (tag, picked.taken.redelivered, ready_count));
            got = Some(sequence);
            Room::Full
        });
        let found = found.await;
        if found.is_err() {
            // The queue may be another one of the same name by now.
            self.gets.remove(&number);
        } else if let (true, Some(sequence)) = (no_ack, got) {
            get.session.settle(&[SequenceRange { first: sequence, last: sequence }], Settle::Ack).await?;
        }
        found
    }

    /// Notes what a client settles.
    ///
    /// # Errors
    /// When it does not hold the tag.
    pub fn note_settled(
        &mut self,
        channel: u16,
        (tag, multiple): (u64, bool),
        how: Settle,
        method: MethodId,
    ) -> Result<(), Exception> {
        let settled = &mut self.settled;
        self.unacked.entry(channel).or_default().settle(tag, multiple, method, |Delivery { consumer, sequence }| {
            let sequence = Sequence(sequence);
            let at = settled.iter().rposition(|(number, _, _)| *number == consumer);
            let run = at.and_then(|at| settled.get_mut(at)).filter(|(_, before, _)| *before == how);
            match run {
                Some((_, _, ranges)) => add(ranges, sequence),
                None => settled.push((consumer, how, vec![SequenceRange { first: sequence, last: sequence }])),
            }
        })
    }

    /// Settles what was noted. A consumer that is gone has returned its messages: those are delivered again.
    pub async fn settle(&mut self) {
        for (number, how, mut ranges) in std::mem::take(&mut self.settled) {
            ranges.sort_unstable_by_key(|range| range.first);
            if let Some(get) = self.gets.get_mut(&number) {
                // A failure shows when the next one is got.
                let _ = get.session.settle(&ranges, how).await;
                continue;
            }
            let Some(consumer) = self.open.get_mut(&number) else { continue };
            // A failure ends the consumer, as its next turn finds.
            let _ = consumer.session.settle(&ranges, how).await;
            if !consumer.is_cancelled {
                self.rung.push(number);
            } else if consumer.session.unacked_count().await == 0 {
                self.end(number).await;
            }
        }
    }

    /// Lets the consumers that were woken deliver; returns those that have ended.
    pub async fn take_turns(&mut self, outgoing: &mut Outgoing<'_>, stopping: bool) -> Vec<Ended> {
        self.ring.take(&mut self.rung);
        let now = Instant::now();
        let rung = &mut self.rung;
        self.paused.retain(|(until, number)| {
            let is_over = *until <= now;
            rung.extend(is_over.then_some(*number));
            !is_over
        });
        let (mut ended, mut left) = (Vec::new(), Vec::new());
        for number in std::mem::take(&mut self.rung) {
            if outgoing.out.len() >= outgoing.bytes_max {
                left.push(number);
                continue;
            }
            if let Some(replies) = self.replies.get(&number) {
                let is_stopped = self.stopped.contains(&replies.channel);
                let unacked = self.unacked.entry(replies.channel).or_default();
                if !is_stopped && deliver_replies(replies, unacked, outgoing) {
                    left.push(number);
                }
                continue;
            }
            let Some(consumer) = self.open.get_mut(&number).filter(|consumer| !consumer.is_cancelled) else { continue };
            let unacked = self.unacked.entry(consumer.channel).or_default();
            match turn(number, consumer, unacked, outgoing, stopping).await {
                Ok(Next::Rest) => {}
                Ok(Next::More) => left.push(number),
                Ok(Next::After(pause)) => self.paused.push((now + pause, number)),
                Err(()) => {
                    ended.push(Ended { channel: consumer.channel, tag: consumer.tag.clone() });
                    self.end(number).await;
                }
            }
        }
        self.rung = left;
        ended
    }

    /// Waits until a consumer has a turn that had none.
    pub async fn until_turn(&self) {
        let pause = self.paused.iter().map(|(until, _)| *until).min();
        tokio::select! {
            () = self.ring.heard() => {}
            () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
        }
    }

    /// Whether consumers wait for nothing but space in what is written.
    pub fn are_held_up(&self) -> bool {
        !self.rung.is_empty()
    }
}

/// When a consumer has its next turn.
enum Next {
    /// When it is woken.
    Rest,
    /// As soon as there is space.
    More,
    After(Duration),
}

/// An error says that it has ended: its queue is deleted, or its user may not consume any more.
async fn turn(
    number: u64,
    consumer: &mut Consumer,
    unacked: &mut Unacked,
    outgoing: &mut Outgoing<'_>,
    stopping: bool,
) -> Result<Next, ()> {
    let Consumer { channel, tag, session, auto_ack, .. } = consumer;
    session.ring();
    loop {
        match session.turn(stopping).await.map_err(|_| ())? {
            Turn::Cancelled(_) => return Err(()),
            Turn::Wait(pause) => return Ok(pause.map_or(Next::Rest, Next::After)),
            Turn::Send if outgoing.out.len() >= outgoing.bytes_max => return Ok(Next::More),
            Turn::Send => {}
        }
        let mut has_room = true;
        let mut write = |view: &MessageView<'_>, picked: Picked| {
            has_room = outgoing.has_room(view);
            if !has_room {
                return Ok(Room::NotForThis);
            }
            let sequence = picked.taken.sequence.0;
            let delivery_tag =
                if *auto_ack { unacked.next_tag() } else { unacked.deliver(Delivery { consumer: number, sequence }) };
            let delivery = DeliveryRef {
                consumer_tag: tag,
                delivery_tag,
                redelivered: picked.taken.redelivered,
                exchange: view.exchange,
                routing_key: view.routing_key,
                properties: view.properties,
                body: view.body,
            };
            put_delivery(*channel, &delivery, outgoing.frame_bytes_max, outgoing.out);
            outgoing.count(view);
            Ok(if outgoing.out.len() < outgoing.bytes_max { Room::ForMore } else { Room::Full })
        };
        session.send(&mut write).await.map_err(|_| ())?;
        if !has_room {
            return Ok(Next::More);
        }
    }
}

/// Delivers direct replies, as far as there is space; says whether there may be more.
fn deliver_replies(replies: &Replies, unacked: &mut Unacked, outgoing: &mut Outgoing<'_>) -> bool {
    while outgoing.out.len() < outgoing.bytes_max {
        let Some(letter) = replies.address.take() else { return false };
        let delivery = DeliveryRef {
            consumer_tag: &replies.tag,
            delivery_tag: unacked.next_tag(),
            redelivered: false,
            exchange: b"",
            routing_key: &replies.address.name,
            properties: &letter.properties,
            body: &letter.body,
        };
        put_delivery(replies.channel, &delivery, outgoing.frame_bytes_max, outgoing.out);
    }
    true
}

fn add(ranges: &mut Vec<SequenceRange>, sequence: Sequence) {
    match ranges.last_mut() {
        Some(range) if range.last.0 + 1 == sequence.0 => range.last = sequence,
        _ => ranges.push(SequenceRange { first: sequence, last: sequence }),
    }
}
