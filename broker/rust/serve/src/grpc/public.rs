//! The services of gRPC's own, which clients may call without credentials: a connection has few of their requests open until
//! its client has logged in.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::host::connection_state::PublicPlace;
use crate::host::peer::Peer;

/// See the module.
#[derive(Clone)]
pub(crate) struct Public<S>(pub S);

impl<S: NamedService> NamedService for Public<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Public<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let place = match request.extensions().get::<Peer>().map(|peer| peer.state.public_place()) {
            Some(Ok(place)) => place,
            Some(Err(refused)) => return Box::pin(async move { Ok(Status::from(refused).into_http()) }),
            None => return Box::pin(async { Ok(Status::internal("a request without a connection").into_http()) }),
        };
        let answer = self.0.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Body::new(Placed { body, _place: place }))) })
    }
}

/// A response's body that keeps the place of its request.
struct Placed {
    body: Body,
    _place: PublicPlace,
}

impl http_body::Body for Placed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
