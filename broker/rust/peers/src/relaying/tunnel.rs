//! A relay as bytes in both directions: [`Tunnel`] is read and written like a socket, and its bytes travel as [`Message`]s of a call.
//!
//! Invariants: a side sends no more bytes than the other one has granted, and grants no more than its window has room for. So what has
//! come and was not read is bounded for each relay, and a relay whose bytes are not read holds up neither another one nor the
//! connection. Whoever sends more than it was granted has its relay broken. Small messages are joined, so that a client that sends
//! single bytes takes no more memory than their number.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tonic::Status;

use crate::links::lock;
use crate::relaying::seats::{Seat, WINDOW_BYTES_MIN};
use crate::session::text_of;

/// How long a relay that was left waits for the other side to end it, too.
const LINGER: Duration = Duration::from_secs(1);
/// The bytes of one message, at most.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Messages of fewer bytes are joined while they are not read.
const SMALL_BYTES: usize = 1 << 10;

/// A message of a relay, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Bytes(Bytes),
    /// So many more bytes may be sent.
    Grant(u32),
    /// No more bytes come; grants still do.
    End,
}

/// How the other side's bytes stand.
#[derive(Debug)]
enum Incoming {
    Open,
    Ended,
    Failed(String),
}

#[derive(Debug)]
struct State {
    incoming: Incoming,
    /// The other side sends nothing more, not even grants.
    is_gone: bool,
    /// Bytes that came and were not read.
    unread: VecDeque<Bytes>,
    /// The last of them, of small messages.
    joined: BytesMut,
    unread_bytes: usize,
    /// How many bytes the other side may still send, including grants that it has not received yet.
    granted: usize,
    /// The part of it that has to be said.
    unsaid: usize,
    /// How many bytes this side may still send.
    credit: usize,
    /// Bytes that were written and not sent.
    unsent: BytesMut,
    /// Nothing more is written.
    is_shut: bool,
    /// That was sent.
    has_ended: bool,
    /// The tunnel was dropped.
    is_left: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

type Shared = Arc<(Mutex<State>, Seat)>;

/// See the module. Its end is that of the relay: dropping it ends the call.
#[derive(Debug)]
pub struct Tunnel(Shared);

/// The messages to be sent, for the transport.
pub(crate) struct Outgoing(Shared);

/// Takes the messages that come.
pub(crate) struct Receiver(Shared);

/// The parts of one side of a relay, which has a seat until all of them are dropped.
pub(crate) fn tunnel(seat: Seat) -> (Tunnel, Outgoing, Receiver) {
    let mut state = State {
        incoming: Incoming::Open,
        is_gone: false,
        unread: VecDeque::new(),
        joined: BytesMut::new(),
        unread_bytes: 0,
        granted: WINDOW_BYTES_MIN,
        unsaid: 0,
        credit: WINDOW_BYTES_MIN,
        unsent: BytesMut::new(),
        is_shut: false,
        has_ended: false,
        is_left: false,
        reader: None,
        writer: None,
        sender: None,
        receiver: None,
    };
    state.grant(seat.window_bytes());
    let shared = Arc::new((Mutex::new(state), seat));
    (Tunnel(Arc::clone(&shared)), Outgoing(Arc::clone(&shared)), Receiver(shared))
}

impl State {
    /// Grants what a window has room for, when that is worth a message.
    fn grant(&mut self, window: usize) {
        let more = window.saturating_sub(self.granted.saturating_add(self.unread_bytes));
        if more >= window / 4 && matches!(self.incoming, Incoming::Open) {
            self.granted += more;
            self.unsaid += more;
            wake(&mut self.sender);
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Grant(more) => {
                self.credit = self.credit.saturating_add(more as usize);
                wake(&mut self.writer);
            }
            Message::End => self.end(Incoming::Ended),
            Message::Bytes(bytes) => match self.granted.checked_sub(bytes.len()) {
                // No reader is left.
                Some(_) if self.is_left || bytes.is_empty() => {}
                Some(rest) => {
                    self.granted = rest;
                    self.unread_bytes += bytes.len();
                    self.keep(bytes);
                    wake(&mut self.reader);
                }
                None => self.end(Incoming::Failed("the other broker sent more than it was granted".to_owned())),
            },
        }
    }

    /// Keeps bytes until they are read.
    fn keep(&mut self, bytes: Bytes) {
        if bytes.len() < SMALL_BYTES {
            self.joined.extend_from_slice(&bytes);
        } else {
            self.close_joined();
            self.unread.push_back(bytes);
        }
    }

    /// Nothing more is joined with what is there.
    fn close_joined(&mut self) {
        if !self.joined.is_empty() {
            self.unread.push_back(std::mem::take(&mut self.joined).freeze());
        }
    }

    fn end(&mut self, how: Incoming) {
        if matches!(self.incoming, Incoming::Open) {
            self.incoming = how;
            wake(&mut self.reader);
            wake(&mut self.writer);
            wake(&mut self.sender);
        }
    }

    fn read(&mut self, into: &mut ReadBuf<'_>) -> usize {
        let before = into.remaining();
        if self.unread.is_empty() {
            self.close_joined();
        }
        while let Some(first) = self.unread.front_mut() {
            let count = first.len().min(into.remaining());
            into.put_slice(first.get(..count).unwrap_or_default());
            first.advance(count);
            if !first.is_empty() {
                break;
            }
            self.unread.pop_front();
            if self.unread.is_empty() {
                self.close_joined();
            }
        }
        let count = before - into.remaining();
        self.unread_bytes -= count;
        count
    }

    /// Nothing more comes.
    fn gone(&mut self, how: Incoming) {
        self.end(how);
        self.is_gone = true;
        wake(&mut self.writer);
        wake(&mut self.sender);
    }

    /// Whether nothing more has to be sent.
    fn is_over(&self) -> bool {
        let is_done = self.has_ended && (self.is_left || !matches!(self.incoming, Incoming::Open));
        is_done || self.is_gone || self.broken().is_some()
    }

    fn broken(&self) -> Option<Error> {
        match &self.incoming {
            Incoming::Failed(reason) => Some(Error::new(ErrorKind::ConnectionReset, reason.clone())),
            Incoming::Open | Incoming::Ended => None,
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let (state, seat) = &*self.0;
        let mut state = lock(state);
        if state.read(into) > 0 || into.remaining() == 0 {
            state.grant(seat.window_bytes());
            return Poll::Ready(Ok(()));
        }
        match &state.incoming {
            Incoming::Ended => Poll::Ready(Ok(())),
            Incoming::Failed(reason) => Poll::Ready(Err(Error::new(ErrorKind::ConnectionReset, reason.clone()))),
            Incoming::Open => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut state = lock(&self.0.0);
        if let Some(broken) = state.broken() {
            return Poll::Ready(Err(broken));
        }
        if state.is_shut || state.is_gone {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        if state.credit == 0 && !bytes.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let part = bytes.get(..state.credit).unwrap_or(bytes);
        state.credit -= part.len();
        state.unsent.extend_from_slice(part);
        wake(&mut state.sender);
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        // What was written is sent in any case.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = lock(&self.0.0);
        state.is_shut = true;
        wake(&mut state.sender);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        (state.is_shut, state.is_left) = (true, true);
        (state.unread, state.joined) = (VecDeque::new(), BytesMut::new());
        wake(&mut state.sender);
        wake(&mut state.receiver);
    }
}

impl Stream for Outgoing {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        let (state, seat) = &*self.0;
        let mut state = lock(state);
        if state.unsaid > 0 {
            let more = u32::try_from(std::mem::take(&mut state.unsaid)).unwrap_or(u32::MAX);
            return Poll::Ready(Some(Message::Grant(more)));
        }
        if !state.unsent.is_empty() {
            let count = state.unsent.len().min(MESSAGE_BYTES_MAX);
            let bytes = state.unsent.split_to(count).freeze();
            seat.note_sent(bytes.len());
            return Poll::Ready(Some(Message::Bytes(bytes)));
        }
        if state.is_shut && !state.has_ended {
            state.has_ended = true;
            wake(&mut state.receiver);
            return Poll::Ready(Some(Message::End));
        }
        if state.is_over() {
            return Poll::Ready(None);
        }
        state.sender = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Receiver {
    /// Takes messages until they end, or the tunnel is dropped.
    pub async fn run(self, mut messages: impl Stream<Item = std::result::Result<Message, Status>> + Unpin) {
        let (state, seat) = &*self.0;
        loop {
            let next = tokio::select! {
                biased;
                next = messages.next() => next,
                () = until_left(state) => {
                    // Until the other side has what was sent: a call that is dropped may take it back.
                    let _ = timeout(LINGER, async { while let Some(Ok(_)) = messages.next().await {} }).await;
                    return;
                }
            };
            let mut state = lock(state);
            match next {
                Some(Ok(message)) => {
                    if let Message::Bytes(bytes) = &message {
                        seat.note_received(bytes.len());
                    }
                    state.receive(message);
                    if state.broken().is_some() {
                        return;
                    }
                }
                Some(Err(status)) => return state.gone(Incoming::Failed(text_of(&status))),
                None => return state.gone(Incoming::Ended),
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.gone(Incoming::Failed("the connection between the brokers ended".to_owned()));
    }
}

/// Waits until the tunnel is dropped and all written bytes are sent.
async fn until_left(state: &Mutex<State>) {
    std::future::poll_fn(|context| {
        let mut state = lock(state);
        if state.is_left && state.has_ended {
            return Poll::Ready(());
        }
        state.receiver = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::stream::iter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::relaying::seats::Seats;

    fn parts() -> (Tunnel, Outgoing, Receiver) {
        tunnel(Arc::new(Seats::default()).take().unwrap())
    }

    /// Messages that come, after which nothing more does.
    async fn receive(receiver: Receiver, messages: impl IntoIterator<Item = Message>) {
        let messages: Vec<_> = messages.into_iter().map(Ok).collect();
        receiver.run(iter(messages)).await;
    }

    fn bytes(count: usize) -> Message {
        Message::Bytes(vec![1; count].into())
    }

    fn sent(outgoing: &mut Outgoing) -> Vec<Message> {
        std::iter::from_fn(|| outgoing.next().now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn a_side_that_sends_more_than_it_was_granted_breaks_the_relay() {
        let (mut tunnel, mut outgoing, receiver) = parts();
        let granted = match sent(&mut outgoing)[..] {
            [Message::Grant(more)] => WINDOW_BYTES_MIN + more as usize,
            _ => 0,
        };

        receive(receiver, [bytes(granted), bytes(1)]).await;

        tunnel.read_exact(&mut vec![0; granted]).await.unwrap();
        let broken = tunnel.read(&mut [0]).await.unwrap_err();
        assert_eq!(broken.to_string(), "the other broker sent more than it was granted");
        assert_eq!(outgoing.next().now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn messages_of_single_bytes_take_little_memory_and_come_in_order() {
        let (mut tunnel, _outgoing, receiver) = parts();
        let one = |number: usize| Message::Bytes(vec![u8::try_from(number % 251).unwrap()].into());
        let large = || Message::Bytes(vec![251; SMALL_BYTES].into());
        let (first, second): (Vec<_>, Vec<_>) = ((0..9000).map(one).collect(), (9000..10_000).map(one).collect());

        receive(receiver, first.into_iter().chain([large()]).chain(second)).await;

        assert_eq!(lock(&tunnel.0.0).unread.len(), 2);
        let mut read = Vec::new();
        while read.len() < 10_000 + SMALL_BYTES {
            let mut part = [0; 700];
            let count = tunnel.read(&mut part).await.unwrap();
            read.extend_from_slice(&part[..count]);
        }
        let large: Vec<_> = read.splice(9000..9000 + SMALL_BYTES, []).collect();
        assert_eq!(large, [251; SMALL_BYTES]);
        assert!(read.iter().enumerate().all(|(number, byte)| usize::from(*byte) == number % 251));
        assert_eq!(lock(&tunnel.0.0).unread_bytes, 0);
    }

    #[tokio::test]
    async fn what_was_granted_is_written_and_the_rest_waits() {
        let (mut tunnel, mut outgoing, receiver) = parts();
        sent(&mut outgoing);
        assert_eq!(tunnel.write(&[2; 1 << 20]).await.unwrap(), WINDOW_BYTES_MIN);
        assert!(tunnel.write(&[2]).now_or_never().is_none());

        tokio::spawn(receiver.run(iter([Ok(Message::Grant(3))]).chain(futures_util::stream::pending())));

        assert_eq!(tunnel.write(&[2; 9]).await.unwrap(), 3);
        let count = |message: &Message| if let Message::Bytes(bytes) = message { bytes.len() } else { 0 };
        assert_eq!(sent(&mut outgoing).iter().map(count).sum::<usize>(), WINDOW_BYTES_MIN + 3);
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (mut tunnel, mut outgoing, receiver) = parts();
        sent(&mut outgoing);
        tunnel.shutdown().await.unwrap();
        assert_eq!(sent(&mut outgoing), [Message::End]);

        receive(receiver, [bytes(2), Message::End]).await;

        let mut read = Vec::new();
        tunnel.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, [1, 1]);
        assert_eq!(outgoing.next().now_or_never(), Some(None));
        assert!(tunnel.write(&[1]).await.is_err());
    }

    #[test]
    fn a_seat_is_free_once_all_parts_are_gone() {
        let seats = Arc::new(Seats::default());
        let (tunnel, outgoing, receiver) = tunnel(seats.take().unwrap());

        drop((outgoing, receiver));
        assert_eq!(seats.used().open_count, 1);
        drop(tunnel);

        assert_eq!(seats.used().open_count, 0);
    }
}
