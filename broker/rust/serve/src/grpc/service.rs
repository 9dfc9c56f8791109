//! The shell that tonic wants around a service: its name, and an answer to each request.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::grpc::gate::guard;
use crate::host::broker::Broker;

/// A service of the broker's own protocol.
pub(crate) trait Answers: Clone + Send + 'static {
    /// As in the contract, with its package.
    const NAME: &'static str;

    fn broker(&self) -> &Broker;

    fn answer(self, request: http::Request<Body>) -> impl Future<Output = http::Response<Body>> + Send;
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Shell<S>(pub S);

impl<S: Answers> NamedService for Shell<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Answers> Service<http::Request<Body>> for Shell<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.0.clone();
        let broker = service.broker();
        let request = guard(request, &broker.calls, broker.first_request);
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
