//! A cluster of processes: starts and kills them, and is their coordinator.

pub mod broker;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use penstock_replica::{Leader, ShardRecord};
use tempfile::TempDir;

use words::{record_of_words, record_to_words};

pub const BROKERS: u64 = 3;
/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(120);
/// A broker's process has its number in this variable.
pub const NUMBER: &str = "PENSTOCK_TEST_BROKER";
pub const FOLDER: &str = "PENSTOCK_TEST_FOLDER";
/// The identity of its disk, if that is blank.
pub const IDENTITY: &str = "PENSTOCK_TEST_IDENTITY";
pub const SHARDS: &str = "PENSTOCK_TEST_SHARDS";

struct Process {
    child: Child,
    commands: ChildStdin,
    port: Option<String>,
}

pub struct Cluster {
    folder: TempDir,
    shard_count: u8,
    processes: BTreeMap<u64, Process>,
    lines: Receiver<(u64, String)>,
    said: Sender<(u64, String)>,
    records: BTreeMap<u8, (ShardRecord, u64)>,
    pub confirmed: BTreeMap<u8, BTreeSet<u64>>,
    pub faults: Vec<String>,
    /// Disks that were made.
    disks: u64,
    /// Answers to questions of the test.
    answers: Vec<(u64, String)>,
}

impl Cluster {
    pub fn start(shard_count: u8) -> Self {
        let (said, lines) = channel();
        let mut cluster = Self {
            folder: tempfile::tempdir().unwrap(),
            shard_count,
            processes: BTreeMap::new(),
            lines,
            said,
            records: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            faults: Vec::new(),
            disks: 0,
            answers: Vec::new(),
        };
        for shard in 0..shard_count {
            let replicas: BTreeMap<u128, u64> =
                (1..=BROKERS).map(|broker| (u128::from(broker) + 100, broker)).collect();
            let first = u64::from(shard) % BROKERS + 1;
            let leader = Leader { broker: first, replica: u128::from(first) + 100, boot: 0 };
            let in_sync = replicas.keys().copied().collect();
            let record = ShardRecord { epoch: 0, leader, in_sync, replicas, min_in_sync: 2 };
            cluster.records.insert(shard, (record, 1));
        }
        (1..=BROKERS).for_each(|broker| cluster.run(broker));
        cluster
    }

    /// Starts the process of a broker.
    pub fn run(&mut self, broker: u64) {
        self.disks += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_of_the_other_tests", "--nocapture"])
            .env(NUMBER, broker.to_string())
            .env(FOLDER, self.folder.path().join(broker.to_string()))
            .env(SHARDS, self.shard_count.to_string())
            .env(IDENTITY, (100 + self.disks).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let said = self.said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send((broker, line)).is_err() {
                    return;
                }
            }
        });
        self.processes.insert(broker, Process { child, commands, port: None });
    }

    /// The broker that leads a shard, as the coordinator knows it.
    pub fn leader(&self, shard: u8) -> u64 {
        self.records[&shard].0.leader.broker
    }

    pub fn kill(&mut self, broker: u64) {
        let mut process = self.processes.remove(&broker).unwrap();
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }

    /// The process does nothing any more, and its connections stay.
    pub fn pause(&self, broker: u64) {
        self.signal(broker, "-STOP");
    }

    pub fn go_on(&self, broker: u64) {
        self.signal(broker, "-CONT");
    }

    fn signal(&self, broker: u64, signal: &str) {
        let id = self.processes[&broker].child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// The disk of a broker that does not run is replaced by a blank one.
    pub fn wipe(&self, broker: u64) {
        std::fs::remove_dir_all(self.folder.path().join(broker.to_string())).unwrap();
    }

    pub fn confirmed_count(&self, shard: u8) -> usize {
        self.confirmed.get(&shard).map_or(0, BTreeSet::len)
    }

    /// Answers the brokers until something holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let limit = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(self.faults.is_empty(), "{:?}", self.faults);
            assert!(Instant::now() < limit, "it did not come to this: {what}; records: {:?}", self.records);
            if let Ok((broker, line)) = self.lines.recv_timeout(Duration::from_millis(20)) {
                self.take(broker, &line);
            }
        }
    }

    /// Waits until each shard has confirmed so many more.
    pub fn confirm_more(&mut self, count: usize) {
        let wanted: Vec<usize> = (0..self.shard_count).map(|shard| self.confirmed_count(shard) + count).collect();
        self.until("all shards confirm", |cluster| {
            (0..cluster.shard_count).all(|shard| cluster.confirmed_count(shard) >= wanted[usize::from(shard)])
        });
    }

    /// Waits until all replicas of a shard are in sync.
    pub fn until_in_sync(&mut self) {
        self.until("all replicas are in sync", |cluster| {
            cluster.records.values().all(|(record, _)| record.in_sync.len() == record.replicas.len())
        });
    }

    /// Asks a broker, and returns the rest of the line that begins like the question.
    pub fn ask(&mut self, broker: u64, question: &str) -> String {
        self.say(broker, question);
        let begins: Vec<String> = question.split(' ').take(2).map(str::to_owned).collect();
        let begin = begins.join(" ");
        self.until(&format!("broker {broker} answers {begin}"), |cluster| {
            cluster.answers.iter().any(|(from, line)| *from == broker && line.starts_with(&begin))
        });
        let at = self.answers.iter().position(|(from, line)| *from == broker && line.starts_with(&begin)).unwrap();
        self.answers.remove(at).1[begin.len()..].trim().to_owned()
    }

    /// Waits until a broker has replaced the log of a shard by a copy.
    pub fn until_replaced(&mut self, broker: u64, shard: u8) {
        let line = format!("replaced {shard}");
        self.until("a log is replaced by a copy", |cluster| cluster.answers.contains(&(broker, line.clone())));
    }

    pub fn say_all(&mut self, line: &str) {
        let brokers: Vec<u64> = self.processes.keys().copied().collect();
        brokers.into_iter().for_each(|broker| self.say(broker, line));
    }

    fn say(&mut self, broker: u64, line: &str) {
        if let Some(process) = self.processes.get_mut(&broker) {
            // A process that was killed takes no lines.
            let _ = writeln!(process.commands, "{line}").and_then(|()| process.commands.flush());
        }
    }

    fn take(&mut self, broker: u64, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "listens" => self.introduce(broker, words[1]),
            "read" => {
                let (record, version) = &self.records[&words[1].parse().unwrap()];
                let answer = format!("read {} {} {version} {}", words[1], words[2], record_to_words(record));
                self.say(broker, &answer);
            }
            "change" => self.change(broker, &words),
            "confirmed" => {
                self.confirmed.entry(words[1].parse().unwrap()).or_default().insert(words[2].parse().unwrap());
            }
            "halted" | "failed" => self.faults.push(format!("broker {broker}: {line}")),
            "bound" | "list" | "missing" | "forget" | "fold" | "replaced" => {
                self.answers.push((broker, line.to_owned()))
            }
            // Lines of the test's own harness.
            _ => {}
        }
    }

    fn introduce(&mut self, broker: u64, port: &str) {
        if let Some(process) = self.processes.get_mut(&broker) {
            process.port = Some(port.to_owned());
        }
        self.say_all(&format!("peer {broker} {port}"));
        let others: Vec<(u64, String)> =
            self.processes.iter().filter_map(|(&number, process)| Some((number, process.port.clone()?))).collect();
        for (number, port) in others {
            self.say(broker, &format!("peer {number} {port}"));
        }
    }

    fn change(&mut self, broker: u64, words: &[&str]) {
        let (shard, base): (u8, u64) = (words[1].parse().unwrap(), words[3].parse().unwrap());
        let (record, version) = self.records.get_mut(&shard).unwrap();
        if *version != base {
            return self.say(broker, &format!("conflict {shard} {}", words[2]));
        }
        (*record, *version) = (record_of_words(&words[4..]), base + 1);
        let watched = format!("watched {shard} {version} {}", record_to_words(record));
        let version = *version;
        self.say(broker, &format!("changed {shard} {} {version}", words[2]));
        self.say_all(&watched);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let brokers: Vec<u64> = self.processes.keys().copied().collect();
        brokers.into_iter().for_each(|broker| self.kill(broker));
    }
}
