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
use crate::calls::{CallRequest, FoundPartition};

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
    }
}
