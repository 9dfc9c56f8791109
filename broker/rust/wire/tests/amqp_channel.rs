//! The states of a channel: what it takes in which order, how it fails, and random frames.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use penstock_wire::Name;
use penstock_wire::amqp::assembly::Publish;
use penstock_wire::amqp::channel::{Channel, ChannelState, MessagesTaken, Mode, Received};
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::frame::{Frame, FrameKind, next_frame, put_frame};
use penstock_wire::amqp::method::{Method, MethodId};
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use proptest::prelude::*;

const NUMBER: u16 = 3;
const BODY_MAX: u64 = 1000;
const CLOSE: Method<'static> = Method::ChannelClose { reply_code: 200, reply_text: Name::EMPTY, class: 0, method: 0 };

/// A channel, and everything that it has said.
struct Talk {
    channel: Channel,
    said: Vec<u8>,
}

fn written(method: Method<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    method.put(NUMBER, &mut out);
    out
}

/// The frames of a publish.
fn publish(body: &[u8]) -> Vec<u8> {
    let (exchange, routing_key) = (Name::cut("logs"), Name::cut("a.b"));
    let mut out = written(Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false });
    put_content(NUMBER, &[], body, 4096, &mut out);
    out
}

impl Talk {
    fn new() -> Talk {
        Talk { channel: Channel::new(NUMBER, BODY_MAX), said: Vec::new() }
    }

    fn open() -> Talk {
        let mut talk = Talk::new();
        assert_eq!(talk.hears(&written(Method::ChannelOpen {})), [Ok("nothing".to_owned())]);
        talk.says(&[Method::ChannelOpenOk {}]);
        assert_eq!(talk.channel.state(), ChannelState::Open);
        talk
    }

    /// Frames of the client: what each of them meant, or the reply text of its exception.
    fn hears(&mut self, mut bytes: &[u8]) -> Vec<Result<String, String>> {
        let mut heard = Vec::new();
        while let Some((frame, length)) = next_frame(bytes, 4096).unwrap() {
            bytes = &bytes[length..];
            let received = self.channel.take(frame, &mut self.said);
            heard.push(match received {
                Ok(Received::Nothing) => Ok("nothing".to_owned()),
                Ok(Received::Method(method)) => Ok(method.name().to_owned()),
                Ok(Received::Published) => Ok("published".to_owned()),
                Ok(Received::Ends) => Ok("ends".to_owned()),
                Ok(Received::Over) => Ok("over".to_owned()),
                Err(exception) => Err(exception.to_string()),
            });
        }
        heard
    }

    fn refuses(&mut self, method: Method<'_>) -> String {
        match &self.hears(&written(method))[..] {
            [Err(text)] => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn says(&mut self, expected: &[Method<'_>]) {
        let (said, mut rest) = (std::mem::take(&mut self.said), Vec::new());
        expected.iter().for_each(|method| method.put(NUMBER, &mut rest));
        assert_eq!(said, rest, "expected {expected:?}");
    }
}

#[test]
fn a_channel_is_opened_used_and_closed() {
    let mut talk = Talk::open();
    let requested = talk.hears(&written(Method::BasicQos { prefetch_size: 0, prefetch_count: 9, global: false }));
    assert_eq!(requested, [Ok("basic.qos".to_owned())]);
    let heard = talk.hears(&publish(b"hello"));
    assert_eq!(heard.last(), Some(&Ok("published".to_owned())));
    assert_eq!(talk.channel.assembly().messages().map(|message| message.body.to_vec()).collect::<Vec<_>>(), [b"hello"]);

    assert_eq!(talk.hears(&written(CLOSE)), [Ok("ends".to_owned())]);
    talk.says(&[]);
    talk.channel.ended(&mut talk.said);
    talk.says(&[Method::ChannelCloseOk {}]);
    assert_eq!(talk.channel.state(), ChannelState::Over);
}

#[test]
fn a_channel_is_opened_once_and_first() {
    let mut talk = Talk::new();
    let refused = talk.refuses(Method::BasicGet { queue: Name::cut("q"), no_ack: true });
    assert_eq!(refused, "CHANNEL_ERROR - expected 'channel.open'");
    let body = Frame { kind: FrameKind::Body, channel: NUMBER, payload: b"x" };
    let refused = Talk::new().channel.take(body, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(refused, "UNEXPECTED_FRAME - expected method frame, got non method frame instead");

    let refused = Talk::open().refuses(Method::ChannelOpen {});
    assert_eq!(refused, "CHANNEL_ERROR - second 'channel.open' seen");
}

#[test]
fn a_method_in_the_middle_of_a_content_ends_the_connection() {
    let mut talk = Talk::open();
    let publish =
        Method::BasicPublish { exchange: Name::EMPTY, routing_key: Name::EMPTY, mandatory: false, immediate: false };
    talk.hears(&written(publish));

    let exception = talk.channel.take(frame(&written(CLOSE)), &mut Vec::new()).unwrap_err();

    assert!(exception.ends_connection());
    let method = MethodId { class: 60, method: 40 };
    let text = "expected content header for class 60, got non content header frame instead";
    assert_eq!(exception, Exception::new(ReplyCode::UnexpectedFrame, text, method));
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    next_frame(bytes, 4096).unwrap().unwrap().0
}

#[test]
fn a_method_that_only_a_broker_sends_ends_the_connection() {
    let mut talk = Talk::open();
    for method in [Method::QueueBindOk {}, Method::ConnectionOpenOk {}, Method::ChannelCloseOk {}] {
        assert_eq!(talk.refuses(method), "COMMAND_INVALID - unimplemented method");
    }
    let immediate =
        Method::BasicPublish { exchange: Name::EMPTY, routing_key: Name::EMPTY, mandatory: false, immediate: true };
    assert_eq!(talk.refuses(immediate), "NOT_IMPLEMENTED - immediate=true");
}

#[test]
fn confirms_and_transactions_exclude_each_other() {
    let mut talk = Talk::open();
    assert_eq!(talk.hears(&written(Method::ConfirmSelect { nowait: false })), [Ok("nothing".to_owned())]);
    talk.says(&[Method::ConfirmSelectOk {}]);
    talk.hears(&written(Method::ConfirmSelect { nowait: true }));
    talk.says(&[]);
    assert_eq!(talk.channel.mode(), Mode::Confirms);
    let refused = talk.refuses(Method::TxSelect {});
    assert_eq!(refused, "PRECONDITION_FAILED - cannot switch from confirm to tx mode");
    assert_eq!(talk.refuses(Method::TxCommit {}), "PRECONDITION_FAILED - channel is not transactional");

    let mut talk = Talk::open();
    assert_eq!(talk.hears(&written(Method::TxSelect {})), [Ok("tx.select".to_owned())]);
    assert_eq!(talk.hears(&written(Method::TxRollback {})), [Ok("tx.rollback".to_owned())]);
    let refused = talk.refuses(Method::ConfirmSelect { nowait: false });
    assert_eq!(refused, "PRECONDITION_FAILED - cannot switch from tx to confirm mode");
}

#[test]
fn a_failed_channel_is_silent_until_the_client_knows() {
    let mut talk = Talk::open();
    talk.hears(&publish(b"dropped"));
    let text = "no queue 'q' in vhost '/'";
    let exception = Exception::new(ReplyCode::NotFound, text, MethodId { class: 60, method: 70 });
    talk.channel.fail(&exception, &mut talk.said);
    let reply_text = Name::cut("NOT_FOUND - no queue 'q' in vhost '/'");
    talk.says(&[Method::ChannelClose { reply_code: 404, reply_text, class: 60, method: 70 }]);
    assert_eq!(talk.channel.assembly().held_bytes(), 0);

    talk.channel.fail(&exception, &mut talk.said);
    let late = [publish(b"late"), written(Method::QueuePurge { queue: Name::EMPTY, nowait: false })].concat();
    assert!(talk.hears(&late).iter().all(|heard| *heard == Ok("nothing".to_owned())));
    talk.says(&[]);
    assert_eq!(talk.hears(&written(CLOSE)), [Ok("nothing".to_owned())]);
    talk.says(&[Method::ChannelCloseOk {}]);
    assert_eq!(talk.hears(&written(Method::ChannelCloseOk {})), [Ok("over".to_owned())]);
}

#[test]
fn a_message_that_is_too_large_closes_the_channel_alone() {
    let mut talk = Talk::open();
    let heard = talk.hears(&publish(&[0; BODY_MAX as usize + 1]));
    let text = "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000";
    assert_eq!(heard[1], Err(text.to_owned()));
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let method = |method: Method<'_>| Just(written(method)).boxed();
    prop_oneof![
        method(Method::ChannelOpen {}),
        method(CLOSE),
        method(Method::ChannelCloseOk {}),
        method(Method::ConfirmSelect { nowait: false }),
        method(Method::TxSelect {}),
        method(Method::TxCommit {}),
        method(Method::BasicAck { delivery_tag: 1, multiple: true }),
        (0..2000usize).prop_map(|size| publish(&vec![7; size])),
        (0..4usize, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, payload)| {
            let kind = [FrameKind::Method, FrameKind::Header, FrameKind::Body, FrameKind::Heartbeat][kind];
            let mut out = Vec::new();
            put_frame(&mut out, kind, NUMBER, |out| out.extend_from_slice(&payload));
            out
        }),
    ]
}

proptest! {
    /// Whatever comes: the moves are allowed ones (they are asserted), nothing is taken that is not open, and held is at most one
    /// message beside those that are complete.
    #[test]
    fn any_frames_are_taken_or_refused(steps in prop::collection::vec(frames(), 0..30)) {
        let mut talk = Talk::new();
        'steps: for bytes in &steps {
            let mut rest = &bytes[..];
            while let Some((frame, length)) = next_frame(rest, 4096).unwrap() {
                rest = &rest[length..];
                let before = talk.channel.state();
                match talk.channel.take(frame, &mut talk.said) {
                    Ok(Received::Method(_) | Received::Published) => prop_assert_eq!(before, ChannelState::Open),
                    Ok(Received::Ends) => talk.channel.ended(&mut talk.said),
                    Ok(Received::Nothing | Received::Over) => {}
                    Err(exception) if exception.ends_connection() => break 'steps,
                    Err(exception) => talk.channel.fail(&exception, &mut talk.said),
                }
                let bytes: usize = talk.channel.assembly().messages().map(|message| message.body.len() + 30).sum();
                prop_assert!(talk.channel.assembly().held_bytes() <= bytes + BODY_MAX as usize + 30);
                if talk.channel.state() == ChannelState::Over {
                    break 'steps;
                }
            }
        }
    }
}

/// Whether a message is mandatory, its properties and its body.
type Kept = (bool, Vec<u8>, Vec<u8>);

/// The messages of a channel, and how many bytes it holds.
fn kept(talk: &Talk) -> (Vec<Kept>, usize) {
    let assembly = talk.channel.assembly();
    let parts =
        |message: Publish<'_>| (message.mandatory, message.properties.as_bytes().to_vec(), message.body.to_vec());
    (assembly.messages().map(parts).collect(), assembly.held_bytes())
}

proptest! {
    /// Frames that are taken together have the same effect as one by one, wherever the input is cut, and nothing is passed over
    /// that the channel refuses, answers or does at once.
    #[test]
    fn frames_of_messages_are_taken_together_as_one_by_one(
        steps in prop::collection::vec(frames(), 0..20),
        held_bytes_max in 0..20_000usize,
        cut in any::<prop::sample::Index>(),
    ) {
        let input = steps.concat();
        let (mut together, mut one_by_one) = (Talk::open(), Talk::open());
        let mut rest = &input[..];
        loop {
            let some = &rest[..rest.len().min(cut.index(input.len() + 1).max(5000))];
            let taken = together.channel.take_messages(some, 4096, held_bytes_max);
            let (head, behind) = rest.split_at(taken.bytes);
            rest = behind;
            let heard = one_by_one.hears(head);
            prop_assert!(heard.iter().all(|heard| matches!(heard.as_deref(), Ok("nothing" | "published"))), "{heard:?}");
            prop_assert_eq!(heard.contains(&Ok("published".to_owned())), taken.has_complete);
            prop_assert_eq!(kept(&together), kept(&one_by_one));
            prop_assert!(together.said.is_empty(), "what is said waits for no round");
            let held_bytes = together.channel.assembly().held_bytes();
            prop_assert!(taken.bytes == 0 || held_bytes < held_bytes_max.max(1), "{held_bytes}");
            let Some((_, length)) = next_frame(rest, 4096).unwrap() else { break };
            let (next, behind) = rest.split_at(length);
            rest = behind;
            let (heard, also) = (together.hears(next), one_by_one.hears(next));
            prop_assert_eq!(&heard, &also);
            if heard[0].is_err() || one_by_one.channel.state() != ChannelState::Open {
                break;
            }
            together.said.clear();
            one_by_one.said.clear();
        }
    }
}

#[test]
fn what_a_message_takes_beside_its_bytes_counts_before_it_is_complete() {
    let input = publish(b"a body");
    let mut talk = Talk::open();
    talk.hears(&input);
    let held_bytes = talk.channel.assembly().held_bytes();
    for held_bytes_max in 0..=held_bytes {
        let mut talk = Talk::open();
        let taken = talk.channel.take_messages(&input, 4096, held_bytes_max);
        assert!(!taken.has_complete, "{held_bytes} bytes are kept where {held_bytes_max} are too many");
    }
}

#[test]
fn messages_that_may_return_and_frames_of_other_channels_are_taken_one_by_one() {
    let mut talk = Talk::open();
    let (exchange, routing_key) = (Name::cut("logs"), Name::cut("a.b"));
    let mut mandatory = written(Method::BasicPublish { exchange, routing_key, mandatory: true, immediate: false });
    put_content(NUMBER, &[], b"may return", 4096, &mut mandatory);
    let mut of_other = Vec::new();
    put_content(NUMBER + 1, &[], b"other", 4096, &mut of_other);
    let plain = publish(b"plain");

    let taken = talk.channel.take_messages(&[&plain[..], &mandatory].concat(), 4096, 1 << 20);
    assert_eq!(taken, MessagesTaken { bytes: plain.len(), has_complete: true });
    assert_eq!(talk.channel.take_messages(&of_other, 4096, 1 << 20).bytes, 0);
    talk.hears(&mandatory);
    assert_eq!(
        talk.channel.take_messages(&plain, 4096, 1 << 20).bytes,
        0,
        "one that may return is counted with the next"
    );
}
