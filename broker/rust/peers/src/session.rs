//! The two directions of a connection: frames that are sent, as a stream that the transport polls when it can take one, and frames
//! that come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::oneshot;
use tonic::{Status, Streaming};

use crate::codec::Sent;
use crate::hello::Hello;
use crate::links::{Links, Session};

/// A greeting, and then the frames for a broker, until the session is over.
pub(crate) struct Outgoing {
    hello: Option<Hello>,
    /// Comes when the other side has greeted; frames are sent after that.
    greeted: oneshot::Receiver<Arc<Session>>,
    session: Option<Arc<Session>>,
    links: Arc<Links>,
}

impl Outgoing {
    pub fn new(hello: Hello, greeted: oneshot::Receiver<Arc<Session>>, links: Arc<Links>) -> Self {
        Self { hello: Some(hello), greeted, session: None, links }
    }
}

impl Stream for Outgoing {
    type Item = Sent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Sent>> {
        if let Some(hello) = self.hello.take() {
            return Poll::Ready(Some(Sent::Hello(hello)));
        }
        let session = match &self.session {
            Some(session) => Arc::clone(session),
            None => match Pin::new(&mut self.greeted).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(None),
                Poll::Ready(Ok(session)) => Arc::clone(self.session.insert(session)),
            },
        };
        // Registered first: a frame that comes between the two is not missed.
        session.register(context.waker());
        if session.is_over() {
            return Poll::Ready(None);
        }
        match self.links.traffic().next(session.broker) {
            Some(frame) => Poll::Ready(Some(Sent::Frame(frame))),
            None => Poll::Pending,
        }
    }
}

/// Hands over the frames that come until the connection ends, and says why it did.
pub(crate) async fn receive(links: &Links, session: &Session, frames: &mut Streaming<Bytes>) -> String {
    loop {
        let message = tokio::select! {
            message = frames.message() => message,
            () = session.over() => return "a newer connection took its place, or the broker is leaving".into(),
        };
        match message {
            Ok(Some(frame)) => links.receive(session, frame),
            Ok(None) => return "the other broker closed the connection".into(),
            Err(status) => return text_of(&status),
        }
    }
}

/// The greeting of the other side, its first message.
pub(crate) async fn greeting(frames: &mut Streaming<Bytes>) -> Result<Hello, Status> {
    let bytes = frames.message().await?.ok_or_else(|| Status::aborted("the connection ended before a greeting"))?;
    Hello::parse(&bytes).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The message of a status with the root of its causes, which tonic's own text hides.
pub(crate) fn text_of(status: &Status) -> String {
    let mut root: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(next) = root.and_then(std::error::Error::source) {
        root = Some(next);
    }
    match root {
        Some(root) if root.to_string() != status.message() => format!("{}: {root}", status.message()),
        _ => status.message().to_owned(),
    }
}
