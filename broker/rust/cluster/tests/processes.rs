//! Three processes with three shards, which publish all the time, while leaders are killed.
#![allow(clippy::unwrap_used)]

mod cluster;
mod node;

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{BROKERS, Cluster, FOLDER, IDENTITY, NUMBER, SHARDS};

const SHARD_COUNT: u8 = 3;

/// Other tests start this program again, with the number of a broker.
#[test]
fn a_process_of_the_other_tests() {
    let variable = |name| std::env::var(name).ok();
    if let (Some(_), Some(folder)) = (variable(NUMBER), variable(FOLDER)) {
        let number = |name| variable(name).unwrap().parse::<u64>().unwrap();
        let shards = u8::try_from(number(SHARDS)).unwrap();
        cluster::broker::run(number(NUMBER), folder.as_ref(), shards, number(IDENTITY).into());
    }
}

/// Waits until all brokers know that all of a shard's log is committed; returns its end.
fn until_committed(cluster: &mut Cluster, shard: u8) -> u64 {
    loop {
        let positions: BTreeSet<u64> = (1..=BROKERS)
            .flat_map(|broker| {
                let answer = cluster.ask(broker, &format!("bound {shard}"));
                answer.split(' ').map(|position| position.parse().unwrap()).collect::<Vec<u64>>()
            })
            .collect();
        if positions.len() == 1 {
            return positions.into_iter().next().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All that was confirmed is there, on each broker, and all logs are equal.
fn check(cluster: &mut Cluster) {
    cluster.say_all("stop");
    for shard in 0..SHARD_COUNT {
        cluster.until_in_sync();
        let end = until_committed(cluster, shard);
        let lists: Vec<String> =
            (1..=BROKERS).map(|broker| cluster.ask(broker, &format!("list {shard} {end}"))).collect();
        assert!(lists.iter().all(|list| *list == lists[0] && !list.is_empty()), "shard {shard} differs");
        let confirmed: Vec<String> = cluster.confirmed[&shard].iter().map(u64::to_string).collect();
        for broker in 1..=BROKERS {
            let missing = cluster.ask(broker, &format!("missing {shard} {}", confirmed.join(" ")));
            assert_eq!(missing, "", "broker {broker} has lost confirmed messages of shard {shard}");
        }
    }
    assert_eq!(cluster.faults, Vec::<String>::new());
}

#[test]
fn leaders_are_killed_and_nothing_that_was_confirmed_is_lost() {
    let mut cluster = Cluster::start(SHARD_COUNT);
    cluster.confirm_more(200);
    for shard in [0, 1, 2, 0] {
        let victim = cluster.leader(shard);
        cluster.kill(victim);
        let before = std::time::Instant::now();
        cluster.confirm_more(100);
        println!("all shards confirm again {:?} after broker {victim} was killed", before.elapsed());
        cluster.run(victim);
        cluster.until_in_sync();
        cluster.confirm_more(100);
    }
    check(&mut cluster);
}

#[test]
fn a_paused_leader_is_replaced_and_its_publishes_are_neither_lost_nor_changed() {
    let mut cluster = Cluster::start(SHARD_COUNT);
    cluster.confirm_more(100);
    let victim = cluster.leader(1);
    cluster.pause(victim);
    cluster.until("another broker leads", |cluster| (0..SHARD_COUNT).all(|shard| cluster.leader(shard) != victim));
    cluster.confirm_more(100);
    cluster.go_on(victim);
    cluster.until_in_sync();
    cluster.confirm_more(100);
    check(&mut cluster);
}

#[test]
fn a_broker_that_comes_back_with_a_blank_disk_gets_all_records() {
    let mut cluster = Cluster::start(SHARD_COUNT);
    cluster.confirm_more(100);
    let victim = cluster.leader(2);
    cluster.kill(victim);
    cluster.confirm_more(100);
    cluster.wipe(victim);
    cluster.run(victim);
    cluster.until_in_sync();
    check(&mut cluster);
}

#[test]
fn a_blank_disk_gets_a_copy_where_the_leader_has_deleted_records() {
    let mut cluster = Cluster::start(SHARD_COUNT);
    cluster.confirm_more(500);
    let leader = cluster.leader(0);
    let victim = leader % BROKERS + 1;
    cluster.kill(victim);
    cluster.confirm_more(500);
    let last = *cluster.confirmed[&0].last().unwrap();
    cluster.ask(leader, &format!("forget 0 {last}"));
    cluster.confirmed.get_mut(&0).unwrap().clear();
    // The settlement counts once its segment is full.
    while cluster.ask(leader, "fold 0") != "deleted" {
        cluster.confirm_more(100);
    }
    cluster.wipe(victim);
    cluster.run(victim);
    cluster.until_replaced(victim, 0);
    cluster.until_in_sync();
    cluster.confirm_more(100);
    cluster.say_all("stop");
    until_committed(&mut cluster, 0);
    let confirmed: Vec<String> = cluster.confirmed[&0].iter().map(u64::to_string).collect();
    for broker in 1..=BROKERS {
        assert_eq!(cluster.ask(broker, &format!("missing 0 {}", confirmed.join(" "))), "", "broker {broker}");
    }
}
