//! A client's way into a virtual host, said again to another broker: the client's own log-in, the limits that were agreed with it, and the
//! virtual host. No socket is in it, and no secret stays in it.
//!
//! Everything is said at once, so it takes one way there and back. The other broker answers in its turn: it greets, offers limits, and
//! opens, or closes the connection with the reason.

use super::connection::Limits;
use super::frame::{Frame, FrameKind, PROTOCOL_HEADER, put_frame};
use super::method::{Method, MethodId};
use crate::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The other broker has to greet.
    Greeting,
    /// It has to offer limits.
    Tuning,
    /// It has to let the client into the virtual host.
    Opening,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Replay {
    limits: Limits,
    phase: Phase,
}

/// How far the other broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It has more to say.
    NotYet,
    /// The client is in the virtual host.
    Opened,
    /// It refuses the client, as `connection.close` says.
    Closed { reply_code: u16, reply_text: String, method: MethodId },
}

/// Why the answers of the other broker are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("it offers lower limits than the client has")]
    LowerLimits,
    #[error("it sent what does not belong there")]
    Unexpected,
}

impl Replay {
    /// Says everything. `start_ok` is the payload of the method by which the client has logged in.
    #[must_use]
    pub fn begin(start_ok: &[u8], limits: Limits, virtual_host: Name<'_>, out: &mut Vec<u8>) -> Replay {
        let Limits { channels_max, frame_bytes_max, heartbeat_seconds } = limits;
        out.extend_from_slice(&PROTOCOL_HEADER);
        put_frame(out, FrameKind::Method, 0, |out| out.extend_from_slice(start_ok));
        let (channel_max, frame_max, heartbeat) = (channels_max, frame_bytes_max, heartbeat_seconds);
        Method::ConnectionTuneOk { channel_max, frame_max, heartbeat }.put(0, out);
        Method::ConnectionOpen { virtual_host }.put(0, out);
        Replay { limits, phase: Phase::Greeting }
    }

    /// Takes a frame of the other broker.
    ///
    /// # Errors
    /// When the connection to it is of no use.
    pub fn take(&mut self, frame: Frame<'_>) -> Result<Answered, ReplayError> {
        if frame.channel != 0 {
            return Err(ReplayError::Unexpected);
        }
        if frame.kind == FrameKind::Heartbeat {
            return Ok(Answered::NotYet);
        }
        let method = Method::read(frame.payload).map_err(|_| ReplayError::Unexpected)?;
        match (self.phase, method) {
            (Phase::Greeting, Method::ConnectionStart { .. }) => self.phase = Phase::Tuning,
            (Phase::Tuning, Method::ConnectionTune { channel_max, frame_max, heartbeat: _ }) => {
                self.check_offer(channel_max, frame_max)?;
                self.phase = Phase::Opening;
            }
            (Phase::Opening, Method::ConnectionOpenOk {}) => return Ok(Answered::Opened),
            (_, Method::ConnectionClose { reply_code, reply_text, class, method }) => {
                let (reply_text, method) = (reply_text.to_text(), MethodId { class, method });
                return Ok(Answered::Closed { reply_code, reply_text, method });
            }
            _ => return Err(ReplayError::Unexpected),
        }
        Ok(Answered::NotYet)
    }

    /// Checks that what was agreed with the client is allowed there. 0 is no limit, on both sides.
    fn check_offer(&self, channel_max: u16, frame_max: u32) -> Result<(), ReplayError> {
        let is_above = |agreed: u32, offered: u32| offered != 0 && (agreed == 0 || agreed > offered);
        let has_channels = is_above(u32::from(self.limits.channels_max), u32::from(channel_max));
        if has_channels || is_above(self.limits.frame_bytes_max, frame_max) {
            return Err(ReplayError::LowerLimits);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests {
    use super::{Answered, Replay, ReplayError};
    use crate::Name;
    use crate::amqp::argument::{FieldTable, LongText};
    use crate::amqp::connection::{Connection, Effect, Event, Limits, Phase};
    use crate::amqp::frame::{PROTOCOL_HEADER, next_frame};
    use crate::amqp::method::Method;
    use crate::amqp::reply::{Exception, ReplyCode};

    const OFFERED: Limits = Limits { channels_max: 2047, frame_bytes_max: 131_072, heartbeat_seconds: 60 };
    const AGREED: Limits = Limits { channels_max: 10, frame_bytes_max: 4096, heartbeat_seconds: 7 };

    fn start_ok() -> Vec<u8> {
        let (mechanism, locale, response) = (Name::cut("PLAIN"), Name::cut("en_US"), LongText(b"\0anna\0secret"));
        let client_properties = FieldTable::default();
        let mut out = Vec::new();
        Method::ConnectionStartOk { client_properties, mechanism, response, locale }.put(0, &mut out);
        next_frame(&out, 4096).unwrap().unwrap().0.payload.to_vec()
    }

    /// What the replay says of the answers, up to the first that ends it.
    fn answered(replay: &mut Replay, mut bytes: &[u8]) -> Result<Answered, ReplayError> {
        while let Some((frame, length)) = next_frame(bytes, 131_072).unwrap() {
            let answered = replay.take(frame)?;
            if answered != Answered::NotYet {
                return Ok(answered);
            }
            bytes = &bytes[length..];
        }
        Ok(Answered::NotYet)
    }

    /// Lets a broker take what the replay says; it lets everybody in. Returns its limits in the end, and its answers.
    fn served(offered: Limits) -> (Connection, Replay, Vec<u8>) {
        let mut said = Vec::new();
        let replay = Replay::begin(&start_ok(), AGREED, Name::cut("/"), &mut said);
        let (mut out, mut bytes) = (Vec::new(), said.strip_prefix(&PROTOCOL_HEADER).unwrap());
        let mut broker = Connection::greet(offered, "PLAIN", FieldTable::default(), &mut out);
        while let Some((frame, length)) = next_frame(bytes, 131_072).unwrap() {
            match broker.step(Event::Frame(frame), &mut out) {
                Some(Effect::LogIn { response, .. }) => {
                    assert_eq!(response, LongText(b"\0anna\0secret"));
                    broker.step(Event::LoggedIn, &mut out);
                }
                Some(Effect::Enter { virtual_host }) => {
                    assert_eq!(virtual_host, Name::cut("/"));
                    broker.step(Event::Entered, &mut out);
                }
                _ => {}
            }
            bytes = &bytes[length..];
        }
        (broker, replay, out)
    }

    #[test]
    fn the_other_broker_hears_the_client_s_log_in_and_limits() {
        let (broker, mut replay, answers) = served(OFFERED);

        assert_eq!((broker.phase(), broker.limits()), (Phase::Running, AGREED));
        assert_eq!(answered(&mut replay, &answers), Ok(Answered::Opened));
    }

    #[test]
    fn lower_limits_are_noticed_before_the_other_broker_refuses_them() {
        for lower in [Limits { channels_max: 9, ..OFFERED }, Limits { frame_bytes_max: 4095, ..OFFERED }] {
            let (_, mut replay, answers) = served(lower);
            assert_eq!(answered(&mut replay, &answers), Err(ReplayError::LowerLimits));
        }
    }

    #[test]
    fn a_refusal_is_passed_on_whenever_it_comes() {
        let refused = Exception::of_no_method(ReplyCode::AccessRefused, "not you");
        for count in 0..3 {
            let (_, mut replay, answers) = served(OFFERED);
            let mut bytes = &answers[..];
            for _ in 0..count {
                let (frame, length) = next_frame(bytes, 131_072).unwrap().unwrap();
                if replay.take(frame) == Ok(Answered::Opened) {
                    break;
                }
                bytes = &bytes[length..];
            }
            let mut close = Vec::new();
            refused.put_connection_close(&mut close);
            let Answered::Closed { reply_code, reply_text, .. } = answered(&mut replay, &close).unwrap() else {
                panic!()
            };
            assert_eq!((reply_code, reply_text.as_str()), (403, "ACCESS_REFUSED - not you"));
        }
    }

    #[test]
    fn what_does_not_belong_there_ends_it() {
        let mut replay = served(OFFERED).1;
        for (channel, method) in [(0, Method::ConnectionOpenOk {}), (1, Method::ChannelOpenOk {})] {
            let mut out = Vec::new();
            method.put(channel, &mut out);
            assert_eq!(answered(&mut replay, &out), Err(ReplayError::Unexpected));
        }
    }
}
