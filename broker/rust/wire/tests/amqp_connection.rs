//! The states of a connection: a whole conversation, each way in which one fails, and random events.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::connection::{Connection, Effect, Event, Limits, Phase};
use penstock_wire::amqp::frame::{Frame, FrameKind, next_frame, put_frame, put_heartbeat};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::reply::{Exception, ReplyCode};
use penstock_wire::amqp::table_writer::TableWriter;
use proptest::prelude::*;

const OFFERED: Limits = Limits { channels_max: 2047, frame_bytes_max: 131_072, heartbeat_seconds: 60 };
const AGREED: Limits = Limits { channels_max: 100, frame_bytes_max: 8192, heartbeat_seconds: 5 };

/// A connection, and everything that it has said.
struct Talk {
    connection: Connection,
    said: Vec<u8>,
}

/// The only frame of some bytes.
fn frame(bytes: &[u8]) -> Frame<'_> {
    let (frame, length) = next_frame(bytes, u32::MAX).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    frame
}

fn written(method: Method<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    method.put(0, &mut out);
    out
}

/// Properties of a client that wants to hear of everything, or of one that has named nothing.
fn client_properties(is_capable: bool) -> Vec<u8> {
    TableWriter::entries(|table| {
        table.text("product", "test");
        table.table("capabilities", |inner| {
            ["authentication_failure_close", "consumer_cancel_notify", "connection.blocked"]
                .iter()
                .for_each(|flag| inner.bool(flag, is_capable));
        });
    })
}

impl Talk {
    fn greeted() -> Talk {
        let mut said = Vec::new();
        let connection = Connection::greet(OFFERED, "PLAIN AMQPLAIN", FieldTable::default(), &mut said);
        let mut talk = Talk { connection, said };
        let (mechanisms, locales) = (LongText(b"PLAIN AMQPLAIN"), LongText(b"en_US"));
        let server_properties = FieldTable::default();
        let start =
            Method::ConnectionStart { version_major: 0, version_minor: 9, server_properties, mechanisms, locales };
        talk.says(&[start]);
        talk
    }

    fn logging_in(is_capable: bool) -> Talk {
        let mut talk = Talk::greeted();
        let properties = client_properties(is_capable);
        talk.hears(start_ok(&properties, "PLAIN"));
        assert_eq!(talk.connection.phase(), Phase::LoggingIn);
        assert!(talk.connection.is_deciding());
        talk
    }

    fn tuning() -> Talk {
        let mut talk = Talk::logging_in(true);
        talk.step(Event::LoggedIn);
        talk.says(&[Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 }]);
        talk
    }

    fn running() -> Talk {
        let mut talk = Talk::tuning();
        talk.hears(Method::ConnectionTuneOk { channel_max: 100, frame_max: 8192, heartbeat: 5 });
        talk.hears(Method::ConnectionOpen { virtual_host: Name::cut("/") });
        talk.step(Event::Entered);
        talk.says(&[Method::ConnectionOpenOk {}]);
        talk
    }

    /// An event without anything that it must do.
    fn step(&mut self, event: Event<'_>) {
        let effect = self.connection.step(event, &mut self.said);
        assert_eq!(effect, None);
    }

    /// A method of the client.
    fn hears(&mut self, method: Method<'_>) {
        let bytes = written(method);
        self.connection.step(Event::Frame(frame(&bytes)), &mut self.said);
    }

    fn ends(&mut self, event: Event<'_>) -> Option<Effect<'static>> {
        match self.connection.step(event, &mut self.said)? {
            Effect::EndChannels => Some(Effect::EndChannels),
            Effect::Close => Some(Effect::Close),
            other => panic!("{other:?}"),
        }
    }

    /// Everything that was said since the last time.
    fn says(&mut self, expected: &[Method<'_>]) {
        let (said, mut rest) = (std::mem::take(&mut self.said), Vec::new());
        expected.iter().for_each(|method| method.put(0, &mut rest));
        assert_eq!(said, rest, "expected {expected:?}");
    }

    /// The only thing that was said since the last time: a close, with its code and text.
    fn closes(&mut self) -> (u16, String) {
        let said = std::mem::take(&mut self.said);
        match Method::read(frame(&said).payload) {
            Ok(Method::ConnectionClose { reply_code, reply_text, .. }) => (reply_code, reply_text.to_text()),
            other => panic!("{other:?}"),
        }
    }
}

fn start_ok<'a>(properties: &'a [u8], mechanism: &'a str) -> Method<'a> {
    let client_properties = FieldTable::check(properties).unwrap();
    let (mechanism, response, locale) = (Name::cut(mechanism), LongText(b"\0anna\0secret"), Name::cut("en_US"));
    Method::ConnectionStartOk { client_properties, mechanism, response, locale }
}

#[test]
fn a_client_logs_in_agrees_enters_and_leaves() {
    let mut talk = Talk::greeted();
    let properties = client_properties(true);
    let bytes = written(start_ok(&properties, "PLAIN"));
    let effect = talk.connection.step(Event::Frame(frame(&bytes)), &mut talk.said);
    let client_properties = FieldTable::check(&properties).unwrap();
    let response = LongText(b"\0anna\0secret");
    let log_in = Effect::LogIn { mechanism: Name::cut("PLAIN"), response, client_properties };
    assert_eq!(effect, Some(log_in));
    assert!(talk.connection.capabilities().consumer_cancel_notify);
    talk.step(Event::LoggedIn);
    talk.says(&[Method::ConnectionTune { channel_max: 2047, frame_max: 131_072, heartbeat: 60 }]);

    talk.hears(Method::ConnectionTuneOk { channel_max: 100, frame_max: 8192, heartbeat: 5 });
    assert_eq!(talk.connection.limits(), AGREED);
    let bytes = written(Method::ConnectionOpen { virtual_host: Name::cut("shop") });
    let effect = talk.connection.step(Event::Frame(frame(&bytes)), &mut talk.said);
    assert_eq!(effect, Some(Effect::Enter { virtual_host: Name::cut("shop") }));
    talk.step(Event::Entered);
    talk.says(&[Method::ConnectionOpenOk {}]);
    assert!(talk.connection.is_running());

    let (reply_text, class, method) = (Name::cut("bye"), 0, 0);
    let bytes = written(Method::ConnectionClose { reply_code: 200, reply_text, class, method });
    assert_eq!(talk.ends(Event::Frame(frame(&bytes))), Some(Effect::EndChannels));
    talk.says(&[]);
    assert_eq!(talk.ends(Event::ChannelsEnded), Some(Effect::Close));
    talk.says(&[Method::ConnectionCloseOk {}]);
    assert_eq!(talk.connection.phase(), Phase::Over);
}

#[test]
fn a_log_in_may_take_a_challenge() {
    let mut talk = Talk::logging_in(true);
    talk.step(Event::Challenged(b"nonce"));
    talk.says(&[Method::ConnectionSecure { challenge: LongText(b"nonce") }]);

    let bytes = written(Method::ConnectionSecureOk { response: LongText(b"answer") });
    let effect = talk.connection.step(Event::Frame(frame(&bytes)), &mut talk.said);

    assert_eq!(effect, Some(Effect::Answered { response: LongText(b"answer") }));
    assert!(talk.connection.is_deciding());
}

#[test]
fn a_refused_log_in_is_told_to_clients_that_asked_for_that() {
    let refused = || {
        let text = "Login was refused using authentication mechanism PLAIN.";
        Event::Failed(Exception::of_no_method(ReplyCode::AccessRefused, text))
    };
    let mut talk = Talk::logging_in(true);
    assert_eq!(talk.ends(refused()), Some(Effect::EndChannels));
    let text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.";
    assert_eq!(talk.closes(), (403, text.to_owned()));

    let mut talk = Talk::logging_in(false);
    assert_eq!(talk.ends(refused()), Some(Effect::Close));
    talk.says(&[]);
}

#[test]
fn an_unknown_mechanism_is_refused() {
    for mechanism in ["EXTERNAL", "PLAIN AMQPLAIN", ""] {
        let mut talk = Talk::greeted();
        let properties = client_properties(true);
        talk.hears(start_ok(&properties, mechanism));
        let text = format!("COMMAND_INVALID - unknown authentication mechanism '{mechanism}'");
        assert_eq!(talk.closes(), (503, text));
    }
}

#[test]
fn limits_that_the_broker_did_not_offer_are_refused() {
    for (channel_max, frame_max, text) in [
        (0, 8192, "channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (2048, 8192, "channel_max = 2048 is higher than the maximum allowed value (2047)"),
        (100, 4095, "frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (100, 131_073, "frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (100, 0, "frame_max = 0 is higher than the maximum allowed value (131072)"),
    ] {
        let mut talk = Talk::tuning();
        talk.hears(Method::ConnectionTuneOk { channel_max, frame_max, heartbeat: 0 });

        let said = std::mem::take(&mut talk.said);
        let expected = (530, format!("NOT_ALLOWED - negotiated {text}"), (10, 30));
        match Method::read(frame(&said).payload) {
            Ok(Method::ConnectionClose { reply_code, reply_text, class, method }) => {
                assert_eq!((reply_code, reply_text.to_text(), (class, method)), expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_may_have_as_many_channels_as_were_agreed() {
    let talk = Talk::running();
    assert_eq!(talk.connection.check_channel(99), Ok(()));
    let refused = talk.connection.check_channel(100).unwrap_err().to_string();
    assert_eq!(refused, "NOT_ALLOWED - number of channels opened (100) has reached the negotiated channel_max (100)");
}

#[test]
fn a_method_at_the_wrong_time_ends_the_connection() {
    let mut talk = Talk::tuning();
    talk.hears(Method::ConnectionOpen { virtual_host: Name::cut("/") });
    assert_eq!(talk.closes(), (504, "CHANNEL_ERROR - unexpected method in connection state tuning".to_owned()));

    let mut talk = Talk::running();
    talk.hears(Method::ConnectionTuneOk { channel_max: 100, frame_max: 8192, heartbeat: 5 });
    assert_eq!(talk.closes(), (504, "CHANNEL_ERROR - unexpected method in connection state running".to_owned()));
}

#[test]
fn a_frame_that_has_no_place_ends_the_connection() {
    let cases: [(FrameKind, u16, &[u8], u16, &str); 6] = [
        (FrameKind::Header, 0, &b"abc"[..], 505, "UNEXPECTED_FRAME - type 2, all octets = [61, 62, 63]"),
        (FrameKind::Heartbeat, 1, b"", 505, "UNEXPECTED_FRAME - type 8, all octets = []"),
        (FrameKind::Method, 1, &[0, 20, 0, 40], 505, "UNEXPECTED_FRAME - type 1, all octets = [00, 14, 00, 28]"),
        (FrameKind::Heartbeat, 0, b"x", 501, "FRAME_ERROR - a heartbeat frame has a payload"),
        (FrameKind::Method, 0, &[0, 99, 0, 1], 540, "NOT_IMPLEMENTED - unknown method 99, 1 (class, method)"),
        (FrameKind::Method, 0, b"", 501, "FRAME_ERROR - a method frame of 0 bytes is too short for a method's numbers"),
    ];
    for (kind, channel, payload, code, text) in cases {
        let mut talk = Talk::tuning();
        let _ = talk.ends(Event::Frame(Frame { kind, channel, payload }));
        assert_eq!(talk.closes(), (code, text.to_owned()));
    }
}

#[test]
fn a_heartbeat_needs_no_answer() {
    let mut talk = Talk::running();
    let mut bytes = Vec::new();
    put_heartbeat(&mut bytes);

    talk.step(Event::Frame(frame(&bytes)));
    talk.says(&[]);
}

#[test]
fn after_its_close_the_broker_only_waits_for_the_end() {
    let mut talk = Talk::running();
    let exception = Exception::of_no_method(ReplyCode::ConnectionForced, "shutdown");
    assert_eq!(talk.ends(Event::Failed(exception.clone())), Some(Effect::EndChannels));
    assert_eq!(talk.closes(), (320, "CONNECTION_FORCED - shutdown".to_owned()));

    assert_eq!(talk.ends(Event::Failed(exception)), None);
    talk.hears(Method::ConnectionUpdateSecret { new_secret: LongText(b"x"), reason: Name::cut("") });
    talk.step(Event::Frame(Frame { kind: FrameKind::Body, channel: 3, payload: b"late" }));
    talk.step(Event::SecretUpdated);
    talk.says(&[]);
    let (reply_code, reply_text, class, method) = (200, Name::cut(""), 0, 0);
    talk.hears(Method::ConnectionClose { reply_code, reply_text, class, method });
    talk.says(&[Method::ConnectionCloseOk {}]);

    let bytes = written(Method::ConnectionCloseOk {});
    assert_eq!(talk.ends(Event::Frame(frame(&bytes))), Some(Effect::Close));
    assert_eq!(talk.ends(Event::Frame(frame(&bytes))), None);
}

#[test]
fn a_secret_is_updated_while_the_connection_runs() {
    let mut talk = Talk::running();
    let bytes =
        written(Method::ConnectionUpdateSecret { new_secret: LongText(b"token"), reason: Name::cut("expires") });
    let effect = talk.connection.step(Event::Frame(frame(&bytes)), &mut talk.said);
    let (secret, reason) = (LongText(b"token"), Name::cut("expires"));
    assert_eq!(effect, Some(Effect::UpdateSecret { secret, reason }));

    talk.step(Event::SecretUpdated);
    talk.says(&[Method::ConnectionUpdateSecretOk {}]);
}

#[test]
fn a_client_that_knows_of_it_is_told_when_publishers_wait() {
    let mut talk = Talk::running();
    for event in [Event::Unblocked, Event::Blocked("low on disk"), Event::Blocked("low on memory"), Event::Unblocked] {
        talk.step(event);
    }
    talk.says(&[Method::ConnectionBlocked { reason: Name::cut("low on disk") }, Method::ConnectionUnblocked {}]);

    let mut talk = Talk::logging_in(false);
    talk.step(Event::LoggedIn);
    talk.said.clear();
    talk.step(Event::Blocked("low on disk"));
    talk.says(&[]);
}

/// Any frame that a client may send at any time, well-formed or not.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let method = |method: Method<'_>| Just(written(method)).boxed();
    let close = Method::ConnectionClose { reply_code: 200, reply_text: Name::cut(""), class: 0, method: 0 };
    let properties: &'static [u8] = client_properties(true).leak();
    prop_oneof![
        method(start_ok(properties, "PLAIN")),
        method(start_ok(&[], "OTHER")),
        method(Method::ConnectionSecureOk { response: LongText(b"x") }),
        method(Method::ConnectionTuneOk { channel_max: 100, frame_max: 8192, heartbeat: 5 }),
        method(Method::ConnectionOpen { virtual_host: Name::cut("/") }),
        method(Method::ConnectionUpdateSecret { new_secret: LongText(b"x"), reason: Name::cut("") }),
        method(close),
        method(Method::ConnectionCloseOk {}),
        (0..4usize, 0..2u16, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, channel, payload)| {
            let kind = [FrameKind::Method, FrameKind::Header, FrameKind::Body, FrameKind::Heartbeat][kind];
            let mut out = Vec::new();
            put_frame(&mut out, kind, channel, |out| out.extend_from_slice(&payload));
            out
        }),
    ]
}

proptest! {
    /// Whatever comes, the moves are allowed ones (they are asserted), a close is said at most once, and nothing else after it.
    #[test]
    fn a_conversation_always_comes_to_its_end(
        steps in prop::collection::vec((0..9u8, frames()), 0..40),
    ) {
        let mut talk = Talk::greeted();
        let mut close_count = 0;
        for (step, bytes) in &steps {
            let failed = Exception::of_no_method(ReplyCode::InternalError, "it broke");
            let phase = talk.connection.phase();
            let event = match (step, phase) {
                (0, _) => Event::Failed(failed),
                (1, Phase::LoggingIn) => Event::LoggedIn,
                (2, Phase::LoggingIn) => Event::Challenged(b"nonce"),
                (1 | 2, Phase::Entering) => Event::Entered,
                (1 | 2, Phase::Ending) => Event::ChannelsEnded,
                (3, _) => Event::Blocked("disk"),
                (4, _) => Event::Unblocked,
                (5, _) => Event::SecretUpdated,
                _ if talk.connection.is_deciding() => continue,
                _ => Event::Frame(frame(bytes)),
            };
            let effect = talk.connection.step(event, &mut talk.said);
            if effect == Some(Effect::Close) {
                prop_assert_eq!(talk.connection.phase(), Phase::Over);
            }
            let said = std::mem::take(&mut talk.said);
            if said.is_empty() {
                continue;
            }
            let method = Method::read(frame(&said).payload).unwrap();
            let is_close = matches!(method, Method::ConnectionClose { .. });
            let is_answer = matches!(method, Method::ConnectionCloseOk {});
            prop_assert!(close_count == 0 || is_answer, "{:?} after the close", method);
            close_count += usize::from(is_close);
        }
        prop_assert!(close_count <= 1);
    }
}
