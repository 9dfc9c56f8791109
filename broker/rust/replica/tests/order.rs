//! Which of two followers campaigns first when their leader is gone.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use penstock_replica::{Effect, Epochs, Event, Leader, Link, Message, Replica, Settings, ShardRecord, Stored, Version};

const GONE: u64 = 3;
const BROKERS: [u64; 2] = [1, 2];

/// A replica that misses the leader of a shard, and the time. `identities` are those of the replicas.
fn missing(broker: u64, order: u64, identities: [u128; 3], link: Link) -> (Replica, u64) {
    let replicas = BTreeMap::from([(identities[0], 1), (identities[1], 2), (identities[2], GONE)]);
    let replica = *replicas.iter().find(|(_, at)| **at == broker).unwrap().0;
    let leader = Leader { broker: GONE, replica: identities[2], boot: 4 };
    let in_sync = BTreeSet::from(identities);
    let record = ShardRecord { epoch: 5, leader, in_sync, replicas, min_in_sync: 2 };
    let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 9 };
    let settings = Settings { order, ..Settings::default() };
    let mut replica = Replica::new(Leader { broker, replica, boot: 7 }, stored, settings, 0);
    replica.step(1, Event::Read { read: None, record: Some((record, Version(1))) });
    replica.step(2, Event::Link(GONE, Link::Up));
    let beat = Message::Beat { epoch: 5, high_watermark: 9, sent: 3, session: 0 };
    replica.step(3, Event::Received { from: GONE, message: beat });
    replica.step(10, Event::Link(GONE, link));
    (replica, 10)
}

fn is_question(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { message: Message::PreVote { .. }, .. })
}

/// The time at which a replica campaigns.
fn campaign_of(replica: &mut Replica, from: u64) -> u64 {
    (from..20_000).step_by(10).find(|&now| replica.step(now, Event::Tick).iter().any(is_question)).unwrap()
}

fn campaigns_at(broker: u64, order: u64, identities: [u128; 3], link: Link) -> u64 {
    let (mut replica, now) = missing(broker, order, identities, link);
    campaign_of(&mut replica, now)
}

fn first(order: u64, identities: [u128; 3], link: Link) -> u64 {
    let (one, two) = (campaigns_at(1, order, identities, link), campaigns_at(2, order, identities, link));
    assert_eq!(one.abs_diff(two), Settings::default().stagger.next_multiple_of(10), "one is a step behind the other");
    if one < two { 1 } else { 2 }
}

#[test]
fn the_same_broker_campaigns_first_for_all_shards_of_a_number() {
    for link in [Link::Refused, Link::Down] {
        let firsts: BTreeMap<u64, u64> = (0..32).map(|order| (order, first(order, [100, 101, 102], link))).collect();

        for identities in [[101, 100, 102], [102, 101, 100], [101, 102, 100], [9, 5, 7]] {
            firsts.iter().for_each(|(&order, &broker)| assert_eq!(first(order, identities, link), broker));
        }
        for broker in BROKERS {
            assert!(firsts.values().any(|&first| first == broker), "broker {broker} is never the first");
        }
    }
}

#[test]
fn a_replica_out_of_reach_is_not_waited_for() {
    for order in 0..8 {
        let alone = |gone| {
            let (mut replica, now) = missing(if gone == 1 { 2 } else { 1 }, order, [100, 101, 102], Link::Refused);
            replica.step(now, Event::Link(gone, Link::Down));
            campaign_of(&mut replica, now)
        };
        assert_eq!(BROKERS.map(alone), [10, 10]);
    }
}

/// It waited for a second where the other one had heard the leader some milliseconds later.
#[test]
fn a_replica_asks_for_votes_until_the_others_miss_the_leader_too() {
    let (mut replica, now) = missing(1, 0, [100, 101, 102], Link::Refused);
    let asked = campaign_of(&mut replica, now);

    let effects = replica.step(asked + 100, Event::Tick);

    assert!(effects.iter().any(is_question), "{effects:?}");
}

#[test]
fn the_first_one_does_not_wait_once_its_leader_is_refused() {
    let soonest = BROKERS.map(|broker| campaigns_at(broker, 0, [100, 101, 102], Link::Refused)).into_iter().min();

    assert_eq!(soonest, Some(10));
}
