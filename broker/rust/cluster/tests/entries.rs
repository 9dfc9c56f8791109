//! A shard with one replica whose log has entries: they are read back in their order, over epochs and starts.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_cluster::{
    AppendError, Contents, Entry, Events, Node, NodeOptions, Published, QuestionKind, Shard, ShardId, Standing, Token,
};
use penstock_log::{FoldState, LogError, LogOptions, Position};
use penstock_peers::{Secrets, Settings as PeerSettings, Timeouts};
use penstock_replica::{Epoch, Leader, Outcome, Role, Settings, ShardRecord, Version};

const SHARD: ShardId = [5; 16];
const REPLICA: u128 = 77;
const BYTES_MAX: usize = 1 << 20;
/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(60);

struct Heard(Mutex<Sender<(Token, Published)>>);

impl Events for Heard {
    fn committed(&self, _: &ShardId, _: Position) {}

    fn ended(&self, _: &ShardId, publish: Token, how: Published) {
        self.0.lock().unwrap().send((publish, how)).unwrap();
    }

    fn role(&self, _: &ShardId, _: Role) {}

    fn failed(&self, _: &ShardId, error: &LogError) {
        panic!("{error}");
    }

    fn replaced(&self, _: &ShardId, _: FoldState) {}

    fn noticed(&self, _: &str) {}
}

/// A broker that is alone in its cluster, and the record of its shard.
struct Alone {
    node: Node,
    shard: Arc<Shard>,
    ended: Receiver<(Token, Published)>,
}

fn record() -> ShardRecord {
    ShardRecord {
        epoch: 0,
        leader: Leader { broker: 1, replica: REPLICA, boot: 0 },
        in_sync: BTreeSet::from([REPLICA]),
        replicas: BTreeMap::from([(REPLICA, 1)]),
        min_in_sync: 1,
    }
}

impl Alone {
    fn start(directory: &Path, boot: u64) -> Self {
        let (sender, ended) = channel();
        let peers = PeerSettings {
            broker: 1,
            cluster: [1; 16],
            versions: Node::versions(),
            secrets: Secrets::new(vec!["secret".into()]),
            tls: None,
            frame_bytes_max: 4 << 20,
            timeouts: Timeouts::default(),
        };
        let options = NodeOptions { peers, boot, replication: Settings::default(), disk_threads: 1 };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let node = Node::start(options, listener, Arc::new(Heard(Mutex::new(sender)))).unwrap();
        let (shard, _) = node.open(SHARD, directory, LogOptions::default(), Contents::Entries, REPLICA).unwrap();
        Self { node, shard, ended }
    }

    /// Answers as the coordinator until the replica leads; returns its epoch.
    fn lead(&self, record: &mut ShardRecord, version: &mut u64) -> Epoch {
        let limit = Instant::now() + LIMIT;
        loop {
            if let Role::Leader { epoch, appends: true, .. } = self.standing().role {
                return epoch;
            }
            assert!(Instant::now() < limit, "{:?}", self.standing());
            let Some(question) = self.node.next_question(Duration::from_millis(20)) else { continue };
            match question.kind {
                QuestionKind::Read(read) => {
                    self.node.read(&SHARD, Some(read), Some((record.clone(), Version(*version))));
                }
                QuestionKind::Change { change, base, record: wanted } => {
                    assert_eq!(base, Version(*version));
                    (*record, *version) = (wanted, *version + 1);
                    self.node.changed(&SHARD, change, Outcome::Changed(Version(*version)));
                }
            }
        }
    }

    fn standing(&self) -> Standing {
        self.shard.standing().unwrap()
    }

    fn append(&self, epoch: Epoch, token: Token, contents: &[&[u8]]) -> Position {
        let end = self.shard.append_entries(epoch, token, contents).unwrap();
        assert_eq!(self.ended.recv_timeout(LIMIT).unwrap(), (token, Published::Committed));
        assert_eq!(self.standing().end, end);
        end
    }

    fn read(&self, mut after: Position, bytes_max: usize) -> Vec<Entry> {
        let mut all = Vec::new();
        loop {
            let entries = self.shard.read_entries(after, bytes_max).unwrap();
            let Some(last) = entries.last() else { return all };
            after = last.until;
            all.extend(entries);
        }
    }

    fn contents(&self) -> Vec<Vec<u8>> {
        self.read(Position(0), BYTES_MAX).into_iter().filter_map(|entry| entry.content).collect()
    }
}

#[test]
fn entries_are_read_in_their_order_and_go_on_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let (mut record, mut version) = (record(), 1);
    let alone = Alone::start(directory.path(), 1);
    assert!(matches!(alone.shard.append_entries(0, 1, &[b"no"]), Err(AppendError::NotLeading)));
    let epoch = alone.lead(&mut record, &mut version);
    let first = alone.append(epoch, 2, &[b"one", b"two"]);
    let asked = alone.append(epoch, 3, &[]);
    let last = alone.append(epoch, 4, &[b"three"]);

    let read = alone.read(first, BYTES_MAX);

    assert_eq!(alone.contents(), [&b"one"[..], b"two", b"three"]);
    let asked = Entry { until: asked, content: None };
    assert_eq!(read, [asked, Entry { until: last, content: Some(b"three".to_vec()) }]);
    assert_eq!(alone.read(Position(0), 1), alone.read(Position(0), BYTES_MAX), "one at a time");
    assert!(matches!(alone.shard.append_entries(epoch + 1, 5, &[b"no"]), Err(AppendError::NotLeading)));
    drop(alone);

    let alone = Alone::start(directory.path(), 2);
    let next = alone.lead(&mut record, &mut version);
    assert!(next > epoch);
    alone.append(next, 1, &[b"four"]);

    assert_eq!(alone.contents(), [&b"one"[..], b"two", b"three", b"four"]);
}
