//! Messages that a client gets one at a time, without a consumer. What it got stays with it until it is settled, or this is dropped.

use penstock_engine::{MessageView, Picked, QueueId, SequenceRange, Settle, Subscription, SubscriptionOptions};

use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest};
use crate::host::deliveries::{Pending, Room};
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::{Question, Rights};
use crate::host::stalls::{Later, when_free};

/// See the module. It is of one queue.
pub(crate) struct Getting {
    subscription: Later<Subscription>,
    rights: Rights,
    pending: Pending,
    /// How many were ready when the message that is pending was taken.
    ready_count: u64,
    allowance: Allowance,
}

/// What became of a wish for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Message,
    Nothing,
    /// There is one, and no room for it now; it is the next.
    NoRoom,
}

impl Getting {
    /// Asks whether the caller may get messages of a queue.
    ///
    /// # Errors
    /// Why the caller may not.
    pub async fn open(broker: &Broker, caller: &Caller, vhost: &str, queue: &str) -> Result<Getting, Refusal> {
        let call = Call::new(CallRequest::OpenGet { vhost: vhost.to_owned(), queue: queue.to_owned() }, caller);
        let question = Question::of(&broker.calls, &call);
        let admitted = broker.calls.admit(call).await?;
        let (shard, allowance) = broker.enter(&admitted)?;
        let queue_id = QueueId(admitted.queue_id);
        let home = shard.home_of(queue_id);
        let options = SubscriptionOptions { prefetch: 0, auto_ack: false, exclusive: false, pull: true };
        let subscription = when_free(&home, || home.subscribe(queue_id, options)).await?;
        let rights = question.watch(&admitted.user, &admitted.vhost, || ());
        let (subscription, pending) = (Later::new(&home, subscription), Pending::default());
        Ok(Getting { subscription, rights, pending, ready_count: 0, allowance })
    }

    /// Hands the next message to `take`, with the number of those that stay ready, unless it says that there is no room for it.
    ///
    /// # Errors
    /// When the caller may not get messages any more, or the queue is gone.
    pub async fn get(
        &mut self,
        mut take: impl FnMut(&MessageView<'_>, Picked, u64) -> Room + Send,
    ) -> Result<Got, Refusal> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused);
        }
        loop {
            let subscription = &self.subscription;
            if self.pending.is_empty() {
                let mut filled = Vec::new();
                let taken = when_free(subscription.shard(), || subscription.take_now(1, &mut filled)).await;
                self.ready_count = taken?;
                if filled.is_empty() {
                    return Ok(Got::Nothing);
                }
                self.pending.extend(filled);
            }
            let (ready_count, mut has_room) = (self.ready_count, true);
            let (mut recipient, mut hand_over) = (&**subscription, |view: &MessageView<'_>, picked: Picked| {
                let room = take(view, picked, ready_count);
                has_room = room != Room::NotForThis;
                Ok(if has_room { Room::Full } else { room })
            });
            if self.pending.send(&mut recipient, &mut hand_over).await? {
                self.allowance.delivered(self.pending.sent_bytes());
                return Ok(Got::Message);
            }
            if !has_room {
                return Ok(Got::NoRoom);
            }
            // Its time was over, or it cannot be read.
        }
    }

    /// Whether a delivery says how often the message was delivered before.
    pub fn counts_deliveries(&self) -> bool {
        self.subscription.counts_deliveries()
    }

    /// The subscription whose messages it has.
    pub fn subscription(&self) -> &Subscription {
        &self.subscription
    }

    /// Notes that a transaction settled messages of so many bytes.
    pub fn note_settled(&mut self, bytes: u64) {
        self.allowance.settled(bytes);
    }

    /// Settles what it holds of the given ranges.
    ///
    /// # Errors
    /// When nothing can be settled any more.
    pub async fn settle(&mut self, ranges: &[SequenceRange], how: Settle) -> Result<(), Refusal> {
        let (_, bytes) = crate::host::consuming::settle(&self.subscription, ranges, how).await?;
        self.allowance.settled(bytes);
        Ok(())
    }
}
