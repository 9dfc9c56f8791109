//! Queues on a replicated log: publishers and consumers of three brokers, of which one leads, is killed, or hands over.
#![allow(clippy::unwrap_used)]

mod brokers;
mod node;

use std::sync::Arc;

use brokers::{Broker, Cluster, QUEUE, until};
use penstock_engine::{
    EngineError, Filled, Level, Payload, Publication, Sequence, SequenceRange, Settle, Shard as Queues, Subscription,
    SubscriptionOptions,
};

/// Publishes messages with these numbers as bodies, and waits until they are confirmed.
fn publish(queues: &Arc<Queues>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let places = try_publish(queues, number).unwrap();
        places.request_sync();
        until("a publish is confirmed", || places.are_synced());
    }
}

/// The same, and waits only once.
fn publish_all(queues: &Arc<Queues>, numbers: std::ops::Range<u32>) {
    let places: Vec<_> = numbers.map(|number| try_publish(queues, number).unwrap()).collect();
    let last = places.last().unwrap();
    last.request_sync();
    until("publishes are confirmed", || last.are_synced());
}

fn try_publish(queues: &Arc<Queues>, number: u32) -> Result<penstock_engine::Places, EngineError> {
    let body = number.to_le_bytes();
    let publication = Publication {
        payload: Payload::new(b"", b"jobs", b"", &body).unwrap(),
        exchange: b"",
        key: b"jobs",
        headers: None,
        persistent: true,
        mandatory: true,
    };
    let published = queues.publish(&[publication], Some(Level::Disk), 1, &mut Vec::new())?;
    Ok(published.places(queues))
}

fn consumer(queues: &Arc<Queues>) -> Subscription {
    let options = SubscriptionOptions { prefetch: 1000, auto_ack: false, exclusive: false, pull: false };
    queues.subscribe(QUEUE, options).unwrap()
}

/// A delivered message: its number, its sequence, and whether it is flagged.
type Delivered = (u32, Sequence, bool);

fn take(subscription: &Subscription) -> Vec<Delivered> {
    let mut filled = Vec::new();
    subscription.fill(1000, &mut filled).unwrap();
    let picked = filled.iter().flat_map(|Filled { segment, picked }| picked.iter().map(move |one| (segment, one)));
    picked
        .map(|(segment, one)| {
            let body = segment.message(one.offset).unwrap().body.try_into().unwrap();
            (u32::from_le_bytes(body), one.taken.sequence, one.taken.redelivered)
        })
        .collect()
}

/// Takes until so many messages were delivered.
fn take_all(subscription: &Subscription, count: usize) -> Vec<Delivered> {
    let mut taken = Vec::new();
    until("all messages are delivered", || {
        taken.extend(take(subscription));
        taken.len() >= count
    });
    taken
}

fn numbers(delivered: &[Delivered]) -> Vec<u32> {
    delivered.iter().map(|&(number, ..)| number).collect()
}

/// Settles messages, and waits until that is committed.
fn settle(queues: &Arc<Queues>, subscription: &Subscription, messages: &[Delivered]) {
    let ranges: Vec<SequenceRange> = messages.iter().map(|&(_, sequence, _)| SequenceRange::of(sequence)).collect();
    assert_eq!(subscription.settle(&ranges, Settle::Ack).unwrap(), messages.len() as u64);
    let end = queues.with_log(|log| log.end()).unwrap();
    until("a settlement is committed", || queues.synced() >= end);
}

#[test]
fn after_the_leader_was_killed_unsettled_messages_come_again_and_settled_ones_do_not() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let (first, queues) = (leader.number, leader.lead());
    publish(&queues, 0..200);
    let consumer_before = consumer(&queues);
    let taken = take_all(&consumer_before, 200);
    assert_eq!(numbers(&taken), (0..200).collect::<Vec<_>>());
    assert!(taken.iter().all(|&(.., is_flagged)| !is_flagged));
    settle(&queues, &consumer_before, &taken[..150]);
    publish(&queues, 200..210);
    for broker in cluster.brokers.values() {
        while broker.shard.fold().unwrap() {}
    }

    drop(consumer_before);
    cluster.kill(first);
    drop(queues);

    let leader = cluster.leader();
    assert_ne!(leader.number, first);
    let queues = leader.lead();
    let consumer_after = consumer(&queues);
    let taken = take_all(&consumer_after, 60);
    assert_eq!(numbers(&taken), (150..210).collect::<Vec<_>>());
    assert!(taken.iter().all(|&(.., is_flagged)| is_flagged));
    publish(&queues, 210..220);
    let more = take_all(&consumer_after, 10);
    assert_eq!(numbers(&more), (210..220).collect::<Vec<_>>());
    assert!(more.iter().all(|&(.., is_flagged)| !is_flagged));
    settle(&queues, &consumer_after, &[taken, more].concat());

    cluster.run(first);
    cluster.until_in_sync();
    let follower = &cluster.brokers[&first];
    let end = queues.with_log(|log| log.end()).unwrap();
    until("the follower has everything", || follower.shard.with_log(|log| log.bound()) == Some(end));
    assert!(!follower.leads());
}

#[test]
fn a_leader_that_hands_over_cancels_its_consumers_and_may_lead_again() {
    let cluster = Cluster::start();
    let first = cluster.leader();
    let queues = first.lead();
    publish(&queues, 0..50);
    let consumer_before = consumer(&queues);
    let taken = take_all(&consumer_before, 50);
    settle(&queues, &consumer_before, &taken[..20]);
    cluster.until_in_sync();
    let second = cluster.brokers.values().find(|broker| broker.number != first.number).unwrap();

    first.shard.hand_over(second.shard.replica().unwrap());

    until("the consumer is cancelled", || consumer_before.signal().cancelled().is_some());
    assert!(matches!(try_publish(&queues, 50), Err(EngineError::NotLeading(_))));
    let there = second.lead();
    let consumer_there = consumer(&there);
    let taken = take_all(&consumer_there, 30);
    assert_eq!(numbers(&taken), (20..50).collect::<Vec<_>>());
    settle(&there, &consumer_there, &taken[..10]);
    publish(&there, 50..60);
    cluster.until_in_sync();

    second.shard.hand_over(first.shard.replica().unwrap());

    let again = first.lead();
    let consumer_again = consumer(&again);
    let taken = take_all(&consumer_again, 30);
    assert_eq!(numbers(&taken), (30..60).collect::<Vec<_>>());
    assert!(taken.iter().all(|&(.., is_flagged)| is_flagged));
    settle(&again, &consumer_again, &taken);
    publish(&again, 60..70);
    assert_eq!(numbers(&take_all(&consumer_again, 10)), (60..70).collect::<Vec<_>>());
}

#[test]
fn publishes_wait_while_too_few_replicas_are_there() {
    let mut cluster = Cluster::start();
    let leader = cluster.leader();
    let (first, queues) = (leader.number, leader.lead());
    publish(&queues, 0..5);
    let consumer = consumer(&queues);
    assert_eq!(numbers(&take_all(&consumer, 5)), (0..5).collect::<Vec<_>>());
    let others: Vec<u64> = cluster.brokers.keys().copied().filter(|number| *number != first).collect();

    others.iter().for_each(|number| cluster.kill(*number));
    let places = try_publish(&queues, 5).unwrap();
    places.request_sync();
    let leader = &cluster.brokers[&first];
    until("the leader hears no other broker", || !leader.delivers());
    assert!(!places.are_synced() && take(&consumer).is_empty());

    others.iter().for_each(|number| cluster.run(*number));
    until("the publish is confirmed", || places.are_synced());
    assert_eq!(numbers(&take_all(&consumer, 1)), [5]);
}

#[test]
fn followers_free_what_is_settled_and_lead_with_all_that_is_not() {
    const ROUNDS: u32 = 60;
    const ROUND: u32 = 200;
    let cluster = Cluster::start();
    let first = cluster.leader();
    let queues = first.lead();
    let consumer_before = consumer(&queues);
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        publish_all(&queues, round * ROUND..(round + 1) * ROUND);
        let mut taken = take_all(&consumer_before, ROUND as usize);
        // One of each round stays, so nothing is freed without compaction.
        kept.push(taken.remove(7).0);
        settle(&queues, &consumer_before, &taken);
    }
    cluster.until_in_sync();
    let leader_bytes = cluster.bytes_of(first.number);
    let followers = || cluster.brokers.values().filter(|broker| broker.number != first.number);

    until("followers free what is settled", || {
        followers().all(|follower| cluster.bytes_of(follower.number) < leader_bytes / 3)
    });
    // So the next leader reads little.
    let unfolded = |follower: &Broker| follower.shard.with_log(|log| log.stats().unfolded_segments).unwrap();
    until("followers fold what they have", || followers().all(|follower| unfolded(follower) <= 2));

    let second = followers().next().unwrap();
    first.shard.hand_over(second.shard.replica().unwrap());
    let there = second.lead();
    let consumer_there = consumer(&there);
    let taken = take_all(&consumer_there, kept.len());
    assert_eq!(numbers(&taken), kept);
    settle(&there, &consumer_there, &taken);
    publish(&there, 0..10);
    assert_eq!(numbers(&take_all(&consumer_there, 10)), (0..10).collect::<Vec<_>>());
}
