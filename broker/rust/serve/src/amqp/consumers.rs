//! The consumers of a connection: one task serves all of them, in turns, and they are woken by one ring. Deliveries that the client
//! has to settle are kept by channel, under their delivery tags.
//!
//! Acks are gathered and settled together. A consumer that was cancelled is none of its queue any more, and stays here until what
//! it has delivered is settled, which is the client's to do.

mod transacting;

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_engine::{MessageView, Picked, ReadFrom, Sequence, SequenceRange, Settle};
use penstock_wire::amqp::delivery::{DeliveryRef, put_delivery};
use penstock_wire::amqp::method::MethodId;
use penstock_wire::amqp::reply::Exception;
use penstock_wire::amqp::transaction::Transaction;
use penstock_wire::amqp::unacked::{Delivery, Unacked};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::consume_arguments::{ConsumeArguments, Filter};
use super::outgoing::{Ending, Next, Outgoing, Place, properties_of};
use super::stream_consumers::{check_stream, read_turn};
use crate::host::Ring;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::consuming::{ConsumeOptions, Consuming, Entry, Turn};
use crate::host::deliveries::Room;
use crate::host::getting::{Getting, Got};
use crate::host::memory::Account;
use crate::host::reading::Reading;
use crate::host::refusal::Refusal;
use crate::host::replies::Address;

struct Consumer {
    channel: u16,
    tag: Vec<u8>,
    session: Session,
    auto_ack: bool,
    is_cancelled: bool,
    /// When its unacked messages are looked at.
    timer: Option<Instant>,
}

/// A consumer of a queue, or of a stream.
enum Session {
    Queue(Consuming),
    Stream(Reading, Option<Filter>),
}

impl Session {
    async fn settle(&mut self, ranges: &[SequenceRange], how: Settle) {
        match self {
            // A failure ends the consumer, as its next turn finds.
            Session::Queue(consuming) => drop(consuming.settle(ranges, how).await),
            Session::Stream(reading, _) => reading.settle(ranges),
        }
    }

    /// Stops taking messages, or takes them again. A reader of a stream has its turns or none, as its channel says.
    async fn set_flow(&mut self, is_active: bool) -> Result<(), Refusal> {
        match self {
            Session::Queue(consuming) if is_active => consuming.resume().await,
            Session::Queue(consuming) => consuming.pause().await,
            Session::Stream(..) => Ok(()),
        }
    }

    /// How many messages of a queue it holds.
    async fn unacked_count(&self) -> u32 {
        match self {
            Session::Queue(consuming) => consuming.unacked_count().await,
            Session::Stream(..) => 0,
        }
    }

    async fn leave(&self) {
        if let Session::Queue(consuming) = self {
            consuming.leave().await;
        }
    }

    fn overdue_at(&self) -> Option<Instant> {
        match self {
            Session::Queue(consuming) => consuming.overdue_at(),
            Session::Stream(..) => None,
        }
    }
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

/// A channel whose client kept a message unacked for longer than so many milliseconds.
pub(super) struct Overdue {
    pub channel: u16,
    pub limit_ms: u64,
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
    /// Consumers of direct replies, at most one for a channel. Their numbers are from the same range as those of other consumers.
    replies: FxHashMap<u64, Replies>,
    /// Consumers that have a turn.
    rung: Vec<u64>,
    /// Consumers that a limit holds up, until when.
    paused: Vec<(Instant, u64)>,
    /// When consumers may have kept a message for too long: at most one time for each.
    timers: BTreeSet<(Instant, u64)>,
    /// Channels that were found to have.
    overdue: Vec<Overdue>,
    /// The transactions of channels that have them.
    transactions: FxHashMap<u16, Transaction<Settle>>,
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
        arguments: ConsumeArguments,
        place: Place<'_>,
    ) -> Result<(), Refusal> {
        self.last_number += 1;
        let (number, auto_ack, tag) = (self.last_number, wanted.auto_ack, wanted.consumer_tag.as_bytes().to_vec());
        let entry = Entry::ask(broker, &caller, wanted.vhost, wanted.queue).await?;
        let mut session = if entry.is_stream().await? {
            check_stream(&wanted, &arguments, &place)?;
            let from = arguments.from.unwrap_or(ReadFrom::Next);
            let reading = Reading::begin(broker, &caller, wanted, entry, (from, &self.ring, number)).await?;
            Session::Stream(reading, arguments.filter)
        } else {
            let ring = Some((&self.ring, number));
            Session::Queue(Consuming::begin(broker, caller, wanted, entry, (ring, Some(place.credit))).await?)
        };
        let channel = place.channel;
        if self.stopped.contains(&channel) {
            session.set_flow(false).await?;
        }
        self.open.insert(number, Consumer { channel, tag, session, auto_ack, is_cancelled: false, timer: None });
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
            let _ = consumer.session.set_flow(is_active).await;
        }
        let numbers = self.open.iter().filter(|(_, consumer)| consumer.channel == channel);
        self.rung.extend(numbers.map(|(number, _)| *number));
        let numbers = self.replies.iter().filter(|(_, each)| each.channel == channel);
        self.rung.extend(numbers.map(|(number, _)| *number));
    }

    /// Ends a consumer as its client wishes.
    pub async fn cancel(&mut self, channel: u16, tag: &[u8]) {
        let Some(number) = self.find(channel, tag) else { return };
        let holds = self.unacked.get(&channel).is_some_and(|unacked| unacked.count() > 0)
            || self.transactions.get(&channel).is_some_and(|transaction| transaction.settles_of(number));
        if holds
            && let Some(consumer) = self.open.get_mut(&number)
            && let Session::Queue(consuming) = &mut consumer.session
            && consuming.retire().await.is_ok()
            && consuming.unacked_count().await > 0
        {
            consumer.is_cancelled = true;
            return;
        }
        self.end(number).await;
    }

    async fn end(&mut self, number: u64) {
        if let Some(consumer) = self.open.remove(&number) {
            if let Some(at) = consumer.timer {
                self.timers.remove(&(at, number));
            }
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
        self.transactions.remove(&channel);
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
        let counts = get.session.counts_deliveries();
        let found = get.session.get(|view, picked, ready_count| {
            if !outgoing.has_room(view) {
                return Room::NotForThis;
            }
            let sequence = picked.taken.sequence;
            let properties = properties_of(view, picked, counts);
            let delivery = Delivery { consumer: number, sequence: sequence.0 };
            let tag = if no_ack { unacked.next_tag() } else { unacked.deliver(delivery) };
            outgoing.put_got(channel, (view, &properties), (tag, picked.taken.redelivered, ready_count));
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

    /// Notes what a client settles at once, whether its channel has transactions or not.
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
        self.unacked.entry(channel).or_default().settle(tag, multiple, method, |_, Delivery { consumer, sequence }| {
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
            consumer.session.settle(&ranges, how).await;
            self.go_on(number).await;
        }
    }

    /// Lets a consumer take more, some of whose messages were settled, or ends it: it was cancelled and holds nothing more.
    async fn go_on(&mut self, number: u64) {
        let Some(consumer) = self.open.get(&number) else { return };
        if !consumer.is_cancelled {
            self.rung.push(number);
        } else if consumer.session.unacked_count().await == 0 {
            self.end(number).await;
        }
    }

    /// Returns the channels whose clients kept a message for too long.
    pub async fn overdue(&mut self) -> Vec<Overdue> {
        let (now, mut found) = (Instant::now(), std::mem::take(&mut self.overdue));
        while let Some((_, number)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            let Some(consumer) = self.open.get_mut(&number) else { continue };
            consumer.timer = None;
            if let Session::Queue(consuming) = &mut consumer.session
                && let Ok(Some(limit_ms)) = consuming.overdue().await
            {
                found.push(Overdue { channel: consumer.channel, limit_ms });
            }
            self.set_timer(number);
        }
        found
    }

    /// Sets the timer of a consumer that has unacked messages and a limit for them, which may be shorter than before.
    fn set_timer(&mut self, number: u64) {
        let Some(consumer) = self.open.get_mut(&number) else { return };
        if let Some(at) = consumer.session.overdue_at()
            && consumer.timer.is_none_or(|set| at < set)
        {
            if let Some(set) = consumer.timer.replace(at) {
                self.timers.remove(&(set, number));
            }
            self.timers.insert((at, number));
        }
    }

    /// Lets the consumers that were woken deliver; returns those that have ended.
    ///
    /// # Errors
    /// Why the connection has to be closed: the broker serves the virtual host no more.
    pub async fn take_turns(&mut self, outgoing: &mut Outgoing<'_>, stopping: bool) -> Result<Vec<Ended>, Exception> {
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
            let Some(consumer) = self.open.get_mut(&number).filter(|consumer| !consumer.is_cancelled) else {
                // A cancelled one may have messages, and less time for them than before.
                self.set_timer(number);
                continue;
            };
            let is_stopped = self.stopped.contains(&consumer.channel);
            let unacked = self.unacked.entry(consumer.channel).or_default();
            match turn((number, is_stopped), consumer, unacked, outgoing, stopping).await {
                Ok(Next::Rest) => {}
                Ok(Next::More) => left.push(number),
                Ok(Next::After(pause)) => self.paused.push((now + pause, number)),
                Err(Ending::Overdue(limit_ms)) => self.overdue.push(Overdue { channel: consumer.channel, limit_ms }),
                Err(Ending::Cancelled) => {
                    ended.push(Ended { channel: consumer.channel, tag: consumer.tag.clone() });
                    self.end(number).await;
                }
                Err(Ending::OfConnection(exception)) => return Err(exception),
            }
            self.set_timer(number);
        }
        self.rung = left;
        Ok(ended)
    }

    /// Waits until a consumer has a turn that had none.
    pub async fn until_turn(&self) {
        let pause = self.paused.iter().map(|(until, _)| *until).min();
        let pause = pause.into_iter().chain(self.timers.first().map(|(at, _)| *at)).min();
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

async fn turn(
    (number, is_stopped): (u64, bool),
    consumer: &mut Consumer,
    unacked: &mut Unacked,
    outgoing: &mut Outgoing<'_>,
    stopping: bool,
) -> Result<Next, Ending> {
    let Consumer { channel, tag, session, auto_ack, .. } = consumer;
    let session = match session {
        Session::Queue(consuming) => consuming,
        Session::Stream(reading, _) if is_stopped => {
            return match reading.turn(true).await {
                Ok(Turn::Cancelled(_)) | Err(_) => Err(Ending::of(reading.shard())),
                Ok(_) => Ok(Next::Rest),
            };
        }
        Session::Stream(reading, filter) => {
            let place = (number, *channel, tag.as_slice());
            return read_turn(place, (reading, filter.as_ref()), unacked, outgoing, stopping).await;
        }
    };
    let counts = session.counts_deliveries();
    session.ring();
    loop {
        match session.turn(stopping).await.map_err(|_| Ending::of(session.shard()))? {
            Turn::Cancelled(_) => return Err(Ending::of(session.shard())),
            Turn::TimedOut(limit_ms) => return Err(Ending::Overdue(limit_ms)),
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
            let properties = properties_of(view, picked, counts);
            let delivery = DeliveryRef {
                consumer_tag: tag,
                delivery_tag,
                redelivered: picked.taken.redelivered,
                exchange: view.exchange,
                routing_key: view.routing_key,
                properties: &properties,
                body: view.body,
            };
            put_delivery(*channel, &delivery, outgoing.frame_bytes_max, outgoing.out);
            outgoing.count(view);
            Ok(if outgoing.out.len() < outgoing.bytes_max { Room::ForMore } else { Room::Full })
        };
        session.send(&mut write).await.map_err(|_| Ending::of(session.shard()))?;
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
