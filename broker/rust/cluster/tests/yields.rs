//! A replica that is opened while its broker leaves it to others to lead.
#![allow(clippy::unwrap_used)]

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_cluster::{Contents, Events, Node, Published, QuestionKind, ShardId, Token};
use penstock_log::{FoldState, LogError, Position};
use penstock_replica::{Leader, Outcome, Role, Settings, ShardRecord, Version};

const SHARD: ShardId = [3; 16];
const REPLICA: u128 = 77;
/// The broker that led, and is gone.
const OTHER: u64 = 2;
/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(60);

struct Unheard;

impl Events for Unheard {
    fn committed(&self, _: &ShardId, _: Position) {}
    fn ended(&self, _: &ShardId, _: Token, _: Published) {}
    fn role(&self, _: &ShardId, _: Role) {}
    fn failed(&self, _: &ShardId, error: &LogError) {
        panic!("{error}");
    }
    fn replaced(&self, _: &ShardId, _: FoldState) {}
    fn noticed(&self, _: &str) {}
}

/// Answers the next question as the coordinator of a shard with one replica in sync.
fn answer(node: &Node, stored: &mut (ShardRecord, u64)) {
    let Some(question) = node.next_question(Duration::from_millis(20)) else { return };
    match question.kind {
        QuestionKind::Read(read) => node.read(&SHARD, Some(read), Some((stored.0.clone(), Version(stored.1)))),
        QuestionKind::Change { change, record, .. } => {
            *stored = (record, stored.1 + 1);
            node.changed(&SHARD, change, Outcome::Changed(Version(stored.1)));
        }
    }
}

/// A broker that is drained told only the replicas that were open then.
#[test]
fn a_replica_that_is_opened_later_leaves_it_to_others_to_lead_too() {
    let directory = tempfile::tempdir().unwrap();
    let replication = Settings { suspect_after: 50, yield_for: 2_000, ..Settings::default() };
    let yield_for = Duration::from_millis(replication.yield_for);
    let node = node::start(1, 7, replication, Arc::new(Unheard));
    let mut stored = (
        ShardRecord {
            epoch: 1,
            leader: Leader { broker: OTHER, replica: 88, boot: 1 },
            in_sync: BTreeSet::from([REPLICA]),
            replicas: BTreeMap::from([(REPLICA, 1), (88, OTHER)]),
            min_in_sync: 1,
        },
        1,
    );

    let opened = Instant::now();
    node.set_yields(true);
    let (shard, _) = node.open(SHARD, directory.path(), node::log_options(), Contents::Queues, REPLICA, 0).unwrap();
    node.session(OTHER, false);

    while !matches!(shard.role(), Role::Leader { .. }) {
        assert!(opened.elapsed() < LIMIT, "it never leads, though no other replica is in sync");
        answer(&node, &mut stored);
    }
    assert!(opened.elapsed() >= yield_for, "it led after {:?}", opened.elapsed());
}
