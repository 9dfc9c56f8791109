//! Lines between a broker's process and the test: words that are separated by spaces.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use penstock_replica::{Leader, ShardRecord};

pub fn record_to_words(record: &ShardRecord) -> String {
    let Leader { broker, replica, boot } = record.leader;
    let mut words = format!("{} {broker} {replica} {boot} {}", record.epoch, record.min_in_sync);
    for (replica, broker) in &record.replicas {
        let _ = write!(words, " {replica} {broker} {}", u8::from(record.in_sync.contains(replica)));
    }
    words
}

pub fn record_of_words(words: &[&str]) -> ShardRecord {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    let leader = Leader { broker: number(1), replica: words[2].parse().unwrap(), boot: number(3) };
    let mut record = ShardRecord {
        epoch: number(0),
        leader,
        in_sync: std::collections::BTreeSet::new(),
        replicas: BTreeMap::new(),
        min_in_sync: usize::try_from(number(4)).unwrap(),
    };
    for replica in words[5..].chunks(3) {
        let id = replica[0].parse().unwrap();
        record.replicas.insert(id, replica[1].parse().unwrap());
        if replica[2] == "1" {
            record.in_sync.insert(id);
        }
    }
    record
}
