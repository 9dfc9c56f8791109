//! A place in a stream that is read, and how the next messages are found in a log: for readers of queues that are open, and of replicas
//! whose queues are closed.
//!
//! Pure: it takes no lock and reads no record. Invariants: what is found ascends without a settled message, never passes the end, and a
//! message that the log does not have where it should is reported, never passed over.

use std::sync::Arc;

use penstock_log::{Located, Log, LogError, Target};
use penstock_queue::{AckSet, QueueId, Sequence, Taken};

use crate::subscription::{Filled, Picked};

/// Start of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// After the last message.
    Next,
    First,
    Last,
    Offset(u64),
    /// The first message stored at that time or later.
    Timestamp(u64),
    LastCount(u64),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cursor {
    pub queue: QueueId,
    /// Where it goes on.
    pub next: Sequence,
    /// It ends before this one.
    pub end: Option<Sequence>,
    /// The number of the segment that it read last.
    hint: u64,
}

/// The result of one search by a cursor.
#[derive(Debug)]
pub enum Found {
    Messages(Filled),
    /// There is nothing more below its end.
    Ended,
    /// It is where the next message will be.
    Nothing,
    /// The log does not have the unsettled messages from `first` on and below `end`. `is_followed` says that it has a later one.
    Absent {
        first: Sequence,
        end: Sequence,
        is_followed: bool,
    },
}

impl Cursor {
    #[must_use]
    pub fn new(queue: QueueId, next: Sequence, end: Option<Sequence>) -> Cursor {
        Cursor { queue, next, end, hint: 0 }
    }

    /// Whether there is nothing more below its end; see [`Cursor::find`].
    #[must_use]
    pub fn is_ended(&self, (settled, next): (&AckSet, Sequence)) -> bool {
        let from = settled.next_unsettled(self.next);
        self.end.is_some_and(|end| from.min(next) >= end || self.next >= end)
    }

    /// Finds the next messages, at most `count_max`, and moves behind them. `settled` are those that are left out, and `next` is the
    /// sequence of the stream's next message.
    ///
    /// # Errors
    /// `Corrupt` or `Io` when the index of a segment cannot be read.
    pub fn find(&mut self, log: &Log, (settled, next): (&AckSet, Sequence), count_max: u32) -> Result<Found, LogError> {
        if self.is_ended((settled, next)) {
            return Ok(Found::Ended);
        }
        let from = settled.next_unsettled(self.next);
        if from >= next {
            return Ok(Found::Nothing);
        }
        let stop = settled.next_settled(from).unwrap_or(next).min(next).min(self.end.unwrap_or(next));
        let count = (stop.0 - from.0).min(u64::from(count_max));
        let located = log.seek(self.queue, from, count as usize, self.hint)?;
        Ok(match located {
            Some(located) if located.first == from => Found::Messages(self.pass(&located)),
            located => Found::Absent {
                first: from,
                end: located.as_ref().map_or(stop, |located| located.first.min(stop)),
                is_followed: located.is_some(),
            },
        })
    }

    fn pass(&mut self, located: &Located) -> Filled {
        let numbered = (located.first.0..).zip(&located.offsets);
        let picked: Vec<Picked> = numbered
            .map(|(number, &offset)| Picked {
                taken: Taken { sequence: Sequence(number), delivery_count: 0, redelivered: false },
                offset,
            })
            .collect();
        self.next = Sequence(located.first.0 + picked.len() as u64);
        self.hint = located.segment.number();
        Filled { segment: Arc::clone(&located.segment), picked }
    }
}

/// The first message of a reader of a stream with these messages settled and this next one. `at_time` is the answer for
/// [`ReadFrom::Timestamp`].
#[must_use]
pub fn start_of(from: ReadFrom, settled: &AckSet, next: Sequence, at_time: Option<u64>) -> Sequence {
    match from {
        ReadFrom::Next => next,
        ReadFrom::First => first_of(settled, next),
        ReadFrom::Last => settled.last_unsettled(next).unwrap_or(next),
        ReadFrom::Offset(offset) => Sequence(offset),
        ReadFrom::Timestamp(_) => Sequence(at_time.unwrap_or(next.0)),
        ReadFrom::LastCount(count) => {
            nth_unsettled(settled, unsettled_count(settled, next).saturating_sub(count), next)
        }
    }
}

/// The first offset of a stream; its next one when it is empty.
#[must_use]
pub fn first_of(settled: &AckSet, next: Sequence) -> Sequence {
    settled.below().min(next)
}

/// The first offset from `low` on and below `high` whose message was stored at a time or later; the next one when all are older. `time_at`
/// returns the first message at or after an offset with its time, and is called once for each halving.
///
/// # Errors
/// Any error that `time_at` returns.
pub fn offset_at<E>(
    (mut low, mut high): (u64, u64),
    timestamp_ms: u64,
    mut time_at: impl FnMut(Sequence) -> Result<Option<(Sequence, u64)>, E>,
) -> Result<u64, E> {
    while low < high {
        let middle = low + (high - low) / 2;
        match time_at(Sequence(middle))? {
            Some((found, time)) if time < timestamp_ms => low = found.0 + 1,
            _ => high = middle,
        }
    }
    // It may be a gap: return the first message after it.
    Ok(time_at(Sequence(low))?.map_or(low, |(found, _)| found.0))
}

/// The first located message, and when it was stored. It reads the record, which may have to come from the disk.
///
/// # Errors
/// When it cannot be read.
pub fn time_of(queue: QueueId, located: &Located) -> Result<(Sequence, u64), LogError> {
    let offset = located.offsets.first().copied().unwrap_or_default();
    located.segment.populate(offset, offset)?;
    let message = located.segment.message_for(offset, Target { queue, sequence: located.first })?;
    Ok((located.first, message.stored_at_ms))
}

/// The unsettled runs below `next`, each with its end.
fn unsettled_runs(settled: &AckSet, next: Sequence) -> impl Iterator<Item = (Sequence, Sequence)> + '_ {
    let mut at = settled.below();
    std::iter::from_fn(move || {
        let from = settled.next_unsettled(at);
        if from >= next {
            return None;
        }
        at = settled.next_settled(from).unwrap_or(next).min(next);
        Some((from, at))
    })
}

fn unsettled_count(settled: &AckSet, next: Sequence) -> u64 {
    unsettled_runs(settled, next).map(|(from, end)| end.0 - from.0).sum()
}

/// The message with this many unsettled ones before it; `next` when there are fewer.
fn nth_unsettled(settled: &AckSet, mut before: u64, next: Sequence) -> Sequence {
    for (from, end) in unsettled_runs(settled, next) {
        if end.0 - from.0 > before {
            return Sequence(from.0 + before);
        }
        before -= end.0 - from.0;
    }
    next
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_queue::SequenceRange;

    use super::*;

    /// 1 to 3 and 6 are settled; 9 is next.
    fn settled() -> AckSet {
        let mut settled = AckSet::starting_at(Sequence(1));
        for (first, last) in [(1, 3), (6, 6)] {
            settled.insert(SequenceRange::new(Sequence(first), Sequence(last)).unwrap());
        }
        settled
    }

    #[test]
    fn a_reader_starts_where_it_asks_to() {
        let start = |from| start_of(from, &settled(), Sequence(9), Some(7)).0;

        assert_eq!([start(ReadFrom::First), start(ReadFrom::Last), start(ReadFrom::Next)], [4, 8, 9]);
        assert_eq!([start(ReadFrom::Offset(2)), start(ReadFrom::Timestamp(1))], [2, 7]);
        let last_counts: Vec<u64> = (0..=5).map(|count| start(ReadFrom::LastCount(count))).collect();
        assert_eq!(last_counts, [9, 8, 7, 5, 4, 4]);
    }

    #[test]
    fn a_stream_without_messages_starts_at_its_next_one() {
        let all = AckSet::starting_at(Sequence(5));

        for from in [ReadFrom::First, ReadFrom::Last, ReadFrom::Next, ReadFrom::LastCount(3)] {
            assert_eq!(start_of(from, &all, Sequence(5), None), Sequence(5), "{from:?}");
        }
        assert_eq!(first_of(&all, Sequence(5)), Sequence(5));
    }

    #[test]
    fn a_time_is_found_behind_a_gap() {
        let stored = [(4, 10), (5, 20), (9, 30)];
        let time_at = |from: Sequence| {
            let found = stored.iter().find(|(sequence, _)| *sequence >= from.0);
            Ok::<_, ()>(found.map(|&(sequence, time)| (Sequence(sequence), time)))
        };
        let at = |time| offset_at((4, 10), time, time_at).unwrap();

        assert_eq!([at(0), at(10), at(11), at(20), at(21), at(30)], [4, 4, 5, 5, 9, 9]);
        assert_eq!(at(31), 10);
    }
}
