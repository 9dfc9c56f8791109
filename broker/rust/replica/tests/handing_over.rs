//! A leader that hands over while its log grows.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use penstock_replica::{
    Effect, Epochs, Event, Leader, Message, Outcome, Replica, Settings, ShardRecord, Stored, Version,
};

const ME: Leader = Leader { broker: 0, replica: 100, boot: 7 };
const OTHER: u64 = 1;
const OTHERS_REPLICA: u128 = 101;
const THIRD: (u64, u128) = (2, 102);
const EPOCH: u64 = 6;
const SESSION: u64 = 3;

fn from_other(message: Message) -> Event {
    Event::Received { from: OTHER, message }
}

fn acknowledged(position: u64) -> Event {
    from_other(Message::Acknowledge { epoch: EPOCH, replica: OTHERS_REPLICA, session: SESSION, position })
}

/// A leader whose log ends at 10, which the other replica has, too.
fn leader() -> Replica {
    let mut replica = leader_of(&[]);
    assert_eq!(replica.high_watermark(), 10);
    replica.step(7, acknowledged(10));
    replica
}

/// The same with more replicas in sync, which have not answered yet.
fn leader_of(more: &[(u64, u128)]) -> Replica {
    let epochs = Epochs::new([(5, 0)]);
    let stored = Stored { promised: 5, epochs: epochs.clone(), end: 9, high_watermark: 9 };
    let mut replica = Replica::new(ME, stored, Settings::default(), 0);
    let all = [(ME.broker, ME.replica), (OTHER, OTHERS_REPLICA)].into_iter().chain(more.iter().copied());
    let replicas: BTreeMap<_, _> = all.map(|(broker, replica)| (replica, broker)).collect();
    let in_sync = replicas.keys().copied().collect();
    let record = ShardRecord { epoch: EPOCH, leader: ME, in_sync, replicas, min_in_sync: 2 };
    replica.step(1, Event::Read { read: None, record: Some((record, Version(1))) });
    replica.step(2, Event::Promised(EPOCH));
    replica.step(3, Event::Appended(10));
    replica.step(4, Event::Synced(10));
    let hello = Message::Hello { epoch: EPOCH, replica: OTHERS_REPLICA, session: SESSION, epochs, end: 9 };
    replica.step(5, from_other(hello));
    replica.step(6, acknowledged(9));
    replica.step(7, acknowledged(10));
    replica
}

fn asks_to_take_over(effects: &[Effect]) -> bool {
    effects.contains(&Effect::Send { to: OTHER, message: Message::TakeOver { epoch: EPOCH } })
}

/// A busy leader gave up each hand-over, because its log never ended where the other replica was.
#[test]
fn a_leader_whose_log_goes_on_growing_hands_over() {
    let mut replica = leader();
    replica.step(8, Event::Appended(12));

    assert!(!asks_to_take_over(&replica.step(9, Event::HandOver(OTHERS_REPLICA))));
    replica.step(10, Event::Appended(14));
    replica.step(11, Event::Synced(14));
    assert!(!asks_to_take_over(&replica.step(12, acknowledged(11))));
    let effects = replica.step(13, acknowledged(12));

    assert!(asks_to_take_over(&effects), "{effects:?}");
    let effects = replica.step(14, acknowledged(14));
    assert!(effects.contains(&Effect::Commit(14)) && !asks_to_take_over(&effects), "{effects:?}");
}

/// A replica that was cut off was waited for, and another one that was chosen after it did not take over for five seconds.
#[test]
fn a_replica_that_lacks_records_gives_way_to_another_one() {
    let third = |message| Event::Received { from: THIRD.0, message };
    let acknowledged_by_third =
        |position| third(Message::Acknowledge { epoch: EPOCH, replica: THIRD.1, session: SESSION, position });
    let mut replica = leader_of(&[THIRD]);
    let epochs = Epochs::new([(5, 0)]);
    replica.step(8, third(Message::Hello { epoch: EPOCH, replica: THIRD.1, session: SESSION, epochs, end: 9 }));
    replica.step(9, acknowledged_by_third(9));
    replica.step(10, acknowledged_by_third(10));
    replica.step(11, Event::Appended(12));
    replica.step(12, Event::Synced(12));
    replica.step(13, acknowledged(12));

    replica.step(14, Event::HandOver(THIRD.1));
    assert!(!asks_to_take_over(&replica.step(15, Event::HandOver(OTHERS_REPLICA))));
    let effects = replica.step(16, acknowledged_by_third(12));

    assert!(asks_to_take_over(&effects), "the other one, not the third one: {effects:?}");
}

#[test]
fn a_leader_knows_how_far_the_others_have_acknowledged_its_log() {
    let mut replica = leader();
    replica.step(8, Event::Appended(14));
    replica.step(9, acknowledged(12));

    assert_eq!(replica.acknowledged(), [(OTHERS_REPLICA, 12)]);
}

/// The change that a replica asks the coordinator for, if there is one among the effects.
fn asked_change(effects: &[Effect]) -> Option<(u64, u64)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Change { change, record, .. } => Some((*change, record.epoch)),
        _ => None,
    })
}

fn asked_read(effects: &[Effect]) -> u64 {
    let read = effects.iter().find_map(|effect| if let Effect::Read(read) = effect { Some(*read) } else { None });
    read.unwrap_or_else(|| panic!("nothing is read: {effects:?}"))
}

/// The leader that hands over goes on changing its in-sync set, so the change of the other one met a record that had changed since. It
/// gave up, and the leader asked it again a second later.
#[test]
fn a_replica_that_is_to_take_over_tries_again_after_a_conflict() {
    let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 9 };
    let mut replica = Replica::new(ME, stored, Settings::default(), 0);
    let record = ShardRecord {
        epoch: 5,
        leader: Leader { broker: OTHER, replica: OTHERS_REPLICA, boot: 3 },
        in_sync: [ME.replica, OTHERS_REPLICA].into(),
        replicas: [(ME.replica, ME.broker), (OTHERS_REPLICA, OTHER)].into(),
        min_in_sync: 1,
    };
    replica.step(1, Event::Read { read: None, record: Some((record.clone(), Version(1))) });
    replica.step(2, from_other(Message::Beat { epoch: 5, high_watermark: 9, sent: 1, session: 0 }));

    let effects = replica.step(3, from_other(Message::TakeOver { epoch: 5 }));
    let read = asked_read(&effects);
    let effects = replica.step(4, Event::Read { read: Some(read), record: Some((record.clone(), Version(1))) });
    let (change, epoch) = asked_change(&effects).unwrap();
    assert_eq!(epoch, 6);
    let effects = replica.step(5, Event::Answered { change, outcome: Outcome::Conflict });
    let read = asked_read(&effects);
    let effects = replica.step(6, Event::Read { read: Some(read), record: Some((record, Version(2))) });

    assert_eq!(asked_change(&effects).map(|(_, epoch)| epoch), Some(6), "{effects:?}");
}
