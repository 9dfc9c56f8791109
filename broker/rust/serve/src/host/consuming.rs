//! A consumer's session: a subscription of a queue, messages of it as there is room for them, and their settlement.
//!
//! What must stay true: while nothing is sent nothing more is taken from the queue, so a slow consumer costs what it was sent
//! last and what it holds unacked. Who leaves, or may not go on, returns what it holds to the queue.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use penstock_engine::{
    Credit, EngineError, Joining, MessageView, Picked, QueueId, SequenceRange, Settle, Settling, Shard, Signal,
    Subscription, SubscriptionOptions, Unused,
};
use penstock_wire::Name;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use crate::host::ack_timer::AckTimer;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Call, CallRequest, Calls};
use crate::host::deliveries::{Pending, Room};
use crate::host::listing::OpenConsumer;
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::{Question, Rights};
use crate::host::ring::Ring;
use crate::host::stalls::{Later, soon, when_free};

/// No consumer holds more: settling in the middle of what is held costs by its number.
pub const PREFETCH_MAX: u32 = 65_535;

/// Messages taken under one hold of the shard's lock.
const FILL_MAX: u32 = 1024;

/// What a client wants to consume, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConsumeOptions<'a> {
    pub vhost: Name<'a>,
    pub queue: Name<'a>,
    /// A name is made when it is empty.
    pub consumer_tag: Name<'a>,
    /// At most [`PREFETCH_MAX`] count.
    pub prefetch: u32,
    pub auto_ack: bool,
    pub exclusive: bool,
    /// Consumers of a higher priority get messages first, while they have credit.
    pub priority: i32,
    /// How long it may keep a message unacked; without it the queue decides.
    pub ack_timeout_ms: Option<u64>,
}

/// What comes next for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Messages wait to be sent.
    Send,
    /// Nothing can be sent now, and for so long because of a limit.
    Wait(Option<Duration>),
    /// The broker ended the consumer, for this reason.
    Cancelled(String),
    /// It kept a message unacked for longer than so many milliseconds, and has to end.
    TimedOut(u64),
}

/// See the module.
pub struct Consuming {
    consumer: Arc<Later<Consumer>>,
    consumer_tag: String,
    rights: Rights,
    pending: Pending,
    allowance: Allowance,
    /// Whether it is to look for messages: not after it found none, until something happens.
    looks: bool,
    /// It was told of messages and did not look yet.
    rung: bool,
    /// What it was sent, when there is a limit of the time until it is settled.
    /// Absent without a limit.
    acks: Option<AckTimer>,
}

/// A consumer and whom to tell when it leaves.
struct Consumer {
    calls: Arc<Calls>,
    caller: Caller,
    subscription: Subscription,
    /// Its number among the open consumers.
    listed: u64,
}

impl Consumer {
    /// Returns what it holds. Leaving twice is leaving once.
    fn leave(&self) {
        self.calls.listing().left(self.listed);
        self.tell(self.subscription.close());
    }

    /// Counts no more as a consumer. Messages in `unsent` return, and others stay until they are settled.
    fn retire(&self, unsent: &[SequenceRange]) -> Result<(), EngineError> {
        self.calls.listing().left(self.listed);
        self.tell(self.subscription.retire()?);
        self.subscription.put_back(unsent).map(drop)
    }

    fn tell(&self, unused: Option<Unused>) {
        let Some(unused) = unused else { return };
        let vhost = self.subscription.shard().name().to_owned();
        let request = CallRequest::QueueUnused { vhost, queue: unused.queue, queue_id: unused.id.0 };
        self.calls.tell(Call::new(request, &self.caller));
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An admission to consume a queue.
pub(crate) struct Entry {
    pub admitted: Admitted,
    pub question: Question,
    /// The shard of the queue.
    pub shard: Arc<Shard>,
    pub allowance: Allowance,
}

impl Entry {
    /// Asks whether the caller may consume a queue.
    ///
    /// # Errors
    /// Why the caller may not.
    pub async fn ask(broker: &Broker, caller: &Caller, vhost: Name<'_>, queue: Name<'_>) -> Result<Entry, Refusal> {
        let call = Call::new(CallRequest::OpenConsume { vhost: vhost.to_text(), queue: queue.to_text() }, caller);
        let question = Question::of(&broker.calls, &call);
        let admitted = broker.calls.admit(call).await?;
        let (shard, allowance) = broker.enter(&admitted)?;
        let shard = shard.home_of(QueueId(admitted.queue_id));
        Ok(Entry { admitted, question, shard, allowance })
    }

    /// Whether it is of a stream.
    ///
    /// # Errors
    /// When the broker cannot tell.
    pub async fn is_stream(&self) -> Result<bool, Refusal> {
        let queue = QueueId(self.admitted.queue_id);
        Ok(when_free(&self.shard, || self.shard.is_stream(queue)).await?)
    }
}

impl Consuming {
    /// Asks whether the caller may consume, and subscribes.
    ///
    /// # Errors
    /// Why the caller may not, or what the queue does not allow.
    pub async fn open(broker: &Broker, caller: Caller, wanted: ConsumeOptions<'_>) -> Result<Consuming, Refusal> {
        Consuming::open_with(broker, caller, wanted, None, None).await
    }

    /// The same for one of several consumers of a task, which the ring names by a number, and which may share a credit.
    ///
    /// # Errors
    /// As [`Consuming::open`].
    pub async fn open_with(
        broker: &Broker,
        caller: Caller,
        wanted: ConsumeOptions<'_>,
        ring: Option<(&Ring, u64)>,
        credit: Option<&Arc<Credit>>,
    ) -> Result<Consuming, Refusal> {
        let entry = Entry::ask(broker, &caller, wanted.vhost, wanted.queue).await?;
        Consuming::begin(broker, caller, wanted, entry, (ring, credit)).await
    }

    /// The same for one that was admitted.
    ///
    /// # Errors
    /// What the queue does not allow.
    pub(crate) async fn begin(
        broker: &Broker,
        caller: Caller,
        wanted: ConsumeOptions<'_>,
        entry: Entry,
        (ring, credit): (Option<(&Ring, u64)>, Option<&Arc<Credit>>),
    ) -> Result<Consuming, Refusal> {
        let ConsumeOptions { prefetch, auto_ack, exclusive, priority, ack_timeout_ms, .. } = wanted;
        let (calls, queue) = (&broker.calls, wanted.queue.to_text());
        let Entry { admitted, question, shard, allowance } = entry;
        let (queue_id, prefetch) = (QueueId(admitted.queue_id), prefetch.min(PREFETCH_MAX));
        let options = SubscriptionOptions { prefetch, auto_ack, exclusive, pull: false };
        let signal: Arc<Signal> = ring.map_or_else(Arc::default, |(ring, number)| ring.signal(number));
        let joining = Joining { signal: Arc::clone(&signal), credit, priority, ack_timeout_ms, ..Joining::default() };
        let subscription = when_free(&shard, || shard.subscribe_as(queue_id, options, joining)).await?;
        let consumer_tag = match wanted.consumer_tag.to_text() {
            tag if tag.is_empty() => format!("consumer-{}-{}", caller.connection, admitted.queue_id),
            tag => tag,
        };
        let (user, vhost) = (admitted.user.clone(), admitted.vhost.clone());
        let listed = calls.listing().consumes(OpenConsumer {
            connection: caller.connection,
            user: admitted.user,
            vhost: admitted.vhost,
            queue,
            consumer_tag: consumer_tag.clone(),
            prefetch,
            auto_ack,
            exclusive,
            priority,
            signal,
        });
        let consumer = Consumer { calls: Arc::clone(calls), caller, subscription, listed };
        let consumer = Arc::new(Later::new(&shard, consumer));
        let leaving = Arc::downgrade(&consumer);
        let ring = ring.map(|(ring, number)| (ring.clone(), number));
        let rights = question.watch(&user, &vhost, move || {
            // What it held goes to others at once, also when its client reads nothing any more.
            leaving.upgrade().into_iter().for_each(|consumer| {
                soon(&shard, move || consumer.leave());
            });
            ring.into_iter().for_each(|(ring, number)| ring.ring_for(number));
        });
        let (pending, acks) = (Pending::default(), None);
        Ok(Consuming { consumer, consumer_tag, rights, pending, allowance, looks: true, rung: false, acks })
    }

    #[must_use]
    pub fn consumer_tag(&self) -> &str {
        &self.consumer_tag
    }

    /// Whether a delivery says how often the message was delivered before.
    pub fn counts_deliveries(&self) -> bool {
        self.consumer.subscription.counts_deliveries()
    }

    /// Takes messages from the queue when there are none that wait to be sent; not when the broker stops.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn turn(&mut self, stopping: bool) -> Result<Turn, Refusal> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused);
        }
        let subscription = &self.consumer.subscription;
        // Before it is asked whether it is over, which rings, too.
        self.rung |= subscription.signal().heard().now_or_never().is_some();
        if let Some(reason) = subscription.signal().cancelled() {
            return Ok(Turn::Cancelled(reason.to_owned()));
        }
        if let Some(limit_ms) = self.overdue().await? {
            return Ok(Turn::TimedOut(limit_ms));
        }
        let (shard, subscription) = (self.consumer.shard(), &self.consumer.subscription);
        let looks = self.pending.is_empty() && (self.looks || self.rung) && !stopping;
        let wants = looks || !self.pending.is_empty();
        let pause = if self.keeps() && wants { self.allowance.delivery_pause() } else { None };
        if looks && pause.is_none() {
            let mut filled = Vec::new();
            let taken = when_free(shard, || subscription.fill(FILL_MAX, &mut filled)).await;
            if let (Err(EngineError::NoQueue(..)), Some(reason)) = (&taken, subscription.signal().cancelled()) {
                return Ok(Turn::Cancelled(reason.to_owned()));
            }
            taken?;
            (self.looks, self.rung) = (!filled.is_empty(), false);
            self.pending.extend(filled);
        } else if looks {
            self.looks = true;
            if std::mem::take(&mut self.rung) {
                when_free(shard, || subscription.pass_on()).await;
            }
        }
        Ok(if self.pending.is_empty() || pause.is_some() { Turn::Wait(pause) } else { Turn::Send })
    }

    /// Notes that its ring named it: its next turn looks for messages.
    pub fn ring(&mut self) {
        self.rung = true;
    }

    /// How many messages wait to be sent that may go together.
    #[must_use]
    pub fn next_count(&self) -> usize {
        self.pending.next_count()
    }

    /// Hands `take` the messages that wait, while it says that it has room for more; false when nothing could be read. What was
    /// handed over counts as delivered.
    ///
    /// # Errors
    /// What `take` gives, and what ends the session.
    pub async fn send(
        &mut self,
        take: &mut (impl FnMut(&MessageView<'_>, Picked) -> Result<Room, Refusal> + Send),
    ) -> Result<bool, Refusal> {
        let is_sent = self.pending.send(&mut &self.consumer.subscription, take).await?;
        if is_sent && self.keeps() {
            self.allowance.delivered(self.pending.sent_bytes());
            if let (Some(limit), Some(acks)) = (self.ack_limit(), &mut self.acks) {
                acks.sent(Instant::now(), limit, self.pending.sent_ranges());
                if acks.is_long() {
                    let subscription = &self.consumer.subscription;
                    when_free(subscription.shard(), || acks.compare(|ranges| subscription.held_in(ranges))).await?;
                }
            }
        }
        Ok(is_sent)
    }

    /// When a message may have been unacked for too long.
    #[must_use]
    pub fn overdue_at(&self) -> Option<Instant> {
        self.acks.as_ref().and_then(|acks| acks.due_at(self.ack_limit()?))
    }

    /// The limit of the time until a message is settled, in milliseconds, when one was unacked for longer.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn overdue(&mut self) -> Result<Option<u64>, Refusal> {
        let subscription = &self.consumer.subscription;
        let Some(limit) = self.ack_limit() else {
            self.acks = None;
            return Ok(None);
        };
        if self.acks.is_none() {
            // The time of messages that it got without a limit begins now.
            let delivered = when_free(subscription.shard(), || subscription.delivered()).await?;
            self.acks.get_or_insert_default().sent(Instant::now(), limit, delivered);
        }
        while let Some(due) = self.acks.as_mut().and_then(|acks| acks.take_due(Instant::now(), limit)) {
            let held = when_free(subscription.shard(), || subscription.held_in(&due)).await?;
            if !held.is_empty() {
                return Ok(subscription.ack_timeout_ms());
            }
        }
        Ok(None)
    }

    fn ack_limit(&self) -> Option<Duration> {
        self.consumer.subscription.ack_timeout_ms().map(Duration::from_millis)
    }

    /// Waits until it has a turn again: it is told of messages, or of its end, or a pause is over.
    ///
    /// # Errors
    /// When it may not go on.
    pub async fn until_turn(&mut self, pause: Option<Duration>) -> Result<(), Refusal> {
        let overdue_at = self.overdue_at();
        tokio::select! {
            biased;
            () = self.consumer.subscription.signal().heard() => self.rung = true,
            refused = self.rights.until_refused() => return Err(refused),
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => {}
        }
        Ok(())
    }

    /// Settles what it holds of the given ranges; returns how many messages that were.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn settle(&mut self, ranges: &[SequenceRange], how: Settle) -> Result<u64, Refusal> {
        self.looks = true;
        let (count, bytes) = settle(&self.consumer.subscription, ranges, how).await?;
        self.note_settled(ranges, how, bytes);
        Ok(count)
    }

    /// The subscription whose messages it has.
    pub(crate) fn subscription(&self) -> &Subscription {
        &self.consumer.subscription
    }

    /// Notes that a transaction settled what it held of these ranges, which had so many bytes.
    pub(crate) fn note_settled(&mut self, ranges: &[SequenceRange], how: Settle, bytes: u64) {
        self.looks = true;
        if how.is_requeue() {
            self.acks.iter_mut().for_each(|acks| acks.returned(ranges));
        }
        self.allowance.settled(bytes);
    }

    /// Bounds what it may hold from now on.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn set_prefetch(&mut self, prefetch: u32) -> Result<(), Refusal> {
        self.looks = true;
        let (prefetch, subscription) = (prefetch.min(PREFETCH_MAX), &self.consumer.subscription);
        when_free(self.consumer.shard(), || subscription.set_prefetch(prefetch)).await?;
        self.consumer.calls.listing().note_prefetch(self.consumer.listed, prefetch);
        Ok(())
    }

    /// Takes no more messages from the queue until it is resumed. What was sent can still be settled, and the rest returns.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn pause(&mut self) -> Result<(), Refusal> {
        let unsent = std::mem::take(&mut self.pending).ranges();
        let subscription = &self.consumer.subscription;
        when_free(self.consumer.shard(), || {
            subscription.pause()?;
            subscription.put_back(&unsent)
        })
        .await?;
        Ok(())
    }

    /// Takes messages again.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn resume(&mut self) -> Result<(), Refusal> {
        self.looks = true;
        let subscription = &self.consumer.subscription;
        Ok(when_free(self.consumer.shard(), || subscription.resume()).await?)
    }

    /// Counts no more as a consumer of its queue, and lets another one be active. What was sent can still be settled.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn retire(&mut self) -> Result<(), Refusal> {
        let unsent = std::mem::take(&mut self.pending).ranges();
        let consumer = &self.consumer;
        Ok(when_free(consumer.shard(), || consumer.retire(&unsent)).await?)
    }

    /// How many messages it holds.
    pub async fn unacked_count(&self) -> u32 {
        when_free(self.consumer.shard(), || self.consumer.subscription.unacked_count()).await
    }

    /// Ends the session: whoever is told of it afterwards finds what it held in the queue.
    pub async fn leave(&self) {
        when_free(self.consumer.shard(), || self.consumer.leave()).await;
    }

    /// Whether it was cancelled because another broker leads, where its client can go on.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.shard().is_deposed()
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        self.consumer.subscription.shard()
    }

    /// Whether its messages wait to be settled.
    fn keeps(&self) -> bool {
        !self.consumer.subscription.is_auto_ack()
    }
}

/// Settles what a subscription holds of the given ranges; gives how many messages that were, and their bytes. Other streams
/// have their turn between two parts; whoever stops waiting leaves the rest unacked.
pub(crate) async fn settle(
    subscription: &Subscription,
    ranges: &[SequenceRange],
    how: Settle,
) -> Result<(u64, u64), Refusal> {
    let (mut count, mut bytes) = (0, 0);
    let mut settling = Settling::of(ranges);
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
    use penstock_engine::{
        Engine, EngineOptions, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, SubscriptionOptions,
    };

    use super::settle;

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
        let all = [SequenceRange { first: Sequence(1), last: Sequence(u64::MAX) }];

        let mut settling = std::pin::pin!(settle(&subscription, &all, Settle::Ack));
        assert!(settling.as_mut().now_or_never().is_none(), "it went in one part");
        let left = subscription.unacked_count();
        assert!((1..COUNT).contains(&left), "{left} are left");

        assert_eq!(settling.await.unwrap().0, u64::from(COUNT));
        assert_eq!(subscription.unacked_count(), 0);
        engine.close().unwrap();
    }
}
