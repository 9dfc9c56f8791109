//! One channel of a connection as a state machine: a frame comes, and out go bytes and what the broker has to do about it.
//!
//! It keeps the order that the protocol demands: opened before it is used, a content whole before the next method, confirms and
//! transactions never both, silence after an exception until the client has confirmed it. It knows no exchange, queue or right: what
//! a method wants is for its caller to decide. An exception that [`ends the connection`](Exception::ends_connection) is for the
//! connection's machine; for any other one the caller calls [`Channel::fail`].

use super::assembly::Assembly;
use super::frame::{Frame, FrameKind, next_frame};
use super::method::{Method, MethodId};
use super::reply::{Exception, ReplyCode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// It was named and not opened yet.
    New,
    Open,
    /// The client closes it; it is over when the broker has ended what belongs to it.
    Ending,
    /// The broker has closed it and waits for the client's word.
    Closing,
    Over,
}

/// The states that may follow each other.
const MOVES: &[(ChannelState, ChannelState)] = &[
    (ChannelState::New, ChannelState::Open),
    (ChannelState::New, ChannelState::Closing),
    (ChannelState::Open, ChannelState::Ending),
    (ChannelState::Open, ChannelState::Closing),
    (ChannelState::Ending, ChannelState::Over),
    (ChannelState::Closing, ChannelState::Over),
];

/// What publishes and acks of a channel are part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Plain,
    /// Each publish is answered.
    Confirms,
    Transactions,
}

/// What the broker has to do about a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Nothing: more frames have to come, or the answer is written already.
    Nothing,
    /// A request of the client.
    Method(Method<'a>),
    /// One more message is complete in the assembly.
    Published,
    /// The client closes the channel: end what belongs to it, then call [`Channel::ended`].
    Ends,
    /// Its number is free again.
    Over,
}

/// The payload of `basic.publish` begins like this.
const PUBLISH: [u8; 4] = [0, 60, 0, 40];

/// What [`Channel::take_messages`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagesTaken {
    /// Of whole frames.
    pub bytes: usize,
    /// Whether a message is complete that was not before.
    pub has_complete: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Channel {
    number: u16,
    state: ChannelState,
    mode: Mode,
    assembly: Assembly,
}

impl Channel {
    #[must_use]
    pub fn new(number: u16, body_bytes_max: u64) -> Channel {
        Channel { number, state: ChannelState::New, mode: Mode::Plain, assembly: Assembly::new(body_bytes_max) }
    }

    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.state
    }

    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Messages that are complete or begun.
    #[must_use]
    pub fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    pub fn assembly_mut(&mut self) -> &mut Assembly {
        &mut self.assembly
    }

    /// Takes the next frame of its number; appends answers that need no decision.
    ///
    /// # Errors
    /// What the client did wrong. See the module about who closes what.
    #[inline]
    pub fn take<'a>(&mut self, frame: Frame<'a>, out: &mut Vec<u8>) -> Result<Received<'a>, Exception> {
        if self.state != ChannelState::Open {
            return self.take_unopened(frame, out);
        }
        if self.assembly.expects_content() {
            return Ok(if self.assembly.take(frame)? { Received::Published } else { Received::Nothing });
        }
        if frame.kind != FrameKind::Method {
            return Err(self.assembly.unexpected());
        }
        let method = Method::read(frame.payload)?;
        if let Method::BasicPublish { exchange, routing_key, mandatory, immediate: false } = method {
            self.assembly.begin(exchange, routing_key, mandatory);
            return Ok(Received::Nothing);
        }
        self.take_method(method, out)
    }

    /// Takes the frames of messages that `input` begins with: many calls of [`Channel::take`] in one. It ends before everything that
    /// needs more than being kept: another channel's frame or another method, a message that may return, a frame that is refused,
    /// and one with which the channel might hold `held_bytes_max`.
    pub fn take_messages(&mut self, input: &[u8], frame_bytes_max: u32, held_bytes_max: usize) -> MessagesTaken {
        let mut taken = MessagesTaken { bytes: 0, has_complete: false };
        if self.state != ChannelState::Open || self.mode == Mode::Transactions {
            return taken;
        }
        while let Ok(Some((frame, length))) = next_frame(input.get(taken.bytes..).unwrap_or_default(), frame_bytes_max)
        {
            let is_much = self.assembly.held_bytes_with(&frame) >= held_bytes_max;
            if frame.channel != self.number || is_much || self.assembly.may_return() {
                break;
            }
            if self.assembly.expects_content() {
                // A frame that is refused changes nothing.
                let Ok(is_complete) = self.assembly.take(frame) else { break };
                taken.has_complete |= is_complete;
            } else {
                let is_publish = frame.kind == FrameKind::Method && frame.payload.starts_with(&PUBLISH);
                let method = if is_publish { Method::read(frame.payload) } else { break };
                let Ok(Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false }) = method
                else {
                    break;
                };
                self.assembly.begin(exchange, routing_key, false);
            }
            taken.bytes += length;
        }
        taken
    }

    fn take_method<'a>(&mut self, method: Method<'a>, out: &mut Vec<u8>) -> Result<Received<'a>, Exception> {
        use ReplyCode::{ChannelError, CommandInvalid, NotImplemented};
        let refused = |code, text: &str| Err(Exception::new(code, text, method.id()));
        match method {
            Method::ChannelOpen {} => return refused(ChannelError, "second 'channel.open' seen"),
            Method::ChannelClose { .. } => {
                self.enter(ChannelState::Ending);
                return Ok(Received::Ends);
            }
            Method::BasicPublish { .. } => return refused(NotImplemented, "immediate=true"),
            Method::ConfirmSelect { nowait } => {
                self.select(Mode::Confirms, method.id())?;
                if !nowait {
                    Method::ConfirmSelectOk {}.put(self.number, out);
                }
                return Ok(Received::Nothing);
            }
            Method::TxSelect {} => self.select(Mode::Transactions, method.id())?,
            Method::TxCommit {} | Method::TxRollback {} if self.mode != Mode::Transactions => {
                return refused(ReplyCode::PreconditionFailed, "channel is not transactional");
            }
            _ if !is_request(&method) => return refused(CommandInvalid, "unimplemented method"),
            _ => {}
        }
        Ok(Received::Method(method))
    }

    fn select(&mut self, mode: Mode, id: MethodId) -> Result<(), Exception> {
        let text = match (self.mode, mode) {
            (Mode::Confirms, Mode::Transactions) => "cannot switch from confirm to tx mode",
            (Mode::Transactions, Mode::Confirms) => "cannot switch from tx to confirm mode",
            _ => {
                self.mode = mode;
                return Ok(());
            }
        };
        Err(Exception::new(ReplyCode::PreconditionFailed, text, id))
    }

    /// A frame before the channel is open, or when it is not any more.
    fn take_unopened<'a>(&mut self, frame: Frame<'a>, out: &mut Vec<u8>) -> Result<Received<'a>, Exception> {
        let is_method = frame.kind == FrameKind::Method;
        if self.state != ChannelState::New {
            // Whatever was on its way when the channel was closed is passed over, well-formed or not.
            let method = if is_method { Method::read(frame.payload).ok() } else { None };
            match method {
                Some(Method::ChannelCloseOk {}) if self.state == ChannelState::Closing => {
                    self.enter(ChannelState::Over);
                    return Ok(Received::Over);
                }
                Some(Method::ChannelClose { .. }) if self.state == ChannelState::Closing => {
                    Method::ChannelCloseOk {}.put(self.number, out);
                }
                _ => {}
            }
            return Ok(Received::Nothing);
        }
        if !is_method {
            return Err(self.assembly.unexpected());
        }
        let method = Method::read(frame.payload)?;
        let Method::ChannelOpen {} = method else {
            return Err(Exception::new(ReplyCode::ChannelError, "expected 'channel.open'", method.id()));
        };
        self.enter(ChannelState::Open);
        Method::ChannelOpenOk {}.put(self.number, out);
        Ok(Received::Nothing)
    }

    /// Closes the channel with an exception; it is silent until the client has confirmed that. Messages that were not taken yet are
    /// dropped, and answered by nothing.
    pub fn fail(&mut self, exception: &Exception, out: &mut Vec<u8>) {
        debug_assert!(!exception.ends_connection());
        if !matches!(self.state, ChannelState::New | ChannelState::Open) {
            return;
        }
        self.enter(ChannelState::Closing);
        self.assembly.clear();
        exception.put_channel_close(self.number, out);
    }

    /// Answers a client that has closed the channel, after everything that belonged to it has ended.
    pub fn ended(&mut self, out: &mut Vec<u8>) {
        if self.state == ChannelState::Ending {
            self.enter(ChannelState::Over);
            Method::ChannelCloseOk {}.put(self.number, out);
        }
    }

    fn enter(&mut self, state: ChannelState) {
        debug_assert!(MOVES.contains(&(self.state, state)), "{:?} to {state:?}", self.state);
        self.state = state;
    }
}

/// Whether clients send a method on a channel. Answers of clients are none: the broker asks nothing on channels but to close them.
fn is_request(method: &Method<'_>) -> bool {
    use Method as M;
    matches!(
        method,
        M::ChannelFlow { .. }
            | M::ChannelFlowOk { .. }
            | M::ExchangeDeclare { .. }
            | M::ExchangeDelete { .. }
            | M::ExchangeBind { .. }
            | M::ExchangeUnbind { .. }
            | M::QueueDeclare { .. }
            | M::QueueBind { .. }
            | M::QueuePurge { .. }
            | M::QueueDelete { .. }
            | M::QueueUnbind { .. }
            | M::BasicQos { .. }
            | M::BasicConsume { .. }
            | M::BasicCancel { .. }
            | M::BasicCancelOk { .. }
            | M::BasicGet { .. }
            | M::BasicAck { .. }
            | M::BasicReject { .. }
            | M::BasicRecoverAsync { .. }
            | M::BasicRecover { .. }
            | M::BasicNack { .. }
            | M::TxSelect { .. }
            | M::TxCommit { .. }
            | M::TxRollback { .. }
    )
}
