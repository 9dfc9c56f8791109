//! The logs that a producer's messages went to, as each log writes them down, and what all of them together say.
//!
//! Invariants: a log that has a message of a producer also has a mark with all logs that earlier messages went to, unless
//! that is one log only. A sequence is complete when it and all before it are stored in every log that they go to. Pure:
//! it knows no shard, and nothing depends on what a log is for.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::log_number::LogNumber;
use penstock_log::Position;

/// Ascending, each once.
pub(crate) type Logs = Arc<[LogNumber]>;

/// What a log knows of a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub highest: u64,
    pub logs: Option<Logs>,
    /// As this log wrote it down.
    pub complete: u64,
}

/// How far a producer's messages are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequences {
    /// All messages up to here are stored, in every log that they go to.
    pub complete: u64,
    /// The highest that any log has. It is above `complete` only where logs may differ.
    pub highest: u64,
}

/// Complete sequences of producers that are certain once these logs are on the disk up to here.
#[derive(Debug, Default)]
pub(crate) struct Noting {
    pub producers: Vec<(NonZeroU64, u64)>,
    pub until: Vec<(LogNumber, Position)>,
}

/// A mark's value: the complete sequence, and the logs.
pub(crate) fn encode(complete: u64, logs: &[LogNumber]) -> Vec<u8> {
    let mut value = complete.to_le_bytes().to_vec();
    logs.iter().for_each(|log| value.extend_from_slice(&log.to_bytes()));
    value
}

/// `None` when the bytes are no such value.
pub(crate) fn decode(value: &[u8]) -> Option<(u64, Logs)> {
    let (numbers, rest) = value.as_chunks();
    let (complete, logs) = numbers.split_first().filter(|_| rest.is_empty())?;
    let logs = logs.iter().map(|number| LogNumber::from_bytes(*number));
    Some((u64::from_le_bytes(*complete), united(&[], logs)))
}

pub(crate) fn united(known: &[LogNumber], others: impl Iterator<Item = LogNumber>) -> Logs {
    let mut all: Vec<_> = known.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// What all logs together know: the set of logs, and the complete sequence. `here` is the knowledge of the vhost's log.
pub(crate) fn joined(here: &Found, elsewhere: &[(LogNumber, Found)]) -> (Option<Logs>, Sequences) {
    let all = || elsewhere.iter().map(|(log, found)| (*log, found)).chain([(LogNumber::VHOST, here)]);
    let is_open = |log: &LogNumber| *log == LogNumber::VHOST || elsewhere.iter().any(|(open, _)| open == log);
    let told = all().filter_map(|(_, found)| found.logs.as_deref()).flatten().copied().filter(is_open);
    let logs = united(&[], all().filter(|(_, found)| found.highest > 0).map(|(log, _)| log).chain(told));
    let highest = all().map(|(_, found)| found.highest).max().unwrap_or_default();
    if logs.iter().all(|log| *log == LogNumber::VHOST) && here.complete == 0 {
        return (None, Sequences { complete: highest, highest });
    }
    let lowest = all().filter(|(log, _)| logs.contains(log)).map(|(_, found)| found.highest).min();
    let complete = here.complete.max(lowest.unwrap_or_default());
    (Some(logs), Sequences { complete, highest: highest.max(complete) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_queue::QueueId;

    use super::*;

    const A: LogNumber = LogNumber::of(QueueId(7));
    const B: LogNumber = LogNumber::of_shard(2);

    fn found(highest: u64, logs: &[LogNumber]) -> Found {
        Found { highest, logs: (!logs.is_empty()).then(|| logs.into()), complete: 0 }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let logs = united(&[], [B, LogNumber::VHOST, A, B].into_iter());

        assert_eq!(decode(&encode(9, &logs)), Some((9, logs)));
        assert_eq!(decode(&[1; 7]), None);
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn all_is_complete_up_to_the_lowest_of_the_logs_that_any_of_them_names() {
        let (logs, sequences) = joined(&found(5, &[]), &[(A, found(9, &[LogNumber::VHOST, A, B])), (B, found(0, &[]))]);

        assert_eq!(logs.as_deref(), Some(&[LogNumber::VHOST, A, B][..]));
        assert_eq!(sequences, Sequences { complete: 0, highest: 9 });
        let (logs, sequences) = joined(&found(0, &[]), &[(A, found(9, &[A, B])), (B, found(7, &[]))]);
        assert_eq!(logs.as_deref(), Some(&[A, B][..]), "the vhost's log has no part in it");
        assert_eq!(sequences, Sequences { complete: 7, highest: 9 });
    }

    #[test]
    fn a_log_that_is_gone_holds_nothing_back() {
        let (_, sequences) = joined(&found(5, &[LogNumber::VHOST, A, B]), &[(A, found(6, &[LogNumber::VHOST, A, B]))]);

        assert_eq!(sequences, Sequences { complete: 5, highest: 6 });
    }

    #[test]
    fn one_log_alone_says_all() {
        assert_eq!(joined(&found(5, &[]), &[(A, found(0, &[]))]), (None, Sequences { complete: 5, highest: 5 }));
        let (logs, sequences) = joined(&found(0, &[]), &[(A, found(3, &[])), (B, found(0, &[]))]);
        assert_eq!((logs.as_deref(), sequences), (Some(&[A][..]), Sequences { complete: 3, highest: 3 }));
    }

    #[test]
    fn what_was_written_as_complete_stays_so() {
        let here = Found { complete: 8, ..found(2, &[LogNumber::VHOST, A]) };

        let (_, sequences) = joined(&here, &[(A, found(9, &[]))]);

        assert_eq!(sequences, Sequences { complete: 8, highest: 9 });
    }
}
