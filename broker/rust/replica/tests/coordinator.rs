//! What a replica does about a coordinator that is restored from an old copy, or that was emptied.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};

use penstock_replica::{
    Effect, Epochs, Event, Halt, Heard, Leader, Message, Outcome, Replica, Role, Settings, ShardRecord, Stored, Version,
};

const ME: Leader = Leader { broker: 0, replica: 100, boot: 7 };

/// A replica that has promised epoch 5, and the question that it asks at its start.
fn started() -> (Replica, u64) {
    let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 9 };
    let mut replica = Replica::new(ME, stored, Settings::default(), 0);
    let effects = replica.step(1, Event::Tick);
    let Some(Effect::Read(read)) = effects.first() else { panic!("{effects:?}") };
    (replica, *read)
}

fn record(epoch: u64) -> (ShardRecord, Version) {
    let in_sync = BTreeSet::from([100, 101]);
    let replicas = BTreeMap::from([(100, 0), (101, 1)]);
    let leader = Leader { broker: 1, replica: 101, boot: 3 };
    (ShardRecord { epoch, leader, in_sync, replicas, min_in_sync: 1 }, Version(1))
}

#[test]
fn a_replica_halts_when_the_coordinator_has_an_older_epoch_than_it_promised() {
    for record in [Some(record(4)), None] {
        let (mut replica, read) = started();
        let effects = replica.step(2, Event::Read { read: Some(read), record });

        assert_eq!(effects, [Effect::Role(Role::Halted(Halt::CoordinatorWentBack))]);
        assert!(replica.step(3, Event::Tick).is_empty());
    }
}

#[test]
fn a_watch_that_is_behind_halts_no_replica() {
    let (mut replica, read) = started();
    replica.step(2, Event::Read { read: Some(read), record: Some(record(5)) });
    replica.step(3, Event::Read { read: None, record: Some(record(4)) });

    assert_eq!(replica.role(), Role::Follower { of: None });
    assert_eq!(replica.record().unwrap().epoch, 5);
}

#[test]
fn a_replica_promises_before_it_follows() {
    let (mut replica, _) = started();
    let beat = Message::Beat { epoch: 6, high_watermark: 9, sent: 1, session: 0 };
    let effects = replica.step(2, Event::Received { from: 1, message: beat.clone() });
    assert_eq!(effects, [Effect::Promise(6)]);

    let effects = replica.step(3, Event::Promised(6));
    let [Effect::Send { to: 1, message: Message::Hello { epoch: 6, .. } }, Effect::Role(role)] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(role, Role::Follower { of: Some(Heard { epoch: 6, leader: 1 }) }, "the record may show it later");
    let old = Message::Beat { epoch: 5, high_watermark: 9, sent: 1, session: 0 };
    let effects = replica.step(4, Event::Received { from: 2, message: old });
    assert_eq!(effects, [Effect::Send { to: 2, message: Message::Fenced { epoch: 6 } }]);
}

#[test]
fn a_replica_halts_rather_than_cut_what_is_committed() {
    let (mut replica, _) = started();
    replica.step(
        2,
        Event::Received { from: 1, message: Message::Beat { epoch: 6, high_watermark: 3, sent: 1, session: 0 } },
    );
    let effects = replica.step(3, Event::Promised(6));
    let [Effect::Send { message: Message::Hello { session, .. }, .. }, ..] = effects[..] else { panic!("{effects:?}") };
    let welcome = Message::Welcome { epoch: 6, session, equal_until: 8, high_watermark: 3 };
    let effects = replica.step(4, Event::Received { from: 1, message: welcome });

    assert_eq!(effects, [Effect::Role(Role::Halted(Halt::CommittedWouldBeCut))]);
}

/// The number of the question among some effects.
fn read_of(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| if let Effect::Read(read) = effect { Some(*read) } else { None })
}

/// The number of the request to change the record among some effects, and the record.
fn change_of(effects: &[Effect]) -> Option<(u64, ShardRecord)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Change { change, record, .. } => Some((*change, record.clone())),
        _ => None,
    })
}

/// Lets time pass until a replica asks something of the coordinator.
fn until_it_reads(replica: &mut Replica, now: &mut u64) -> u64 {
    for _ in 0..200 {
        *now += 100;
        if let Some(read) = read_of(&replica.step(*now, Event::Tick)) {
            return read;
        }
    }
    panic!("it asks nothing");
}

/// A replica that is asked to take over and whose change of the record is on its way; the number of the change.
fn campaigning() -> (Replica, u64) {
    let (mut replica, read) = started();
    replica.step(2, Event::Read { read: Some(read), record: Some(record(5)) });
    let beat = Message::Beat { epoch: 5, high_watermark: 9, sent: 1, session: 0 };
    replica.step(3, Event::Received { from: 1, message: beat });
    let effects = replica.step(3, Event::Received { from: 1, message: Message::TakeOver { epoch: 5 } });
    let read = read_of(&effects).unwrap();
    let effects = replica.step(4, Event::Read { read: Some(read), record: Some(record(5)) });
    let (change, wanted) = change_of(&effects).unwrap();
    assert_eq!((wanted.epoch, wanted.leader), (6, ME));
    (replica, change)
}

/// The outcome of an older change of the same version counted as an election, and two replicas led one epoch.
#[test]
fn only_the_outcome_of_its_own_request_elects_a_replica() {
    let (mut replica, change) = campaigning();

    let effects = replica.step(5, Event::Answered { change: change - 1, outcome: Outcome::Changed(Version(2)) });
    assert_eq!(effects, []);
    let effects = replica.step(6, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    assert_eq!(effects, [Effect::Promise(6)]);
}

/// Each start numbered its questions from 1, so an answer to the replica before counted.
#[test]
fn questions_of_two_boots_have_different_numbers() {
    let read = |boot| {
        let mut replica = Replica::new(Leader { boot, ..ME }, Stored::default(), Settings::default(), 0);
        read_of(&replica.step(1, Event::Tick)).unwrap()
    };

    assert_ne!(read(7), read(8));
}

/// A campaign without answers ended with a question to the coordinator, and the answer, which named the leader that is missed,
/// counted as a sign of it: the replica waited again for as long as at first.
#[test]
fn the_record_of_a_leader_that_is_missed_is_no_sign_of_it() {
    let (mut replica, read) = started();
    replica.step(2, Event::Read { read: Some(read), record: Some(record(5)) });
    let mut now = 2;
    // No broker answers it, so it asks the coordinator after a while.
    let read = until_it_reads(&mut replica, &mut now);
    let missed_from = now;
    replica.step(now, Event::Read { read: Some(read), record: Some(record(5)) });

    let mut asked = false;
    while !asked && now < missed_from + 10_000 {
        now += 100;
        let effects = replica.step(now, Event::Tick);
        asked = effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::PreVote { .. }, .. }));
    }
    assert!(asked && now <= missed_from + 200, "after {} ms", now - missed_from);
}

/// A follower that joined the in-sync set did not know it when its leader died, and waited before it looked.
#[test]
fn a_follower_keeps_the_newest_watched_record_of_its_epoch() {
    let (mut replica, read) = started();
    let (mut before, version) = record(5);
    before.in_sync.remove(&ME.replica);
    replica.step(2, Event::Read { read: Some(read), record: Some((before, version)) });
    replica.step(3, Event::Read { read: None, record: Some((record(5).0, Version(2))) });

    assert!(replica.record().unwrap().in_sync.contains(&ME.replica));
}

/// The outcome of the election is compared with the version that it changes.
#[test]
fn a_watched_record_does_not_disturb_an_election() {
    let (mut replica, change) = campaigning();
    replica.step(5, Event::Read { read: None, record: Some((record(5).0, Version(9))) });

    let effects = replica.step(6, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    assert_eq!(effects, [Effect::Promise(6)]);
}

/// A message of an epoch that another replica leads: its followers would have taken it for one of its leader's.
#[test]
fn a_replica_sends_records_only_in_the_epoch_that_it_leads() {
    let (mut replica, change) = campaigning();
    replica.step(5, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    replica.step(6, Event::Promised(6));
    assert!(replica.append_message(6, 0, 9, 5).is_some());
    assert_eq!(replica.append_message(5, 0, 9, 5), None);

    let beat = Message::Beat { epoch: 7, high_watermark: 9, sent: 1, session: 0 };
    replica.step(7, Event::Received { from: 1, message: beat });
    replica.step(8, Event::Promised(7));
    assert_eq!(replica.append_message(6, 0, 9, 5), None);
    assert_eq!(replica.append_message(7, 0, 9, 5), None);
}

#[test]
fn a_leader_whose_disk_stalls_asks_another_one_to_lead() {
    let (mut replica, change) = campaigning();
    replica.step(5, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    replica.step(6, Event::Promised(6));
    replica.step(7, Event::Appended(12));
    let mut now = 7;
    let mut effects = Vec::new();
    while now < 5_007 {
        assert!(!effects.contains(&Effect::Role(Role::Follower { of: None })), "after {now} ms");
        now += 100;
        effects = replica.step(now, Event::Tick);
    }

    assert!(effects.contains(&Effect::Send { to: 1, message: Message::TakeOver { epoch: 6 } }), "{effects:?}");
    assert!(effects.contains(&Effect::Role(Role::Follower { of: None })), "{effects:?}");
    // It leaves the campaign to replicas whose disks go on.
    for _ in 0..100 {
        now += 100;
        let effects = replica.step(now, Event::Tick);
        assert!(effects.iter().all(|effect| !matches!(effect, Effect::Change { .. })), "{effects:?}");
    }
}

/// The time of its last beat was added to, which was too much for the number.
#[test]
fn an_answer_to_a_beat_that_was_never_sent_does_not_count() {
    let (mut replica, change) = campaigning();
    replica.step(5, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    replica.step(6, Event::Promised(6));
    replica.step(7, Event::Appended(12));
    replica.step(8, Event::Synced(12));
    for sent in [7, u64::MAX] {
        replica.step(9, Event::Received { from: 1, message: Message::BeatAnswer { epoch: 6, sent } });
    }
    let acknowledged = Message::Acknowledge { epoch: 6, replica: 101, session: 0, position: 12 };
    replica.step(10, Event::Received { from: 1, message: acknowledged });
    replica.step(5_000, Event::Tick);

    assert_eq!(replica.role(), Role::Leader { epoch: 6, appends: true, delivers: false });
}
