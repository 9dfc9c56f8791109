//! A broker's process: it has a replica of each shard, publishes to those that it leads as fast as they are confirmed, and says so.
//!
//! It reads commands as lines, and answers in lines; the test is its coordinator.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_cluster::{Contents, Events, Node, Published, QuestionKind, Shard, ShardId, Token};
use penstock_log::{FoldState, Log, LogError, Outcome as Settled, Payload, Position, Target};
use penstock_queue::{QueueId, Sequence, SequenceRange};
use penstock_replica::{Outcome, Role, Settings, Version};

use super::words::{record_of_words, record_to_words};
use crate::node;

const QUEUE: QueueId = QueueId(1);
/// The publish that is no message.
const SETTLEMENT: Token = 0;
/// Publishes of a shard that wait for their outcome.
const WAITING_MAX: usize = 64;

/// Lines that are written whole.
#[derive(Clone)]
struct Output(Arc<Mutex<std::io::Stdout>>);

impl Output {
    fn say(&self, line: &str) {
        let mut out = self.0.lock().unwrap();
        // It fails only when the test has ended.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

struct Heard {
    output: Output,
    /// Outcomes and roles, for the thread that publishes.
    changed: Sender<Change>,
}

enum Change {
    Ended(u8),
    Role(u8, bool),
}

impl Events for Heard {
    fn committed(&self, _: &ShardId, _: Position) {}

    fn ended(&self, shard: &ShardId, publish: Token, how: Published) {
        if how == Published::Committed && publish != SETTLEMENT {
            self.output.say(&format!("confirmed {} {publish}", shard[0]));
        }
        let _ = self.changed.send(Change::Ended(shard[0]));
    }

    fn role(&self, shard: &ShardId, role: Role) {
        let leads = matches!(role, Role::Leader { appends: true, .. });
        if let Role::Halted(halt) = role {
            self.output.say(&format!("halted {} {halt:?}", shard[0]));
        }
        let _ = self.changed.send(Change::Role(shard[0], leads));
    }

    fn failed(&self, shard: &ShardId, error: &LogError) {
        self.output.say(&format!("failed {} {error}", shard[0]));
    }

    fn replaced(&self, shard: &ShardId, _: FoldState) {
        self.output.say(&format!("replaced {}", shard[0]));
    }

    /// Connections break in these tests all the time.
    fn noticed(&self, _: &str) {}
}

/// Runs the broker until its input ends.
pub fn run(number: u64, directory: &Path, shard_count: u8, identity: u128) {
    let output = Output(Arc::new(Mutex::new(std::io::stdout())));
    let (changed, changes) = channel();
    let heard = Heard { output: output.clone(), changed };
    let node = Arc::new(node::start(number, node::micros(), Settings::default(), Arc::new(heard)));
    let mut shards = HashMap::new();
    for shard in 0..shard_count {
        let folder = directory.join(shard.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let (opened, _) = node.open([shard; 16], &folder, node::log_options(), Contents::Queues, identity, 0).unwrap();
        shards.insert(shard, opened);
    }
    output.say(&format!("listens {}", node.address().unwrap().port()));
    let publishes = Arc::new(AtomicBool::new(true));
    spawn_questions(Arc::clone(&node), output.clone());
    spawn_publishing(shards.clone(), changes, Arc::clone(&publishes));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        obey(&node, &shards, &publishes, &output, &words);
    }
}

fn obey(node: &Node, shards: &HashMap<u8, Arc<Shard>>, publishes: &AtomicBool, output: &Output, words: &[&str]) {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let shard = |at: usize| [u8::try_from(number(at)).unwrap(); 16];
    match words[0] {
        "peer" => node.set_peer(number(1), &format!("127.0.0.1:{}", number(2))),
        "read" => {
            let record = record_of_words(&words[4..]);
            node.read(&shard(1), Some(number(2)), Some((record, Version(number(3)))));
        }
        "watched" => {
            let record = record_of_words(&words[3..]);
            node.read(&shard(1), None, Some((record, Version(number(2)))));
        }
        "changed" => node.changed(&shard(1), number(2), Outcome::Changed(Version(number(3)))),
        "conflict" => node.changed(&shard(1), number(2), Outcome::Conflict),
        "stop" => publishes.store(false, Ordering::Release),
        "bound" => {
            let (bound, end) = shards[&shard(1)[0]].with_log(|log| (log.bound(), log.end())).unwrap();
            output.say(&format!("bound {} {} {}", words[1], bound.0, end.0));
        }
        "list" => {
            let until = Position(number(2));
            let ticket = shards[&shard(1)[0]].with_log(|log| log.begin_checksums(Position(0)..until)).unwrap().unwrap();
            let listed: Vec<String> =
                ticket.perform().unwrap().iter().map(|(at, checksum)| format!("{}:{checksum}", at.0)).collect();
            output.say(&format!("list {} {}", words[1], listed.join(" ")));
        }
        "forget" => {
            let ranges = [SequenceRange { first: Sequence(0), last: Sequence(number(2)) }];
            let settle = |log: &mut Log| log.append_settle(QUEUE, Settled::Ack, 0, 0, &ranges);
            shards[&shard(1)[0]].publish(SETTLEMENT, settle).unwrap();
            output.say(&format!("forget {}", words[1]));
        }
        "fold" => {
            let shard = &shards[&shard(1)[0]];
            while shard.fold().unwrap() {}
            let first = shard.with_log(|log| log.begin_records(Position(0), log.bound())).unwrap().unwrap();
            output.say(&format!("fold {} {}", words[1], if first.is_none() { "deleted" } else { "kept" }));
        }
        "missing" => {
            let shard = &shards[&shard(1)[0]];
            let is_missing = |token: &&&str| {
                let sequence = Sequence(token.parse().unwrap());
                shard.with_log(|log| log.locate(QUEUE, sequence, 1)).unwrap().unwrap().is_none()
            };
            let missing: Vec<&str> = words[2..].iter().filter(is_missing).copied().collect();
            output.say(&format!("missing {} {}", words[1], missing.join(" ")));
        }
        other => panic!("a command that is not known: {other}"),
    }
}

fn spawn_questions(node: Arc<Node>, output: Output) {
    std::thread::spawn(move || {
        loop {
            let Some(question) = node.next_question(Duration::from_secs(1)) else { continue };
            let shard = question.shard[0];
            match question.kind {
                QuestionKind::Read(read) => output.say(&format!("read {shard} {read}")),
                QuestionKind::Change { change, base, record } => {
                    output.say(&format!("change {shard} {change} {} {}", base.0, record_to_words(&record)));
                }
            }
        }
    });
}

fn spawn_publishing(shards: HashMap<u8, Arc<Shard>>, changes: Receiver<Change>, publishes: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut leads = HashSet::new();
        let mut waiting: HashMap<u8, usize> = HashMap::new();
        let mut last = 0;
        loop {
            match changes.recv_timeout(Duration::from_millis(10)) {
                Ok(Change::Ended(shard)) => {
                    let count = waiting.entry(shard).or_default();
                    *count = count.saturating_sub(1);
                }
                Ok(Change::Role(shard, true)) => {
                    leads.insert(shard);
                }
                Ok(Change::Role(shard, false)) => {
                    leads.remove(&shard);
                }
                Err(_) => {}
            }
            if !publishes.load(Ordering::Acquire) {
                continue;
            }
            for &shard in &leads {
                let count = waiting.entry(shard).or_default();
                if *count < WAITING_MAX {
                    last = node::micros().max(last + 1);
                    let body = [shard; 100];
                    let payload = Payload::new(b"", b"", b"", &body).unwrap();
                    let targets = [Target { queue: QUEUE, sequence: Sequence(last) }];
                    let published = shards[&shard].publish(last, |log| log.append_message(&payload, 1, &targets));
                    *count += usize::from(published.is_ok());
                }
            }
        }
    });
}
