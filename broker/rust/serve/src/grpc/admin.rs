//! `penstock.v1.AdminService`: every method goes to Python as it came.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use crate::grpc::codec::BytesCodec;
use crate::grpc::peer::caller_of;
use crate::grpc::service::Answers;
use crate::host::broker::Broker;
use crate::host::calls::{Answer, Call, CallRequest, Calls};

#[derive(Clone)]
pub(crate) struct Admin {
    pub broker: Broker,
}

impl Answers for Admin {
    const NAME: &'static str = "penstock.v1.AdminService";

    fn broker(&self) -> &Broker {
        &self.broker
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        ask(self.broker.calls, self.broker.message_bytes_max, request).await
    }
}

/// Hands a unary call to Python, by its method's name.
pub(crate) async fn ask(calls: Arc<Calls>, bytes_max: usize, request: http::Request<Body>) -> http::Response<Body> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let mut grpc = Grpc::new(BytesCodec).max_decoding_message_size(bytes_max);
    grpc = grpc.max_encoding_message_size(usize::MAX);
    grpc.unary(Asking { calls, method }, request).await
}

struct Asking {
    calls: Arc<Calls>,
    method: String,
}

impl UnaryService<Bytes> for Asking {
    type Response = Vec<u8>;
    type Future = BoxFuture<'static, Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (calls, method) = (Arc::clone(&self.calls), std::mem::take(&mut self.method));
        Box::pin(async move {
            let caller = caller_of(&request)?;
            let request = CallRequest::Unary { method, payload: request.into_inner() };
            match calls.ask(Call::new(request, &caller)).await? {
                Answer::Payload(payload) => Ok(Response::new(payload)),
                _ => Err(Status::internal("the broker answered a call with an admission")),
            }
        })
    }
}
