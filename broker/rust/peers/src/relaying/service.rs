//! The side of a relay that serves its client: proves that a broker of the cluster asks, and hands over the stream.

use std::pin::Pin;

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use tonic::server::StreamingService;
use tonic::{Request, Response, Status, Streaming};

use crate::callers::{PeerService, place_of, shows_secret};
use crate::relaying::codec::parse_headers;
use crate::relaying::tunnel::{Message, tunnel};

#[derive(Clone)]
pub(crate) struct RelayService(pub PeerService);

impl StreamingService<Message> for RelayService {
    type Response = Message;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Message>>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.accept(request) })
    }
}

impl RelayService {
    fn accept(
        self,
        request: Request<Streaming<Message>>,
    ) -> Result<Response<<Self as StreamingService<Message>>::ResponseStream>, Status> {
        let service = self.0;
        shows_secret(&service.settings, &request)?;
        let (from, client) = parse_headers(request.metadata(), &service.settings.cluster)?;
        if service.addresses.of(from).is_none() {
            return Err(Status::failed_precondition("the broker is not known to be of the cluster"));
        }
        let place = place_of(&request).ok_or_else(|| Status::internal("a request without a connection"))?;
        place.greet();
        let serving = service.relayed.get().ok_or_else(|| Status::unavailable("the broker serves no clients yet"))?;
        let seat = service.seats.take();
        let seat = seat.ok_or_else(|| Status::resource_exhausted("the broker has as many relays as it may"))?;
        let (tunnel, outgoing, receiver) = tunnel(seat);
        serving.relayed(from, place.address(), client, tunnel).map_err(|error| refused(&error))?;
        service.runtime.spawn(receiver.run(request.into_inner()));
        Ok(Response::new(Box::pin(outgoing.map(Ok))))
    }
}

fn refused(error: &std::io::Error) -> Status {
    match error.kind() {
        std::io::ErrorKind::Unsupported => Status::unimplemented(error.to_string()),
        std::io::ErrorKind::ConnectionRefused => Status::resource_exhausted(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    }
}
