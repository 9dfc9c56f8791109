//! A connection as a state machine: events come, and out go bytes and what the broker has to do.
//!
//! It negotiates, and keeps the order that the protocol demands: a log-in, limits, a virtual host, then frames of channels, then an
//! end. Whoever logs in, and which virtual host it may enter, is decided elsewhere; meanwhile no frame may be taken
//! ([`Connection::is_deciding`]). Until the log-in a client only learns the reason of a failure if it has asked for that.

use super::argument::{FieldTable, LongText};
use super::frame::{FRAME_BYTES_MIN, Frame, FrameKind};
use super::method::{Method, MethodId};
use super::reply::{Exception, ReplyCode};
use crate::Name;

/// RabbitMQ names this method in refused negotiations.
const TUNE: MethodId = MethodId { class: 10, method: 30 };

/// What both sides keep to: before the negotiation what the broker offers, after it what was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Channels at a time; 0 is no limit.
    pub channels_max: u16,
    pub frame_bytes_max: u32,
    /// Between two heartbeats; 0 is none.
    pub heartbeat_seconds: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The client was greeted and has to log in.
    Starting,
    /// Its log-in is decided.
    LoggingIn,
    /// It has to answer a challenge.
    Securing,
    /// It has to agree to limits.
    Tuning,
    /// It has to name a virtual host.
    Opening,
    /// Whether it may enter the virtual host is decided.
    Entering,
    Running,
    /// The client ends it: the broker ends its channels.
    Ending,
    /// The broker has ended it and waits for the client's word.
    Closing,
    Over,
}

/// The phases that may follow each other; besides, each but the last may lead to `Closing` and to `Over`.
const MOVES: &[(Phase, Phase)] = &[
    (Phase::Starting, Phase::LoggingIn),
    (Phase::LoggingIn, Phase::Securing),
    (Phase::Securing, Phase::LoggingIn),
    (Phase::LoggingIn, Phase::Tuning),
    (Phase::Tuning, Phase::Opening),
    (Phase::Opening, Phase::Entering),
    (Phase::Entering, Phase::Running),
    (Phase::Running, Phase::Ending),
];

/// Capabilities that a client has told of in its log-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub authentication_failure_close: bool,
    pub consumer_cancel_notify: bool,
    pub connection_blocked: bool,
}

impl Capabilities {
    fn of(client_properties: FieldTable<'_>) -> Capabilities {
        let has = |flag| client_properties.has_flag("capabilities", flag);
        Capabilities {
            authentication_failure_close: has("authentication_failure_close"),
            consumer_cancel_notify: has("consumer_cancel_notify"),
            connection_blocked: has("connection.blocked"),
        }
    }
}

/// What happens to a connection.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A frame of channel 0.
    Frame(Frame<'a>),
    LoggedIn,
    /// The log-in needs an answer to this.
    Challenged(&'a [u8]),
    /// The client may enter the virtual host.
    Entered,
    SecretUpdated,
    /// Something went wrong: a log-in, a frame that cannot be read, a channel, or an administrator closes the connection.
    Failed(Exception),
    /// All channels have ended, as the client wished.
    ChannelsEnded,
    /// Publishers have to wait, for this reason. A client is told that enters later, by another event.
    Blocked(&'a str),
    Unblocked,
}

/// What the broker has to do. Whatever was written before goes out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Decide a log-in, or the answer to a challenge, and say so by an event.
    LogIn {
        mechanism: Name<'a>,
        response: LongText<'a>,
        client_properties: FieldTable<'a>,
    },
    Answered {
        response: LongText<'a>,
    },
    /// Decide whether the client may enter a virtual host.
    Enter {
        virtual_host: Name<'a>,
    },
    /// Look at a new password or token of the client.
    UpdateSecret {
        secret: LongText<'a>,
        reason: Name<'a>,
    },
    /// End all channels.
    EndChannels,
    /// Close the socket.
    Close,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Connection {
    phase: Phase,
    limits: Limits,
    capabilities: Capabilities,
    /// The mechanisms that were offered, with a space between.
    mechanisms: &'static str,
    is_blocked: bool,
}

impl Connection {
    /// Greets a client that has sent a served header.
    #[must_use]
    pub fn greet(
        offered: Limits,
        mechanisms: &'static str,
        server_properties: FieldTable<'_>,
        out: &mut Vec<u8>,
    ) -> Connection {
        let (mechanism, locales) = (LongText(mechanisms.as_bytes()), LongText(b"en_US"));
        let (version_major, version_minor) = (0, 9);
        Method::ConnectionStart { version_major, version_minor, server_properties, mechanisms: mechanism, locales }
            .put(0, out);
        let (phase, capabilities) = (Phase::Starting, Capabilities::default());
        Connection { phase, limits: offered, capabilities, mechanisms, is_blocked: false }
    }

    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Return whether no frame may be taken, because something is decided.
    #[must_use]
    pub fn is_deciding(&self) -> bool {
        matches!(self.phase, Phase::LoggingIn | Phase::Entering | Phase::Ending)
    }

    /// Return what both sides keep to.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Checks whether a client with `open_count` channels may open one more.
    ///
    /// # Errors
    /// When it has as many as were agreed.
    pub fn check_channel(&self, open_count: usize) -> Result<(), Exception> {
        let max = self.limits.channels_max;
        if max == 0 || open_count < usize::from(max) {
            return Ok(());
        }
        let text = format!("number of channels opened ({open_count}) has reached the negotiated channel_max ({max})");
        Err(Exception::of_no_method(ReplyCode::NotAllowed, text))
    }

    /// Takes an event; appends what the client hears of it.
    pub fn step<'a>(&mut self, event: Event<'a>, out: &mut Vec<u8>) -> Option<Effect<'a>> {
        match event {
            Event::Frame(frame) => match self.take(frame, out) {
                Ok(effect) => effect,
                Err(exception) => self.fail(&exception, out),
            },
            Event::LoggedIn => {
                self.enter(Phase::Tuning);
                let Limits { channels_max, frame_bytes_max, heartbeat_seconds } = self.limits;
                let (channel_max, frame_max, heartbeat) = (channels_max, frame_bytes_max, heartbeat_seconds);
                Method::ConnectionTune { channel_max, frame_max, heartbeat }.put(0, out);
                None
            }
            Event::Challenged(challenge) => {
                self.enter(Phase::Securing);
                Method::ConnectionSecure { challenge: LongText(challenge) }.put(0, out);
                None
            }
            Event::Entered => {
                self.enter(Phase::Running);
                Method::ConnectionOpenOk {}.put(0, out);
                None
            }
            Event::SecretUpdated => {
                self.put_while_running(Method::ConnectionUpdateSecretOk {}, out);
                None
            }
            Event::Failed(exception) => self.fail(&exception, out),
            Event::ChannelsEnded => {
                self.enter(Phase::Over);
                Method::ConnectionCloseOk {}.put(0, out);
                Some(Effect::Close)
            }
            Event::Blocked(reason) => {
                let is_told = self.is_running() && self.capabilities.connection_blocked;
                if is_told && !std::mem::replace(&mut self.is_blocked, true) {
                    self.put_while_running(Method::ConnectionBlocked { reason: Name::cut(reason) }, out);
                }
                None
            }
            Event::Unblocked => {
                if std::mem::replace(&mut self.is_blocked, false) {
                    self.put_while_running(Method::ConnectionUnblocked {}, out);
                }
                None
            }
        }
    }

    fn put_while_running(&self, method: Method<'_>, out: &mut Vec<u8>) {
        if self.is_running() {
            method.put(0, out);
        }
    }

    fn take<'a>(&mut self, frame: Frame<'a>, out: &mut Vec<u8>) -> Result<Option<Effect<'a>>, Exception> {
        if matches!(self.phase, Phase::Closing | Phase::Over) {
            return Ok(self.take_late(frame, out));
        }
        if frame.channel != 0 || !matches!(frame.kind, FrameKind::Method | FrameKind::Heartbeat) {
            return Err(unexpected(frame));
        }
        if frame.kind == FrameKind::Heartbeat {
            if frame.payload.is_empty() {
                return Ok(None);
            }
            return Err(Exception::of_no_method(ReplyCode::FrameError, "a heartbeat frame has a payload"));
        }
        let method = Method::read(frame.payload)?;
        match (self.phase, method) {
            (Phase::Starting, Method::ConnectionStartOk { client_properties, mechanism, response, .. }) => {
                self.capabilities = Capabilities::of(client_properties);
                if !self.mechanisms.split(' ').any(|offered| offered.as_bytes() == mechanism.as_bytes()) {
                    let text = format!("unknown authentication mechanism '{}'", mechanism.to_text());
                    return Err(Exception::new(ReplyCode::CommandInvalid, text, method.id()));
                }
                self.enter(Phase::LoggingIn);
                Ok(Some(Effect::LogIn { mechanism, response, client_properties }))
            }
            (Phase::Securing, Method::ConnectionSecureOk { response }) => {
                self.enter(Phase::LoggingIn);
                Ok(Some(Effect::Answered { response }))
            }
            (Phase::Tuning, Method::ConnectionTuneOk { channel_max, frame_max, heartbeat }) => {
                self.limits = agree(self.limits, channel_max, frame_max, heartbeat)?;
                self.enter(Phase::Opening);
                Ok(None)
            }
            (Phase::Opening, Method::ConnectionOpen { virtual_host }) => {
                self.enter(Phase::Entering);
                Ok(Some(Effect::Enter { virtual_host }))
            }
            (Phase::Running, Method::ConnectionUpdateSecret { new_secret, reason }) => {
                Ok(Some(Effect::UpdateSecret { secret: new_secret, reason }))
            }
            (Phase::Running, Method::ConnectionClose { .. }) => {
                self.enter(Phase::Ending);
                Ok(Some(Effect::EndChannels))
            }
            (Phase::Tuning | Phase::Opening, Method::ConnectionClose { .. }) => {
                self.enter(Phase::Over);
                Method::ConnectionCloseOk {}.put(0, out);
                Ok(Some(Effect::Close))
            }
            _ => {
                let text = format!("unexpected method in connection state {}", self.phase.name());
                Err(Exception::new(ReplyCode::ChannelError, text, method.id()))
            }
        }
    }

    /// A frame after the broker has closed the connection: only the end of it matters.
    fn take_late(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Option<Effect<'static>> {
        let is_method = frame.channel == 0 && frame.kind == FrameKind::Method;
        match Method::read(frame.payload) {
            Ok(Method::ConnectionClose { .. }) if is_method => {
                Method::ConnectionCloseOk {}.put(0, out);
                None
            }
            Ok(Method::ConnectionCloseOk {}) if is_method && self.phase == Phase::Closing => {
                self.enter(Phase::Over);
                Some(Effect::Close)
            }
            _ => None,
        }
    }

    fn fail(&mut self, exception: &Exception, out: &mut Vec<u8>) -> Option<Effect<'static>> {
        match self.phase {
            Phase::Closing | Phase::Over => None,
            Phase::Starting | Phase::LoggingIn | Phase::Securing if !self.capabilities.authentication_failure_close => {
                self.enter(Phase::Over);
                Some(Effect::Close)
            }
            _ => {
                self.enter(Phase::Closing);
                exception.put_connection_close(out);
                Some(Effect::EndChannels)
            }
        }
    }

    fn enter(&mut self, phase: Phase) {
        let may_end = self.phase != Phase::Over && matches!(phase, Phase::Closing | Phase::Over);
        debug_assert!(may_end || MOVES.contains(&(self.phase, phase)), "{:?} to {phase:?}", self.phase);
        self.phase = phase;
    }
}

impl Phase {
    /// The name that RabbitMQ has for it in errors.
    fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::LoggingIn | Phase::Securing => "securing",
            Phase::Tuning => "tuning",
            Phase::Opening | Phase::Entering => "opening",
            Phase::Running => "running",
            Phase::Ending => "closing",
            Phase::Closing | Phase::Over => "closed",
        }
    }
}

/// The exception for a frame that has no place where it comes.
#[cold]
fn unexpected(frame: Frame<'_>) -> Exception {
    let shown = if frame.payload.len() <= 16 { "all" } else { "first 16" };
    let snippet = frame.payload.get(..frame.payload.len().min(16)).unwrap_or_default();
    let text = format!("type {}, {shown} octets = {snippet:02x?}", frame.kind as u8);
    Exception::of_no_method(ReplyCode::UnexpectedFrame, text)
}

/// Return the limits that a client has chosen.
fn agree(offered: Limits, channels_max: u16, frame_max: u32, heartbeat: u16) -> Result<Limits, Exception> {
    let offered_channels = u32::from(offered.channels_max);
    check_negotiated("frame_max", frame_max, FRAME_BYTES_MIN, offered.frame_bytes_max)?;
    check_negotiated("channel_max", u32::from(channels_max), 1, offered_channels)?;
    Ok(Limits { channels_max, frame_bytes_max: frame_max, heartbeat_seconds: heartbeat })
}

/// 0 is no limit, on both sides.
fn check_negotiated(what: &str, chosen: u32, min: u32, max: u32) -> Result<(), Exception> {
    let (than, bound, limit) = match chosen {
        1.. if chosen < min => ("lower", "minimum", min),
        _ if max != 0 && (chosen == 0 || chosen > max) => ("higher", "maximum", max),
        _ => return Ok(()),
    };
    let detail = if what == "channel_max" && chosen == 0 { " (no limit)" } else { "" };
    let text = format!("negotiated {what} = {chosen}{detail} is {than} than the {bound} allowed value ({limit})");
    Err(Exception::new(ReplyCode::NotAllowed, text, TUNE))
}
