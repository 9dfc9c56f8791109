//! A shard with one replica whose log has entries: they are read back in their order, over epochs and starts, and removed once they are
//! settled.
#![allow(clippy::unwrap_used)]

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_cluster::{
    AppendError, Contents, EntriesError, Entry, Events, Node, Published, QuestionKind, Shard, ShardId, Standing, Token,
};
use penstock_log::{FoldState, LogError, LogOptions, Position};
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
        Self::start_with(LogOptions::default(), directory, boot)
    }

    fn start_with(log: LogOptions, directory: &Path, boot: u64) -> Self {
        let (sender, ended) = channel();
        let node = node::start(1, boot, Settings::default(), Arc::new(Heard(Mutex::new(sender))));
        let (shard, _) = node.open(SHARD, directory, log, Contents::Entries, REPLICA, 0).unwrap();
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

    fn settle(&self, epoch: Epoch, token: Token, until: Position) {
        self.shard.settle_entries(epoch, token, until).unwrap();
        assert_eq!(self.ended.recv_timeout(LIMIT).unwrap(), (token, Published::Committed));
    }

    /// Appends until a fold with this checkpoint removes the beginning of the log.
    fn shorten(&self, epoch: Epoch, checkpoint: Position, contents: &mut Vec<Vec<u8>>) {
        for token in 1_000.. {
            assert!(token < 2_000, "nothing is removed");
            contents.push(vec![7; 500]);
            self.append(epoch, token, &[&[7; 500]]);
            while self.shard.fold_entries(checkpoint).unwrap() {}
            if self.is_removed(Position(0)) {
                return;
            }
        }
    }

    fn is_removed(&self, after: Position) -> bool {
        matches!(self.shard.read_entries(after, BYTES_MAX), Err(EntriesError::Removed(_)))
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
        self.contents_after(Position(0))
    }

    fn contents_after(&self, after: Position) -> Vec<Vec<u8>> {
        self.read(after, BYTES_MAX).into_iter().filter_map(|entry| entry.content).collect()
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

/// Small segments, so that a test can remove some.
fn small() -> LogOptions {
    LogOptions { segment_bytes_min: 4096, segment_bytes_max: 8192, ..LogOptions::default() }
}

#[test]
fn settled_entries_are_removed_but_not_above_the_checkpoint_of_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let (mut record, mut version) = (record(), 1);
    let alone = Alone::start_with(small(), directory.path(), 1);
    let epoch = alone.lead(&mut record, &mut version);
    let numbers = || (0..200_u64).map(|number| number.to_le_bytes().repeat(30));
    let ends: Vec<Position> =
        numbers().enumerate().map(|(token, content)| alone.append(epoch, token as u64 + 1, &[&content])).collect();
    while alone.shard.fold_entries(Position(0)).unwrap() {}
    assert!(alone.contents() == numbers().collect::<Vec<_>>(), "nothing is settled");

    let settled = ends[149];
    alone.settle(epoch, 500, settled);

    let mut rest: Vec<Vec<u8>> = numbers().skip(150).collect();
    let token = |number: usize| 501 + number as u64;
    for number in 0..100 {
        rest.push(vec![6; 500]);
        alone.append(epoch, token(number), &[&[6; 500]]);
        assert!(!alone.shard.fold_entries(ends[148]).unwrap());
    }
    assert!(!alone.is_removed(Position(0)));
    alone.shorten(epoch, settled, &mut rest);

    assert!(!directory.path().join("msgs.0000000001").exists());
    assert!(alone.contents_after(settled) == rest);
    drop(alone);

    let alone = Alone::start_with(small(), directory.path(), 2);
    assert!(alone.is_removed(Position(0)));
    let epoch = alone.lead(&mut record, &mut version);
    alone.settle(epoch, 1, Position(u64::MAX));
    assert!(alone.contents_after(settled) == rest, "it is settled, but no fold has removed it");
}

/// A leader that found nothing to append leaves a segment without entries, which a fold removes between others.
#[test]
fn a_reader_passes_over_epochs_without_entries_that_were_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut record, mut version) = (record(), 1);
    let alone = Alone::start_with(small(), directory.path(), 1);
    let epoch = alone.lead(&mut record, &mut version);
    let first = alone.append(epoch, 1, &[b"first"]);
    drop(alone);
    for boot in 2..6 {
        Alone::start_with(small(), directory.path(), boot).lead(&mut record, &mut version);
    }
    let alone = Alone::start_with(small(), directory.path(), 6);
    let epoch = alone.lead(&mut record, &mut version);
    let mut contents = vec![b"first".to_vec()];
    let is_gone = || alone.shard.with_log(|log| log.begin_records(first, log.bound())).unwrap().unwrap().is_none();
    for token in 1.. {
        assert!(token < 200, "no epoch is removed");
        contents.push(vec![7; 500]);
        alone.append(epoch, token, &[&[7; 500]]);
        while alone.shard.fold_entries(Position(0)).unwrap() {}
        if is_gone() {
            break;
        }
    }

    assert!(alone.contents() == contents);
    assert!(alone.contents_after(first) == contents[1..]);
    drop(alone);

    // The records before the gap were read together with the gap, which seemed corrupt: the broker could not start.
    let alone = Alone::start_with(small(), directory.path(), 7);
    alone.lead(&mut record, &mut version);
    assert!(alone.contents() == contents);
    assert!(alone.contents_after(first) == contents[1..]);
}
