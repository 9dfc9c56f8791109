//! From places in segments to messages that can be read: what was taken waits here until its client has room for it.
//!
//! What must stay true: messages go in the order in which they were found, none is read before its pages are in memory, one
//! that cannot be read is dropped before anything behind it is sent, and none is sent before or after its time. How a message is encoded the protocol knows.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_engine::{
    EngineError, Filled, Freshness, LogError, MessageView, Moment, Picked, QueueId, Segment, Sequence, SequenceRange,
    Shard, StreamReader, Subscription, target_of,
};

use crate::host::refusal::Refusal;
use crate::host::stalls::{Later, when_free_of};

/// The pages of a segment are looked after this many bytes at a time.
const CHUNK_BYTES: u32 = 1 << 20;

/// Whoever found the messages and has to know what became of them.
pub(crate) trait Recipient {
    fn queue(&self) -> QueueId;

    /// Whose lock it takes; `None` if it takes none.
    fn shard(&self) -> Option<Arc<Shard>>;

    /// Says how large the messages were that went out.
    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError>;

    /// Which messages may be sent now.
    fn freshness(&self) -> Freshness {
        Freshness::ANY
    }

    /// Says how large the messages were that may not be sent any more.
    fn expire(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        let _ = sizes;
        Ok(())
    }

    /// Says which messages may not be sent yet, and when they may.
    fn put_aside(&mut self, early: &[(Sequence, u64)]) -> Result<(), EngineError> {
        let _ = early;
        Ok(())
    }

    /// Drops a message that cannot be read; says whether what was found behind it is to be found again.
    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError>;
}

impl Recipient for &Subscription {
    fn queue(&self) -> QueueId {
        Subscription::queue(self)
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Arc::clone(Subscription::shard(self)))
    }

    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        Subscription::sent(self, sizes)
    }

    fn freshness(&self) -> Freshness {
        Subscription::freshness(self)
    }

    fn expire(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        Subscription::expire(self, sizes)
    }

    fn put_aside(&mut self, early: &[(Sequence, u64)]) -> Result<(), EngineError> {
        Subscription::put_aside(self, early)
    }

    /// What it holds stays with it.
    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError> {
        Subscription::drop_corrupt(self, sequence, error).map(|()| false)
    }
}

impl Recipient for Later<StreamReader> {
    fn queue(&self) -> QueueId {
        StreamReader::queue(self)
    }

    fn shard(&self) -> Option<Arc<Shard>> {
        Some(Arc::clone(Later::shard(self)))
    }

    fn sent(&mut self, sizes: &[(Sequence, u32)]) -> Result<(), EngineError> {
        StreamReader::sent(self, sizes);
        Ok(())
    }

    fn drop_corrupt(&mut self, sequence: Sequence, error: &LogError) -> Result<bool, EngineError> {
        StreamReader::drop_corrupt(self, sequence, error).map(|()| true)
    }
}

/// What is left of a response when it was handed a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    ForMore,
    /// This message was the last one.
    Full,
    /// This message does not fit; it stays pending.
    NotForThis,
}

/// Messages that were found and not yet sent, in order.
#[derive(Default)]
pub(crate) struct Pending {
    runs: VecDeque<Run>,
    sizes: Vec<(Sequence, u32)>,
    /// Messages whose time is over.
    stale: Vec<(Sequence, u32)>,
    /// Messages whose time has not come, with that time.
    early: Vec<(Sequence, u64)>,
    /// A message that cannot be read: it is dropped before anything behind it is sent.
    corrupt: Option<(Sequence, LogError)>,
}

struct Run {
    segment: Arc<Segment>,
    picked: std::vec::IntoIter<Picked>,
    /// How many of the next ones can be read at once.
    warm_count: usize,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn extend(&mut self, filled: Vec<Filled>) {
        for Filled { segment, picked } in filled {
            self.runs.push_back(Run { segment, picked: picked.into_iter(), warm_count: 0 });
        }
    }

    /// Hands `take` the next messages, while it says that it has room for more, and tells the recipient what went out; false when
    /// nothing of it could be read.
    pub async fn send(
        &mut self,
        recipient: &mut (impl Recipient + Send),
        take: &mut (impl FnMut(&MessageView<'_>, Picked) -> Result<Room, Refusal> + Send),
    ) -> Result<bool, Refusal> {
        self.begin();
        self.warm().await?;
        self.push((recipient.queue(), recipient.freshness()), take)?;
        self.report(recipient).await?;
        Ok(!self.sizes.is_empty())
    }

    /// Begins another response.
    pub fn begin(&mut self) {
        self.sizes.clear();
    }

    /// Tells the recipient what the response holds, and what cannot be read.
    pub async fn report(&mut self, recipient: &mut (impl Recipient + Send)) -> Result<(), Refusal> {
        when_free_of(recipient.shard(), || self.tell(recipient)).await
    }

    /// How many of the next messages may be sent together.
    pub fn next_count(&self) -> usize {
        self.runs.front().map_or(0, |run| run.picked.as_slice().len())
    }

    /// How many are pending.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|run| run.picked.as_slice().len()).sum()
    }

    /// The bytes of the bodies in the last response.
    pub fn sent_bytes(&self) -> u64 {
        self.sizes.iter().map(|(_, size)| u64::from(*size)).sum()
    }

    /// What the last response holds.
    pub fn sent_ranges(&self) -> Vec<SequenceRange> {
        let mut ranges = Vec::new();
        self.sizes.iter().for_each(|(sequence, _)| add_to(&mut ranges, *sequence));
        ranges
    }

    /// All that is pending.
    pub fn ranges(&self) -> Vec<SequenceRange> {
        let mut ranges = Vec::new();
        let picked = self.runs.iter().flat_map(|run| run.picked.as_slice());
        picked.for_each(|picked| add_to(&mut ranges, picked.taken.sequence));
        ranges
    }

    /// Leaves so many messages pending and gives those behind them.
    pub fn split_off(&mut self, mut kept: usize) -> Vec<SequenceRange> {
        let mut ranges = Vec::new();
        for run in &mut self.runs {
            let count = run.picked.as_slice().len();
            let rest: Vec<Picked> = run.picked.as_slice().iter().skip(kept).copied().collect();
            rest.iter().for_each(|picked| add_to(&mut ranges, picked.taken.sequence));
            let first: Vec<Picked> = run.picked.by_ref().take(kept).collect();
            run.warm_count = run.warm_count.min(first.len());
            run.picked = first.into_iter();
            kept = kept.saturating_sub(count);
        }
        self.runs.retain(|run| !run.picked.as_slice().is_empty());
        ranges
    }

    /// Tells the recipient what went out and what cannot be sent.
    fn tell(&mut self, recipient: &mut impl Recipient) -> Result<(), Refusal> {
        self.drop_unsent(recipient)?;
        if self.sizes.is_empty() {
            return Ok(());
        }
        Ok(recipient.sent(&self.sizes)?)
    }

    pub async fn drop_unsent_in_turn(&mut self, recipient: &mut (impl Recipient + Send)) -> Result<(), Refusal> {
        if self.corrupt.is_none() && self.stale.is_empty() && self.early.is_empty() {
            return Ok(());
        }
        when_free_of(recipient.shard(), || self.drop_unsent(recipient)).await
    }

    /// Drops the message that cannot be read and those whose time is over, and returns those whose time has not come.
    fn drop_unsent(&mut self, recipient: &mut impl Recipient) -> Result<(), Refusal> {
        if !self.stale.is_empty() {
            let stale = std::mem::take(&mut self.stale);
            recipient.expire(&stale)?;
        }
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            recipient.put_aside(&early)?;
        }
        let Some((sequence, error)) = self.corrupt.take() else { return Ok(()) };
        if recipient.drop_corrupt(sequence, &error)? {
            self.runs.clear();
        }
        Ok(())
    }

    /// Hands over the messages of the first run that can be read at once, while `take` says that it has room for more.
    pub fn push(
        &mut self,
        (queue, freshness): (QueueId, Freshness),
        take: &mut impl FnMut(&MessageView<'_>, Picked) -> Result<Room, Refusal>,
    ) -> Result<(), Refusal> {
        let Some(run) = self.runs.front_mut() else { return Ok(()) };
        while run.warm_count > 0 {
            let Some(&picked) = run.picked.as_slice().first() else { break };
            let found = run.segment.message_for(picked.offset, target_of(queue, picked.taken.sequence));
            let size = |view: &MessageView<'_>| u32::try_from(view.body.len()).unwrap_or(u32::MAX);
            let room = match found {
                Ok(view) => match freshness.moment(&view) {
                    Moment::Now => {
                        let room = take(&view, picked)?;
                        if room == Room::NotForThis {
                            break;
                        }
                        self.sizes.push((picked.taken.sequence, size(&view)));
                        room
                    }
                    Moment::Later(due_at_ms) => {
                        self.early.push((picked.taken.sequence, due_at_ms));
                        Room::ForMore
                    }
                    Moment::Never => {
                        self.stale.push((picked.taken.sequence, size(&view)));
                        Room::ForMore
                    }
                },
                Err(error @ LogError::Corrupt { .. }) => {
                    self.corrupt = Some((picked.taken.sequence, error));
                    Room::Full
                }
                Err(error) => return Err(EngineError::Log(error).into()),
            };
            run.picked.next();
            run.warm_count -= 1;
            if room == Room::Full {
                break;
            }
        }
        if run.picked.as_slice().is_empty() {
            self.runs.pop_front();
        }
        Ok(())
    }

    /// Makes sure that the next messages can be read without waiting for the disk, so that a cold read never blocks other
    /// streams and a bad sector is an error.
    pub async fn warm(&mut self) -> Result<(), Refusal> {
        let Some(chunk) = self.cold_chunk() else { return Ok(()) };
        if chunk.is_resident() || bring_in(&chunk.segment, chunk.from, chunk.last).await?.is_ok() {
            self.warmed(chunk.count);
            return Ok(());
        }
        // Somewhere in there are sectors that cannot be read: one message at a time, and those they lie in are dropped.
        let populated = bring_in(&chunk.segment, chunk.from, chunk.from).await?;
        self.warmed_one(populated);
        Ok(())
    }

    /// The next messages for which nobody has looked whether they can be read. Pages of a segment that is written to may have
    /// been evicted too.
    fn cold_chunk(&mut self) -> Option<Chunk> {
        let run = self.runs.front_mut().filter(|run| run.warm_count == 0)?;
        let picked = run.picked.as_slice();
        let from = picked.first()?.offset;
        let limit = from.saturating_add(CHUNK_BYTES);
        let chunk = picked.iter().take_while(|picked| (from..limit).contains(&picked.offset));
        let (count, last) = chunk.fold((0, from), |(count, last), picked| (count + 1, last.max(picked.offset)));
        Some(Chunk { segment: Arc::clone(&run.segment), from, last, count })
    }

    fn warmed(&mut self, count: usize) {
        self.runs.iter_mut().take(1).for_each(|run| run.warm_count = count);
    }

    fn warmed_one(&mut self, populated: Result<(), LogError>) {
        match populated {
            Ok(()) => self.warmed(1),
            Err(error) => {
                let picked = self.runs.front_mut().and_then(|run| run.picked.next());
                self.corrupt = picked.map(|picked| (picked.taken.sequence, error));
            }
        }
    }
}

/// For threads that may block.
#[cfg(feature = "flight")]
impl Pending {
    /// Hands the next messages to `take`, while it says that it has room for more, and tells the recipient.
    pub fn take_here(
        &mut self,
        recipient: &mut impl Recipient,
        take: &mut impl FnMut(&MessageView<'_>, Picked) -> bool,
    ) -> Result<(), Refusal> {
        self.warm_here()?;
        self.sizes.clear();
        let mut take = |view: &MessageView<'_>, picked| if take(view, picked) { Room::ForMore } else { Room::Full };
        let from = (recipient.queue(), recipient.freshness());
        self.push(from, &mut |view, picked| Ok(take(view, picked)))?;
        self.tell(recipient)
    }

    fn warm_here(&mut self) -> Result<(), Refusal> {
        let Some(chunk) = self.cold_chunk() else { return Ok(()) };
        if chunk.is_resident() || populate(&chunk.segment, chunk.from, chunk.last)?.is_ok() {
            self.warmed(chunk.count);
            return Ok(());
        }
        let populated = populate(&chunk.segment, chunk.from, chunk.from)?;
        self.warmed_one(populated);
        Ok(())
    }
}

/// So many messages of a segment, from one offset to another.
struct Chunk {
    segment: Arc<Segment>,
    from: u32,
    last: u32,
    count: usize,
}

impl Chunk {
    fn is_resident(&self) -> bool {
        self.segment.is_resident(self.from, self.last)
    }
}

/// Brings in pages on a thread that may block.
async fn bring_in(segment: &Arc<Segment>, from: u32, to: u32) -> Result<Result<(), LogError>, Refusal> {
    let segment = Arc::clone(segment);
    let populated = tokio::task::spawn_blocking(move || populate(&segment, from, to)).await;
    populated.map_err(|_| Refusal::bug("reading a segment failed"))?
}

/// The inner error says that the pages cannot be read.
fn populate(segment: &Segment, from: u32, to: u32) -> Result<Result<(), LogError>, Refusal> {
    match segment.populate(from, to) {
        Err(error) if !matches!(error, LogError::Corrupt { .. }) => Err(EngineError::Log(error).into()),
        populated => Ok(populated),
    }
}

fn add_to(ranges: &mut Vec<SequenceRange>, sequence: Sequence) {
    match ranges.last_mut() {
        Some(last) if last.last.next() == sequence => last.last = sequence,
        _ => ranges.push(SequenceRange { first: sequence, last: sequence }),
    }
}
