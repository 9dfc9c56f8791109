//! Reports of a node that wait for a host whose loop takes many at a time.
//!
//! Invariants: the reports of a shard keep their order. Of a shard's commits in a row one report waits, so a busy loop costs no memory for
//! each commit. Messages of other brokers are dropped when too many reports wait, or too many bytes of them: their senders ask again.

use std::collections::{HashMap, VecDeque};

use penstock_log::Position;
use penstock_replica::BrokerId;

use crate::questions::ShardId;

/// More than a leader's followers send while its loop is busy.
const REPORTS_MAX: usize = 1 << 16;
/// Of the contents of messages that wait.
const CONTENT_BYTES_MAX: usize = 64 << 20;

/// A report; `R` is for all that the host has of its own.
#[derive(Debug, PartialEq, Eq)]
pub enum Report<R> {
    Committed { shard: ShardId, below: Position },
    Received { from: BrokerId, shard: ShardId, content: Vec<u8> },
    Other(R),
}

/// See the module.
#[derive(Debug)]
pub struct Reports<R> {
    waiting: VecDeque<Report<R>>,
    content_bytes: usize,
    /// Where the last report of a shard is, if it is about commits.
    commits: HashMap<ShardId, usize>,
}

impl<R> Default for Reports<R> {
    fn default() -> Reports<R> {
        Reports { waiting: VecDeque::new(), content_bytes: 0, commits: HashMap::new() }
    }
}

impl<R> Reports<R> {
    /// A report about no shard.
    pub fn put(&mut self, report: R) {
        self.waiting.push_back(Report::Other(report));
    }

    pub fn put_of(&mut self, shard: &ShardId, report: R) {
        self.commits.remove(shard);
        self.put(report);
    }

    pub fn commit(&mut self, shard: &ShardId, position: Position) {
        let last = self.commits.get(shard).and_then(|&at| self.waiting.get_mut(at));
        if let Some(Report::Committed { below, .. }) = last {
            *below = position;
            return;
        }
        self.commits.insert(*shard, self.waiting.len());
        self.waiting.push_back(Report::Committed { shard: *shard, below: position });
    }

    pub fn receive(&mut self, from: BrokerId, shard: &ShardId, content: &[u8]) {
        let bytes = self.content_bytes + content.len();
        if self.waiting.len() < REPORTS_MAX && bytes <= CONTENT_BYTES_MAX {
            self.content_bytes = bytes;
            self.waiting.push_back(Report::Received { from, shard: *shard, content: content.to_vec() });
        }
    }

    /// All that wait, oldest first.
    pub fn take(&mut self) -> VecDeque<Report<R>> {
        std::mem::take(self).waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ShardId = [1; 16];
    const OTHER: ShardId = [2; 16];

    fn committed(shard: ShardId, below: u64) -> Report<char> {
        Report::Committed { shard, below: Position(below) }
    }

    #[test]
    fn of_the_commits_of_many_shards_one_report_each_waits() {
        let mut reports = Reports::default();
        for below in 1..=1000 {
            reports.commit(&ONE, Position(below));
            reports.commit(&OTHER, Position(10 * below));
        }

        assert_eq!(reports.take(), [committed(ONE, 1000), committed(OTHER, 10_000)]);
        reports.commit(&ONE, Position(1001));
        assert_eq!(reports.take(), [committed(ONE, 1001)]);
    }

    #[test]
    fn a_commit_stays_behind_the_reports_of_its_shard_that_came_before() {
        let mut reports = Reports::default();
        reports.commit(&ONE, Position(5));
        reports.put_of(&ONE, 'a');
        reports.commit(&ONE, Position(6));
        reports.put_of(&OTHER, 'b');
        reports.commit(&ONE, Position(7));

        let expected = [committed(ONE, 5), Report::Other('a'), committed(ONE, 7), Report::Other('b')];
        assert_eq!(reports.take(), expected);
    }

    #[test]
    fn the_bytes_of_messages_that_wait_have_a_bound() {
        let mut reports: Reports<char> = Reports::default();
        (0..200).for_each(|_| reports.receive(1, &ONE, &[0; 1 << 20]));
        assert_eq!(reports.take().len(), CONTENT_BYTES_MAX >> 20);

        reports.receive(1, &ONE, b"more");
        assert_eq!(reports.take().len(), 1);
    }
}
