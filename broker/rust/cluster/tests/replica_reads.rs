//! Streams that are read from the replicas of three brokers, of which one leads.
#![allow(clippy::unwrap_used)]

mod brokers;
mod node;

use std::sync::Arc;

use brokers::{Broker, Cluster, QUEUE, until};
use penstock_engine::{
    Level, Payload, Places, Progress, Publication, ReadFrom, ReplicaRead, SequenceRange, Settle, Shard as Queues,
    StreamReplica, SubscriptionOptions,
};

fn publish_some(queues: &Arc<Queues>, numbers: std::ops::Range<u32>) -> Places {
    let mut last = None;
    for number in numbers {
        let body = number.to_le_bytes();
        let publication = Publication {
            payload: Payload::new(b"", b"jobs", b"", &body).unwrap(),
            exchange: b"",
            key: b"jobs",
            headers: None,
            persistent: true,
            mandatory: true,
        };
        let published = queues.publish(&[publication], Some(Level::Disk), 1, &mut Vec::new()).unwrap();
        last = Some(published.places(queues));
    }
    let last = last.unwrap();
    last.request_sync();
    last
}

fn publish(queues: &Arc<Queues>, numbers: std::ops::Range<u32>) {
    let places = publish_some(queues, numbers);
    until("publishes are confirmed", || places.are_synced());
}

fn read(broker: &Broker) -> Box<dyn ReplicaRead> {
    until("a replica may be read", || broker.shard.may_be_read());
    Arc::clone(&broker.shard).read(QUEUE, ReadFrom::First, None).unwrap()
}

/// Returns the numbers of all messages that a reader finds now.
fn found(reader: &mut Box<dyn ReplicaRead>) -> Vec<u32> {
    let mut numbers = Vec::new();
    loop {
        let mut filled = Vec::new();
        if reader.fill(100, &mut filled).unwrap() != Progress::Found {
            return numbers;
        }
        for one in filled {
            let body = |offset| one.segment.message(offset).unwrap().body.try_into().unwrap();
            numbers.extend(one.picked.iter().map(|picked| u32::from_le_bytes(body(picked.offset))));
        }
    }
}

fn found_all(reader: &mut Box<dyn ReplicaRead>, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    until("all messages are found", || {
        numbers.extend(found(reader));
        numbers.len() >= count
    });
    numbers
}

#[test]
fn each_replica_has_every_message_in_order_and_goes_on_when_it_leads() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let (first, queues) = (leader.number, leader.lead());
    publish(&queues, 0..300);
    cluster.until_in_sync();
    let mut readers: Vec<(u64, Box<dyn ReplicaRead>)> =
        cluster.brokers.values().map(|broker| (broker.number, read(broker))).collect();

    publish(&queues, 300..500);

    for (_, reader) in &mut readers {
        assert_eq!(found_all(reader, 500), (0..500).collect::<Vec<_>>());
    }
    readers.retain(|(number, _)| *number != first);
    drop(queues);
    cluster.kill(first);
    let queues = cluster.leader().lead();
    publish(&queues, 500..600);
    for (number, reader) in &mut readers {
        assert_eq!(found_all(reader, 100), (500..600).collect::<Vec<_>>(), "at broker {number}");
    }
}

#[test]
fn nothing_is_found_that_is_not_committed_also_where_the_broker_leads() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let (first, queues) = (leader.number, leader.lead());
    publish(&queues, 0..5);
    let mut reader = read(leader);
    assert_eq!(found_all(&mut reader, 5), [0, 1, 2, 3, 4]);
    let others: Vec<u64> = cluster.brokers.keys().copied().filter(|number| *number != first).collect();

    others.iter().for_each(|number| cluster.kill(*number));
    let places = publish_some(&queues, 5..8);
    until("the leader hears no other broker", || !cluster.brokers[&first].delivers());
    assert!(found(&mut reader).is_empty());
    assert!(!places.are_synced());

    others.iter().for_each(|number| cluster.run(*number));
    until("the publish is confirmed", || places.are_synced());
    assert_eq!(found_all(&mut reader, 3), [5, 6, 7]);
}

#[test]
fn a_reader_passes_over_what_a_follower_has_freed_and_misses_nothing_else() {
    const COUNT: u32 = 6000;
    let cluster = Cluster::start();
    let leader = cluster.leader();
    let queues = leader.lead();
    publish(&queues, 0..COUNT);
    cluster.until_in_sync();
    let follower = cluster.brokers.values().find(|broker| broker.number != leader.number).unwrap();
    let mut reader = read(follower);
    assert_eq!(reader.range().begin, 1);

    let options = SubscriptionOptions { prefetch: 10_000, auto_ack: false, exclusive: false, pull: false };
    let consumer = queues.subscribe(QUEUE, options).unwrap();
    let mut taken = Vec::new();
    until("all messages are taken", || {
        let mut filled = Vec::new();
        consumer.fill(10_000, &mut filled).unwrap();
        taken.extend(filled.iter().flat_map(|one| one.picked.iter().map(|picked| picked.taken.sequence)));
        taken.len() == COUNT as usize
    });
    let kept = |number: u64| number.is_multiple_of(500) || number > 5900;
    let settled: Vec<SequenceRange> =
        taken.iter().filter(|sequence| !kept(sequence.0)).map(|&sequence| SequenceRange::of(sequence)).collect();
    let before = cluster.bytes_of(follower.number);
    consumer.settle(&settled, Settle::Ack).unwrap();
    publish(&queues, COUNT..COUNT + 2000);
    until("the follower has freed what is settled", || cluster.bytes_of(follower.number) < before / 2);

    let numbers = found_all(&mut reader, 2000);

    assert!(numbers.is_sorted_by(|one, other| one < other));
    let expected = (0..COUNT + 2000).filter(|number| *number >= COUNT || kept(u64::from(*number) + 1));
    let missed: Vec<u32> = expected.filter(|number| numbers.binary_search(number).is_err()).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(numbers.len() < (COUNT / 2) as usize + 2000, "some were passed over");
    let late = read(follower);
    assert!(late.range().begin > 1 && late.range().next == u64::from(COUNT) + 2001);
}
