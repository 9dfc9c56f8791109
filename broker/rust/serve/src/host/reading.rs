//! A consumer of a stream for protocols with acknowledgements: a reader that sends as many messages as its prefetch allows.
//!
//! What must stay true: no more messages are on their way or unsettled than the prefetch. Settling makes room for others and
//! changes nothing in the stream, however it is done. Messages that the filter does not let through cost no credit.

use std::sync::Arc;

use futures_util::FutureExt;
use penstock_engine::{
    MessageView, Picked, Progress, QueueId, ReadFrom, ReadSettings, SequenceRange, Shard, StreamReader,
};

use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::Calls;
use crate::host::consuming::{ConsumeOptions, Entry, PREFETCH_MAX, Turn};
use crate::host::deliveries::{Pending, Room};
use crate::host::listing::OpenConsumer;
use crate::host::refusal::Refusal;
use crate::host::rights::Rights;
use crate::host::ring::Ring;
use crate::host::stalls::{Later, soon, when_free};

/// Messages found under one hold of the shard's lock.
const FILL_MAX: u32 = 1024;

/// See the module.
pub(crate) struct Reading {
    reader: Later<StreamReader>,
    rights: Rights,
    pending: Pending,
    prefetch: u32,
    unsettled_count: u32,
    /// Whether it is to look for messages: not after it found none, until something happens.
    looks: bool,
    calls: Arc<Calls>,
    /// Its number among the open consumers.
    listed: u64,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.calls.listing().left(self.listed);
    }
}

impl Reading {
    /// Opens a reader of a stream that the caller was admitted to.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub async fn begin(
        broker: &Broker,
        caller: &Caller,
        wanted: ConsumeOptions<'_>,
        entry: Entry,
        (from, ring, number): (ReadFrom, &Ring, u64),
    ) -> Result<Reading, Refusal> {
        let Entry { admitted, question, shard, .. } = entry;
        let (queue, signal) = (QueueId(admitted.queue_id), ring.signal(number));
        let (home, for_reader) = (Arc::clone(&shard), Arc::clone(&signal));
        // Looking for a time reads records, which may have to come from the disk.
        let opening = tokio::task::spawn_blocking(move || {
            let settings = ReadSettings { from, end: None, group: None, single_active: false };
            home.read_with(queue, settings, for_reader)
        });
        let reader = opening.await.map_err(|_| Refusal::bug("opening a reader failed"))??;
        let reader = Later::new(&shard, reader);
        let place = Arc::downgrade(reader.place());
        let ring = ring.clone();
        let rights = question.watch(&admitted.user, &admitted.vhost, move || {
            place.upgrade().into_iter().for_each(|place| {
                soon(&shard, move || place.leave());
            });
            ring.ring_for(number);
        });
        let prefetch = wanted.prefetch.min(PREFETCH_MAX);
        let calls = Arc::clone(&broker.calls);
        let listed = calls.listing().consumes(OpenConsumer {
            connection: caller.connection,
            user: admitted.user,
            vhost: admitted.vhost,
            queue: wanted.queue.to_text(),
            consumer_tag: wanted.consumer_tag.to_text(),
            prefetch,
            auto_ack: false,
            exclusive: false,
            priority: 0,
            signal,
        });
        let (pending, unsettled_count) = (Pending::default(), 0);
        Ok(Reading { reader, rights, pending, prefetch, unsettled_count, looks: true, calls, listed })
    }

    pub fn ring(&mut self) {
        self.looks = true;
    }

    pub fn shard(&self) -> &Arc<Shard> {
        self.reader.shard()
    }

    /// Looks for messages when none wait to be sent; not when the broker stops.
    ///
    /// # Errors
    /// What ends the session.
    pub async fn turn(&mut self, stopping: bool) -> Result<Turn, Refusal> {
        if let Some(refused) = self.rights.refused() {
            return Err(refused);
        }
        self.looks |= self.reader.signal().heard().now_or_never().is_some();
        if let Some(reason) = self.reader.signal().cancelled() {
            return Ok(Turn::Cancelled(reason.to_owned()));
        }
        if self.pending.is_empty() && self.looks && self.credit() > 0 && !stopping {
            let (mut filled, shard) = (Vec::new(), Arc::clone(self.reader.shard()));
            let progress = when_free(&shard, || self.reader.fill(FILL_MAX, &mut filled)).await?;
            self.looks = progress == Progress::Found;
            self.pending.extend(filled);
        }
        Ok(if self.pending.is_empty() || self.credit() == 0 { Turn::Wait(None) } else { Turn::Send })
    }

    /// Hands `take` messages that pass the filter, while there is credit and it says that it has room for more.
    ///
    /// # Errors
    /// What `take` gives, and what ends the session.
    pub async fn send(
        &mut self,
        passes: &(impl Fn(&MessageView<'_>) -> bool + Sync),
        take: &mut (impl FnMut(&MessageView<'_>, Picked) -> Result<Room, Refusal> + Send),
    ) -> Result<(), Refusal> {
        let (unsettled_count, prefetch) = (&mut self.unsettled_count, self.prefetch);
        let mut filtered = |view: &MessageView<'_>, picked: Picked| {
            if !passes(view) {
                return Ok(Room::ForMore);
            }
            if *unsettled_count >= prefetch {
                return Ok(Room::NotForThis);
            }
            let room = take(view, picked)?;
            *unsettled_count += u32::from(room != Room::NotForThis);
            Ok(room)
        };
        self.pending.send(&mut self.reader, &mut filtered).await.map(drop)
    }

    /// Makes room for as many messages as were settled.
    pub fn settle(&mut self, ranges: &[SequenceRange]) {
        let count: u64 = ranges.iter().map(SequenceRange::count).sum();
        self.unsettled_count = self.unsettled_count.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        self.looks = true;
    }

    fn credit(&self) -> u32 {
        self.prefetch.saturating_sub(self.unsettled_count)
    }
}
