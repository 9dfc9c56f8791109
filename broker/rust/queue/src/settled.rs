//! Outcomes of messages, and settled messages as runs for the log.

use crate::held::Held;
use crate::ids::SequenceRange;

/// Outcome of messages that a consumer settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settle {
    Ack,
    Reject,
    Requeue,
    /// Requeued because the consumer failed on them: it rejected them, or it is gone.
    RequeueFailed,
    /// Requeued messages of which sent ones are not ready before this time, in ms. The machine only passes it on.
    RequeueAt(u64),
    /// The same because the consumer failed on them; the time follows.
    FailedAside,
    /// Neither ready nor settled before the queue says more of them, as dead letters until they are elsewhere.
    Aside,
}

impl Settle {
    /// Whether the consumer returns the messages by its own choice.
    #[must_use]
    pub fn is_return(self) -> bool {
        matches!(self, Settle::Requeue | Settle::RequeueAt(_))
    }

    /// Whether the messages stay in the queue.
    #[must_use]
    pub fn is_requeue(self) -> bool {
        !matches!(self, Settle::Ack | Settle::Reject)
    }
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Settled, or not stored yet.
    Settled,
    Ready,
    /// Not to be delivered yet.
    Delayed,
    /// With a subscription.
    Held,
}

/// Settled messages, as runs for one settle record; `bytes` counts those with a known size. Of requeued messages the
/// runs name only sent ones: they count one delivery more, unless the queue counts failures alone and they were returned; the rest
/// count as never taken. Of messages that were put aside they name all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    pub count: u64,
    pub bytes: u64,
    pub ranges: Vec<SequenceRange>,
}

impl Settled {
    pub(crate) fn add_returned(&mut self, message: Held, how: Settle) {
        self.count += 1;
        self.bytes += u64::from(message.bytes().unwrap_or(0));
        if message.is_sent() || how == Settle::Aside {
            extend(&mut self.ranges, SequenceRange { first: message.sequence, last: message.sequence });
        }
    }
}

/// Appends a run to ascending runs, joined with the last one where it continues it.
pub(crate) fn extend(ranges: &mut Vec<SequenceRange>, range: SequenceRange) {
    match ranges.last_mut() {
        Some(run) if run.last.next() == range.first => run.last = range.last,
        _ => ranges.push(range),
    }
}
