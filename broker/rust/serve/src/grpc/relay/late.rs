//! The body of an answer whose headers went to the client before it was known who answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

use crate::grpc::relay::forwarded::STATUS;

/// A frame of an answer, or its end.
pub(crate) type Next = Option<Result<Frame<Bytes>, Status>>;

/// See the module. It is empty once nothing more comes.
pub(crate) struct Late(Option<Stage>);

enum Stage {
    /// Until the first frame is there, and the rest.
    Deciding(BoxFuture<'static, (Next, Option<Body>)>),
    Body(Body),
}

impl Late {
    /// The answer has this first frame, and then the rest.
    pub fn new(deciding: impl Future<Output = (Next, Option<Body>)> + Send + 'static) -> Late {
        Late(Some(Stage::Deciding(Box::pin(deciding))))
    }
}

impl http_body::Body for Late {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        match self.0.as_mut() {
            None => Poll::Ready(None),
            Some(Stage::Body(body)) => Pin::new(body).poll_frame(cx),
            Some(Stage::Deciding(deciding)) => {
                let (first, body) = ready!(deciding.as_mut().poll(cx));
                self.0 = body.map(Stage::Body);
                Poll::Ready(first)
            }
        }
    }
}

/// The first frame of an answer of which the headers are not sent, and the rest.
pub(crate) async fn without_headers(answer: http::Response<Body>) -> (Next, Option<Body>) {
    let (parts, mut body) = answer.into_parts();
    if parts.headers.contains_key(STATUS) {
        return (Some(Ok(Frame::trailers(parts.headers))), None);
    }
    (next(&mut body).await, Some(body))
}

pub(crate) async fn next(body: &mut Body) -> Next {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}
