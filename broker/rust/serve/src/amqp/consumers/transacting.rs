//! What transactions of channels settle: kept until the commit, and then settled together with the messages that they publish.

use penstock_engine::{Sequence, SequenceRange, Settle, Subscription, TransactionSettlement};
use penstock_wire::amqp::method::MethodId;
use penstock_wire::amqp::reply::Exception;
use penstock_wire::amqp::unacked::Delivery;

use super::{Consumers, Session};

/// Messages of one consumer that a transaction settles in one way.
pub(in crate::amqp) struct Transacted {
    consumer: u64,
    how: Settle,
    /// Ascending.
    ranges: Vec<SequenceRange>,
}

impl Consumers {
    /// Makes settlements of a channel part of transactions from now on.
    pub fn begin_transactions(&mut self, channel: u16) {
        self.transactions.entry(channel).or_default();
    }

    /// Notes what a client settles: at once, or as part of its transaction.
    ///
    /// # Errors
    /// When it does not hold the tag, or these are too many for a transaction.
    pub fn note_answer(
        &mut self,
        channel: u16,
        tags: (u64, bool),
        how: Settle,
        method: MethodId,
    ) -> Result<(), Exception> {
        let Some(transaction) = self.transactions.get_mut(&channel) else {
            return self.note_settled(channel, tags, how, method);
        };
        transaction.settle(self.unacked.entry(channel).or_default(), tags, how, method)
    }

    /// Makes unacked again what the transaction of a channel has settled.
    pub fn roll_back(&mut self, channel: u16) {
        if let Some(transaction) = self.transactions.get_mut(&channel) {
            transaction.roll_back(self.unacked.entry(channel).or_default());
        }
    }

    /// Takes what the transaction of a channel settles.
    pub fn take_transaction(&mut self, channel: u16) -> Vec<Transacted> {
        let mut all: Vec<Transacted> = Vec::new();
        let settled = self.transactions.get_mut(&channel).map(|transaction| transaction.commit());
        for (Delivery { consumer, sequence }, how) in settled.into_iter().flatten() {
            let range = SequenceRange::of(Sequence(sequence));
            match all.iter_mut().rfind(|one| one.consumer == consumer && one.how == how) {
                Some(one) => one.ranges.push(range),
                None => all.push(Transacted { consumer, how, ranges: vec![range] }),
            }
        }
        for one in &mut all {
            one.ranges.sort_unstable_by_key(|range| range.first);
            one.ranges.dedup_by(|next, before| {
                let follows = before.last.next() == next.first && before.last.lane() == next.first.lane();
                if follows {
                    before.last = next.last;
                }
                follows
            });
        }
        // A consumer that is gone has returned its messages, or its queue is gone.
        all.retain(|one| self.open.contains_key(&one.consumer) || self.gets.contains_key(&one.consumer));
        all
    }

    /// The settlements of queues among these, in their order.
    pub fn settlements<'a>(&'a self, all: &'a [Transacted]) -> Vec<TransactionSettlement<'a>> {
        let of = |one: &'a Transacted| {
            let subscription = self.subscription_of(one.consumer)?;
            Some(TransactionSettlement { subscription, ranges: &one.ranges, how: one.how })
        };
        all.iter().filter_map(of).collect()
    }

    fn subscription_of(&self, consumer: u64) -> Option<&Subscription> {
        if let Some(get) = self.gets.get(&consumer) {
            return Some(get.session.subscription());
        }
        match &self.open.get(&consumer)?.session {
            Session::Queue(consuming) => Some(consuming.subscription()),
            Session::Stream(..) => None,
        }
    }

    /// Notes that a transaction was applied; `settled` has, of each settlement, how many messages it settled, and their bytes.
    pub async fn note_committed(&mut self, all: Vec<Transacted>, settled: Vec<(u64, u64)>) {
        let mut settled = settled.into_iter();
        for Transacted { consumer: number, how, ranges } in all {
            if let Some(get) = self.gets.get_mut(&number) {
                get.session.note_settled(settled.next().map_or(0, |(_, bytes)| bytes));
                continue;
            }
            let Some(consumer) = self.open.get_mut(&number) else { continue };
            match &mut consumer.session {
                Session::Queue(consuming) => {
                    consuming.note_settled(&ranges, how, settled.next().map_or(0, |(_, bytes)| bytes));
                }
                Session::Stream(reading, _) => reading.settle(&ranges),
            }
            self.go_on(number).await;
        }
    }
}
