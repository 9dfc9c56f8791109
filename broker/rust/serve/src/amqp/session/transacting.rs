//! Transactions of channels: messages and settlements are kept until the client commits them, and are applied together then.
//!
//! What must stay true: nothing of a transaction is visible before it is committed, or after it was refused, which closes its
//! channel. The client hears of a commit once all its messages have the durability that their confirms would wait for.

use penstock_wire::Name;
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::reply::Exception;

use super::Session;
use crate::amqp::publisher::Answers;

impl Session {
    /// Makes what comes on a channel from now on part of transactions.
    pub(super) async fn begin_transactions(&mut self, number: u16) -> Result<(), Exception> {
        self.store(number).await?;
        // Messages from before are no part of it. While so many wait for the disk, the rest of them is not stored.
        while let Some(places) = self.channels.get(&number).and_then(|open| {
            let is_left = open.channel.assembly().complete_count() > 0;
            open.publisher.oldest_waiting().filter(|_| is_left && !open.is_transactional)
        }) {
            if places.wait().await.is_err() {
                // The connection ends for that.
                break;
            }
            self.tell_synced().await;
            self.store(number).await?;
        }
        self.unstored.retain(|unstored| *unstored != number);
        let Some(open) = self.channels.get_mut(&number) else { return Ok(()) };
        open.is_transactional = true;
        self.consumers.begin_transactions(number);
        Method::TxSelectOk {}.put(number, &mut self.out);
        Ok(())
    }

    /// Applies the transaction of a channel, now or when there is space for it.
    pub(super) async fn commit(&mut self, number: u16) -> Result<(), Exception> {
        let Some(open) = self.channels.get(&number) else { return Ok(()) };
        let assembly = open.channel.assembly();
        let (held_bytes, may_return, is_empty) =
            (assembly.held_bytes(), assembly.mandatory_bytes(), assembly.complete_count() == 0);
        if !is_empty && !self.may_store(may_return) {
            self.commit_waits = Some(number);
            return Ok(());
        }
        self.consumers.settle().await;
        let transacted = self.consumers.take_transaction(number);
        let Some(open) = self.channels.get_mut(&number) else { return Ok(()) };
        let frame_bytes_max = self.connection.limits().frame_bytes_max;
        let answers = Answers { channel: number, frame_bytes_max, out: &mut self.out };
        let place = (&self.broker, &self.caller, Name::cut(&self.vhost));
        let settlements = self.consumers.settlements(&transacted);
        let settled = open.publisher.commit(place, open.channel.assembly_mut(), &settlements, answers).await?;
        self.held_bytes = self.held_bytes + open.channel.assembly().held_bytes() - held_bytes;
        if may_return > 0 {
            self.count_unwritten();
        }
        self.consumers.note_committed(transacted, settled).await;
        self.note_waiting(number);
        self.paused = self.pause_of(number).or(self.paused);
        Ok(())
    }

    /// Goes on with a commit that waited.
    pub(super) async fn commit_waiting(&mut self) {
        let Some(number) = self.commit_waits.take() else { return };
        if let Err(exception) = self.commit(number).await {
            self.fail_channel(number, exception).await;
        }
    }

    /// Forgets the messages of a channel's transaction, and makes unacked again what it has settled.
    pub(super) fn roll_back(&mut self, number: u16) {
        let Some(open) = self.channels.get_mut(&number) else { return };
        let assembly = open.channel.assembly_mut();
        let before = assembly.held_bytes();
        assembly.advance(assembly.complete_count());
        self.held_bytes = self.held_bytes + assembly.held_bytes() - before;
        self.consumers.roll_back(number);
        Method::TxRollbackOk {}.put(number, &mut self.out);
    }
}
