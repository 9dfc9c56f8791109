//! The service at the port for other brokers: takes the connections of those with a lower id.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use crate::callers::{PeerService, place_of, shows_secret};
use crate::codec::{PATH, PeerCodec, Sent};
use crate::dialing::probe;
use crate::hello::Hello;
use crate::relaying::codec::{ENCODED_BYTES_MAX, RELAY_PATH, RelayCodec};
use crate::relaying::service::RelayService;
use crate::session::{Outgoing, greeting, receive};

impl NamedService for PeerService {
    const NAME: &'static str = "penstock.internal.v1.PeerService";
}

impl Service<http::Request<Body>> for PeerService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            match request.uri().path() {
                PATH => {
                    let bytes_max = service.settings.frame_bytes_max;
                    Ok(Grpc::new(PeerCodec).max_decoding_message_size(bytes_max).streaming(service, request).await)
                }
                RELAY_PATH => {
                    let mut grpc = Grpc::new(RelayCodec).max_decoding_message_size(ENCODED_BYTES_MAX);
                    Ok(grpc.streaming(RelayService(service), request).await)
                }
                _ => Ok(Status::unimplemented("PeerService has the methods Connect and Relay").into_http()),
            }
        })
    }
}

impl StreamingService<Bytes> for PeerService {
    type Response = Sent;
    type ResponseStream = std::pin::Pin<Box<dyn Stream<Item = Result<Sent, Status>> + Send>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.accept(request).await })
    }
}

impl PeerService {
    async fn accept(
        self,
        request: Request<Streaming<Bytes>>,
    ) -> Result<Response<<Self as StreamingService<Bytes>>::ResponseStream>, Status> {
        shows_secret(&self.settings, &request)?;
        let place = place_of(&request);
        let mut frames = request.into_inner();
        let theirs = timeout(self.settings.timeouts.connect, greeting(&mut frames))
            .await
            .map_err(|_| Status::deadline_exceeded("no greeting came"))??;
        let ours = Hello {
            cluster: self.settings.cluster,
            from: self.settings.broker,
            to: theirs.from,
            boot: self.boot,
            versions: self.settings.versions,
        };
        let protocol = ours.agree(&theirs).map_err(|refused| Status::failed_precondition(refused.to_string()))?;
        if theirs.from >= self.settings.broker {
            return Err(Status::failed_precondition("of two brokers the one with the lower number connects"));
        }
        place.iter().for_each(|place| place.greet());
        let session = self.links.begin(theirs.from, protocol, theirs.versions);
        let (greeted, waits) = oneshot::channel();
        let _ = greeted.send(Arc::clone(&session));
        let outgoing = Outgoing::new(ours, waits, Arc::clone(&self.links));
        self.runtime.clone().spawn(async move {
            receive(&self.links, &session, &mut frames).await;
            if self.links.end(&session)
                && let Some(address) = self.addresses.of(session.broker)
            {
                probe(self.settings, session.broker, address, self.links).await;
            }
        });
        Ok(Response::new(Box::pin(outgoing.map(Ok))))
    }
}
