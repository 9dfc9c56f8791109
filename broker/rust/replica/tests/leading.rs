//! A leader and what it tells the others.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_replica::{
    Effect, Epochs, Event, Leader, Message, Outcome, Replica, Settings, ShardRecord, Stored, Version,
};

const ME: Leader = Leader { broker: 0, replica: 100, boot: 7 };
const OTHER: Leader = Leader { broker: 1, replica: 101, boot: 3 };

fn from_other(message: Message) -> Event {
    Event::Received { from: OTHER.broker, message }
}

/// A replica that leads epoch 6, whose first record ends at 12, and whose follower has everything below 9.
fn leader(settings: Settings) -> Replica {
    let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 9 };
    let mut replica = Replica::new(ME, stored, settings, 0);
    let (in_sync, replicas) = (BTreeSet::from([100, 101]), BTreeMap::from([(100, 0), (101, 1)]));
    let record = ShardRecord { epoch: 5, leader: OTHER, in_sync, replicas, min_in_sync: 2 };
    replica.step(1, from_other(Message::Beat { epoch: 5, high_watermark: 9, sent: 1, session: 0 }));
    let effects = replica.step(1, from_other(Message::TakeOver { epoch: 5 }));
    let read = effects.iter().find_map(|effect| if let Effect::Read(read) = effect { Some(*read) } else { None });
    let effects = replica.step(2, Event::Read { read, record: Some((record, Version(1))) });
    let [Effect::Change { change, .. }] = effects[..] else { panic!("{effects:?}") };
    replica.step(3, Event::Answered { change, outcome: Outcome::Changed(Version(2)) });
    replica.step(4, Event::Promised(6));
    replica.step(5, Event::Appended(12));
    let hello = Message::Hello { epoch: 6, replica: 101, session: 8, epochs: Epochs::new([(5, 0)]), end: 9 };
    replica.step(6, from_other(hello));
    replica.step(6, acknowledged(9));
    replica
}

fn acknowledged(position: u64) -> Event {
    from_other(Message::Acknowledge { epoch: 6, replica: 101, session: 8, position })
}

fn high_watermarks(effects: &[Effect]) -> Vec<u64> {
    let of = |effect: &Effect| match effect {
        Effect::Send { message: Message::Beat { high_watermark, .. }, .. } => Some(*high_watermark),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// A broker that waits for a command of the metadata waited for the next beat, for a quarter of a second.
#[test]
fn followers_are_told_at_once_that_everything_is_committed_if_they_are_waited_for() {
    for tells_at_once in [true, false] {
        let mut replica = leader(Settings { tells_at_once, ..Settings::default() });
        replica.step(7, Event::Synced(12));
        let effects = replica.step(7, acknowledged(12));

        assert!(effects.contains(&Effect::Commit(12)), "{effects:?}");
        assert_eq!(high_watermarks(&effects), if tells_at_once { vec![12] } else { vec![] });
    }
}

/// The next record tells them.
#[test]
fn followers_are_told_nothing_while_records_are_on_their_way() {
    let mut replica = leader(Settings { tells_at_once: true, ..Settings::default() });
    replica.step(7, Event::Synced(12));
    replica.step(7, Event::Appended(20));
    let effects = replica.step(7, acknowledged(12));

    assert!(effects.contains(&Effect::Commit(12)), "{effects:?}");
    assert_eq!(high_watermarks(&effects), Vec::<u64>::new());
}

/// It was given up after a second, and the next one waited for the records that had come since.
#[test]
fn a_hand_over_waits_for_commits_that_take_longer_than_a_second() {
    let mut replica = leader(Settings::default());
    replica.step(7, Event::Synced(12));
    replica.step(7, acknowledged(12));
    let (mut end, mut late) = (12, VecDeque::new());
    let asked_for = 2_000;

    let took = (10..10_000).step_by(50).find(|&now| {
        end += 8;
        late.push_back((now + 1_200, end));
        let mut events = vec![Event::Appended(end), Event::Synced(end), Event::Tick];
        events.extend((now == asked_for + 10).then_some(Event::HandOver(101)));
        if let Some(&(_, position)) = late.front().filter(|(due, _)| *due <= now) {
            late.pop_front();
            events.push(acknowledged(position));
        }
        let effects: Vec<Effect> = events.into_iter().flat_map(|event| replica.step(now, event)).collect();
        effects.iter().any(|effect| matches!(effect, Effect::Send { message: Message::TakeOver { .. }, .. }))
    });

    assert!(took.is_some_and(|now| now >= asked_for && now < asked_for + 2_000), "{took:?}");
}
