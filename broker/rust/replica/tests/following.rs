//! A follower and the answers of its leader, which may be late and come twice.

#![allow(clippy::unwrap_used, reason = "a test")]

use penstock_replica::{Effect, Epochs, Event, Leader, Link, Message, Replica, Settings, ShardRecord, Stored, Version};

const ME: Leader = Leader { broker: 0, replica: 100, boot: 7 };
const LEADER: u64 = 1;

fn from_leader(message: Message) -> Event {
    Event::Received { from: LEADER, message }
}

/// The session of the question that is among some effects.
fn session_of(effects: &[Effect]) -> u64 {
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Hello { session, .. }, .. } => Some(*session),
        _ => None,
    });
    asked.unwrap_or_else(|| panic!("{effects:?}"))
}

/// A follower of epoch 6 with a log of epoch 5 up to 9, and the session of its question.
fn follower() -> (Replica, u64) {
    let stored = Stored { promised: 5, epochs: Epochs::new([(5, 0)]), end: 9, high_watermark: 3 };
    let mut replica = Replica::new(ME, stored, Settings::default(), 0);
    replica.step(1, from_leader(Message::Beat { epoch: 6, high_watermark: 3, sent: 1, session: 0 }));
    let effects = replica.step(2, Event::Promised(6));
    (replica, session_of(&effects))
}

/// It cut records that it had acknowledged, and the leader went on to count them.
#[test]
fn an_answer_that_comes_twice_cuts_nothing_that_was_acknowledged_meanwhile() {
    let (mut replica, session) = follower();
    let welcome = from_leader(Message::Welcome { epoch: 6, session, equal_until: 5, high_watermark: 3 });
    assert!(replica.step(3, welcome.clone()).contains(&Effect::Truncate(5)));
    replica.step(4, Event::Truncated(5));
    let append = Message::Append { epoch: 6, after: 5, until: 12, of: 6, high_watermark: 3 };
    replica.step(5, from_leader(append));
    let effects = replica.step(6, Event::Synced(12));
    let acknowledges =
        |effect: &Effect| matches!(effect, Effect::Send { message: Message::Acknowledge { position: 12, .. }, .. });
    assert!(effects.iter().any(acknowledges), "{effects:?}");

    replica.step(7, Event::Link(LEADER, Link::Down));
    let effects = replica.step(8, welcome);

    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Truncate(_))), "{effects:?}");
}

/// Two questions of one millisecond had the same number, so the answer to the first was taken for one to the second.
#[test]
fn each_question_about_the_logs_has_a_number_of_its_own() {
    let (mut replica, first) = follower();
    let welcome = Message::Welcome { epoch: 6, session: first, equal_until: 9, high_watermark: 3 };
    replica.step(2, from_leader(welcome));
    replica.step(2, Event::Link(LEADER, Link::Down));
    let beat = Message::Beat { epoch: 6, high_watermark: 3, sent: 1, session: first };
    let effects = replica.step(2, from_leader(beat));

    assert_ne!(session_of(&effects), first);
}

/// Each record that a busy leader sent ended the campaign that it had asked for.
#[test]
fn a_follower_that_is_asked_to_lead_goes_on_while_the_leader_sends_records() {
    let (mut replica, session) = follower();
    let record = ShardRecord {
        epoch: 6,
        leader: Leader { broker: LEADER, replica: 101, boot: 1 },
        in_sync: [ME.replica, 101].into(),
        replicas: [(ME.replica, ME.broker), (101, LEADER)].into(),
        min_in_sync: 2,
    };
    replica.step(2, Event::Read { read: None, record: Some((record.clone(), Version(1))) });
    replica.step(3, from_leader(Message::Welcome { epoch: 6, session, equal_until: 9, high_watermark: 3 }));

    let effects = replica.step(4, from_leader(Message::TakeOver { epoch: 6 }));
    let read = effects.iter().find_map(|effect| if let Effect::Read(read) = effect { Some(*read) } else { None });
    replica.step(5, from_leader(Message::Append { epoch: 6, after: 9, until: 12, of: 6, high_watermark: 3 }));
    replica.step(6, from_leader(Message::Beat { epoch: 6, high_watermark: 3, sent: 2, session }));
    let effects = replica.step(7, Event::Read { read, record: Some((record, Version(1))) });

    let campaigns = |effect: &Effect| matches!(effect, Effect::Change { record, .. } if record.leader == ME);
    assert!(effects.iter().any(campaigns), "{effects:?}");
}
