//! The action DescribeStreams as JSON: what is asked, whether an answer is due, and the answer.
//!
//! Limits: 1,000 streams, 1,000 runs of a partition, and 100,000 of an answer; beyond that, runs are joined across the smallest
//! gaps between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use penstock_engine::{StreamOutlook, joined};
use serde::{Deserialize, Serialize};
use tonic::Status;

use super::asks::parse;
use crate::host::calls::{CallRequest, FoundPartition};

const STREAMS_MAX: usize = 1_000;
const WAIT_MS_MAX: u64 = 60_000;
const RUNS_MAX: usize = 1_000;
const RUNS_OF_ALL_MAX: usize = 100_000;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    vhost: String,
    streams: Vec<String>,
    at_timestamp_ms: Option<u64>,
    /// The offset behind the last known message, by partition.
    #[serde(default)]
    ends: BTreeMap<String, u64>,
    #[serde(default)]
    wait_ms: u64,
}

impl Wanted {
    pub fn parse(body: &[u8]) -> Result<Wanted, Status> {
        let wanted: Wanted = parse("the body of the action", body)?;
        let count = wanted.streams.len();
        if count == 0 || count > STREAMS_MAX {
            let text = format!("`streams` has {count} names; name 1 to {STREAMS_MAX} streams");
            return Err(Status::invalid_argument(text));
        }
        if wanted.streams.iter().collect::<BTreeSet<_>>().len() < count {
            return Err(Status::invalid_argument("`streams` names a stream twice; name each once"));
        }
        if wanted.wait_ms > WAIT_MS_MAX {
            return Err(Status::invalid_argument(format!("`wait_ms` is at most {WAIT_MS_MAX}; ask again after that")));
        }
        Ok(wanted)
    }

    pub fn request(&self) -> CallRequest {
        CallRequest::DescribeStreams {
            vhost: self.vhost.clone(),
            streams: self.streams.clone(),
            at_timestamp_ms: self.at_timestamp_ms,
            waits: self.wait_ms > 0,
        }
    }

    /// How long an answer may wait for something new, if it may.
    pub fn wait(&self) -> Option<Duration> {
        (self.wait_ms > 0).then(|| Duration::from_millis(self.wait_ms))
    }

    /// Whether a partition's next offset, or `None` for one that is gone, is new to the client.
    pub fn is_new(&self, partition: &str, next: Option<u64>) -> bool {
        next.is_none() || self.ends.get(partition).copied() != next
    }

    /// Whether an answer that has waited has to be asked for anew.
    pub fn depends_on_time(&self) -> bool {
        self.at_timestamp_ms.is_some()
    }
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Description {
    pub partitions: Vec<Described>,
}

/// A partition of it; see docs/flight.md.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Described {
    stream: String,
    partition: String,
    id: String,
    first: u64,
    next: u64,
    rows: u64,
    bytes: u64,
    runs: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_timestamp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    archive_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_count: Option<u32>,
}

impl Description {
    pub fn to_json(&self) -> Vec<u8> {
        // Text and numbers always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// How many runs each of so many partitions may have.
pub(crate) fn runs_max(partitions: usize) -> usize {
    (RUNS_OF_ALL_MAX / partitions.max(1)).clamp(1, RUNS_MAX)
}

/// Whether the archive was asked about everything that the log does not have.
pub(crate) fn is_covered(found: &FoundPartition, outlook: &StreamOutlook) -> bool {
    found.archived.as_ref().is_none_or(|archived| archived.below >= outlook.first)
}

/// A partition by what the log and the archive have of it.
pub(crate) fn described(found: FoundPartition, outlook: StreamOutlook, runs_max: usize) -> Described {
    let archived = found.archived.unwrap_or_default();
    let mut runs: Vec<(u64, u64)> = Vec::with_capacity(archived.runs.len() + outlook.runs.len());
    let below = archived.runs.into_iter().map(|(first, end)| (first, end.min(outlook.first)));
    for (first, end) in below.chain(outlook.runs).filter(|(first, end)| first < end) {
        match runs.last_mut() {
            Some(last) if last.1 >= first => last.1 = last.1.max(end),
            _ => runs.push((first, end)),
        }
    }
    Described {
        stream: found.stream,
        partition: found.name,
        id: outlook.id.to_string(),
        first: runs.first().map_or(outlook.first, |&(first, _)| first.min(outlook.first)),
        next: outlook.next,
        rows: outlook.received_count,
        bytes: outlook.bytes.saturating_add(archived.bytes),
        runs: joined(runs, runs_max),
        at_timestamp: found.at_timestamp,
        archive_error: found.archive_error,
        partition_count: found.partition_count,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_engine::{Identity, Position, StreamOutlook};
    use proptest::prelude::*;

    use super::{RUNS_MAX, Wanted, described, is_covered, runs_max};
    use crate::host::calls::{ArchivedRuns, FoundPartition};

    fn found(archived: Option<ArchivedRuns>) -> FoundPartition {
        FoundPartition { stream: "e".to_owned(), name: "e-0".to_owned(), archived, ..FoundPartition::default() }
    }

    fn outlook(first: u64, next: u64, runs: Vec<(u64, u64)>) -> StreamOutlook {
        let (id, known_at) = (Identity::default(), Position(0));
        StreamOutlook { id, known_at, first, next, received_count: 70, bytes: 5, runs }
    }

    fn wanted(json: &str) -> Wanted {
        Wanted::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_question_names_its_streams_and_nothing_unknown() {
        for wrong in [
            "[]",
            "{}",
            r#"{"streams": []}"#,
            r#"{"streams": "events"}"#,
            r#"{"streams": ["a", "b", "a"]}"#,
            r#"{"streams": ["a"], "wait": 1}"#,
            r#"{"streams": ["a"], "wait_ms": 60001}"#,
            r#"{"streams": ["a"], "wait_ms": -1}"#,
            r#"{"streams": ["a"], "ends": {"a": 1.5}}"#,
            r#"{"streams": ["a"], "streams": ["b"]}"#,
        ] {
            assert!(Wanted::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(wanted(r#"{"streams": ["a"]}"#).wait().is_none());
        assert!(wanted(r#"{"streams": ["a"], "wait_ms": 60000}"#).wait().is_some());
    }

    #[test]
    fn a_partition_is_new_when_its_next_offset_is_another_or_it_is_gone() {
        let wanted = wanted(r#"{"streams": ["a"], "ends": {"a-0": 7}}"#);

        assert!(!wanted.is_new("a-0", Some(7)));
        assert!(wanted.is_new("a-0", Some(8)));
        assert!(wanted.is_new("a-0", Some(6)));
        assert!(wanted.is_new("a-0", None));
        assert!(wanted.is_new("a-1", Some(1)));
    }

    #[test]
    fn the_archive_goes_on_in_the_log() {
        let archived = ArchivedRuns { below: 30, runs: vec![(3, 10), (15, 40)], bytes: 100 };
        let described = |first| described(found(Some(archived.clone())), outlook(first, 50, vec![(first, 50)]), 9);

        let joined = described(30);
        assert_eq!((joined.first, joined.next, joined.rows, joined.bytes), (3, 50, 70, 105));
        assert_eq!(joined.runs, [(3, 10), (15, 50)]);
        assert_eq!(described(45).runs, [(3, 10), (15, 40), (45, 50)], "what was never archived is gone");
        assert_eq!(described(12).runs, [(3, 10), (12, 50)], "both have the rest");
        assert_eq!(described(50).first, 3);
        assert!(is_covered(&found(Some(archived.clone())), &outlook(30, 50, vec![])));
        assert!(!is_covered(&found(Some(archived.clone())), &outlook(31, 50, vec![])), "retention went on meanwhile");
        assert!(is_covered(&found(None), &outlook(31, 50, vec![])));
    }

    #[test]
    fn an_empty_partition_begins_where_it_ends() {
        let described = described(found(None), outlook(50, 50, vec![]), 9);

        assert_eq!((described.first, described.next, described.runs.len()), (50, 50, 0));
    }

    #[test]
    fn an_answer_has_a_bounded_number_of_runs() {
        assert_eq!([runs_max(0), runs_max(1), runs_max(100), runs_max(4_096)], [RUNS_MAX, RUNS_MAX, 1_000, 24]);
    }

    /// Ascending ranges below an end, that do not touch.
    fn ranges(end: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::btree_set(1..end, 0..12).prop_map(|cuts| {
            let cuts: Vec<u64> = cuts.into_iter().collect();
            cuts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
        })
    }

    proptest! {
        #[test]
        fn offsets_with_messages_are_those_of_the_archive_below_the_log_and_of_the_log(
            archived in ranges(60), live in ranges(60), first in 1..60_u64,
        ) {
            let live: Vec<_> = live.into_iter().filter(|run| run.0 >= first).collect();
            let first = live.first().map_or(first, |run| run.0);
            let is_in = |runs: &[(u64, u64)], at: u64| runs.iter().any(|run| run.0 <= at && at < run.1);
            let archive = ArchivedRuns { below: first, runs: archived.clone(), bytes: 0 };

            let described = described(found(Some(archive)), outlook(first, 60, live.clone()), 100);

            for at in 0..61 {
                let expected = is_in(&live, at) || at < first && is_in(&archived, at);
                prop_assert_eq!(is_in(&described.runs, at), expected, "{}", at);
            }
            prop_assert!(described.runs.windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert_eq!(described.first, described.runs.first().map_or(first, |run| run.0));
        }
    }
}
