//! All that a client of AMQP 0-9-1 sends, from the header on: no bytes panic, everything that the broker says is whole frames with
//! methods that can be read, and a client has no more channels and holds no more bytes than it may. The first byte decides what
//! the broker decides: log-ins, virtual hosts, and what is refused on channels.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use penstock_wire::amqp::argument::FieldTable;
use penstock_wire::amqp::channel::{Channel, ChannelState, Received};
use penstock_wire::amqp::connection::{Connection, Effect, Event, Limits, Phase};
use penstock_wire::amqp::frame::{Frame, FrameKind, PROTOCOL_HEADER, is_served, next_frame};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::reply::{Exception, ReplyCode};

const OFFERED: Limits = Limits { channels_max: 7, frame_bytes_max: 8192, heartbeat_seconds: 60 };
const BODY_BYTES_MAX: u64 = 1000;

/// Bits of the first byte.
const REFUSES_LOG_INS: u8 = 1;
const REFUSES_VHOSTS: u8 = 2;
const REFUSES_METHODS: u8 = 4;
const CHALLENGES: u8 = 8;

struct Talk {
    connection: Connection,
    channels: BTreeMap<u16, Channel>,
    decisions: u8,
    said: Vec<u8>,
    is_over: bool,
}

impl Talk {
    fn greet(decisions: u8) -> Talk {
        let mut said = Vec::new();
        let connection = Connection::greet(OFFERED, "PLAIN AMQPLAIN", FieldTable::default(), &mut said);
        Talk { connection, channels: BTreeMap::new(), decisions, said, is_over: false }
    }

    fn step(&mut self, event: Event<'_>) {
        let refused = || Event::Failed(Exception::of_no_method(ReplyCode::AccessRefused, "refused"));
        let decisions = self.decisions;
        let decide = |bit| decisions & bit != 0;
        let next = match self.connection.step(event, &mut self.said) {
            None => return,
            Some(Effect::LogIn { .. }) if decide(CHALLENGES) => Event::Challenged(b"who"),
            Some(Effect::LogIn { .. } | Effect::Answered { .. }) if decide(REFUSES_LOG_INS) => refused(),
            Some(Effect::LogIn { .. } | Effect::Answered { .. }) => Event::LoggedIn,
            Some(Effect::Enter { .. }) if decide(REFUSES_VHOSTS) => refused(),
            Some(Effect::Enter { .. }) => Event::Entered,
            Some(Effect::UpdateSecret { .. }) => Event::SecretUpdated,
            Some(Effect::EndChannels) => {
                self.channels.clear();
                if self.connection.phase() != Phase::Ending {
                    return;
                }
                Event::ChannelsEnded
            }
            Some(Effect::Close) => {
                self.is_over = true;
                return;
            }
        };
        self.step(next);
    }

    fn take(&mut self, frame: Frame<'_>) {
        if frame.channel == 0 || !self.connection.is_running() {
            return self.step(Event::Frame(frame));
        }
        let number = frame.channel;
        if !self.channels.contains_key(&number) {
            if let Err(exception) = self.connection.check_channel(self.channels.len()) {
                return self.step(Event::Failed(exception));
            }
            self.channels.insert(number, Channel::new(number, BODY_BYTES_MAX));
        }
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let exception = match channel.take(frame, &mut self.said) {
            Ok(Received::Ends) => {
                channel.ended(&mut self.said);
                self.channels.remove(&number);
                return;
            }
            Ok(Received::Over) => {
                self.channels.remove(&number);
                return;
            }
            Ok(Received::Method(method)) if self.decisions & REFUSES_METHODS != 0 => {
                Exception::new(ReplyCode::NotFound, "refused", method.id())
            }
            Ok(_) => return,
            Err(exception) => exception,
        };
        if exception.ends_connection() {
            return self.step(Event::Failed(exception));
        }
        channel.fail(&exception, &mut self.said);
        assert_eq!(channel.state(), ChannelState::Closing);
    }

    fn check(&self, sent: usize) {
        assert!(self.channels.len() <= usize::from(OFFERED.channels_max));
        let held: usize = self.channels.values().map(|channel| channel.assembly().held_bytes()).sum();
        assert!(held <= sent);
    }
}

fn check_said(mut said: &[u8]) {
    while let Some((frame, length)) = next_frame(said, u32::MAX).expect("it says frames") {
        assert_eq!(frame.kind, FrameKind::Method);
        Method::read(frame.payload).expect("it says methods");
        said = &said[length..];
    }
    assert!(said.is_empty(), "it says whole frames");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((decisions, mut sent)) = bytes.split_first() else { return };
    if is_served(sent) != Some(true) {
        return;
    }
    sent = &sent[PROTOCOL_HEADER.len()..];
    let mut talk = Talk::greet(*decisions);
    while !talk.is_over {
        match next_frame(sent, talk.connection.limits().frame_bytes_max) {
            Ok(Some((frame, length))) => {
                talk.take(frame);
                sent = &sent[length..];
            }
            Ok(None) => break,
            Err(error) => {
                talk.step(Event::Failed(error.into()));
                break;
            }
        }
        talk.check(bytes.len());
    }
    check_said(&talk.said);
});
