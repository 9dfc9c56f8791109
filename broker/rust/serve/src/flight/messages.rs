//! Messages of Flight as they are read and answered, and what is said of those that cannot be.

use bytes::Bytes;
use penstock_arrow::ArrowFault;
use prost::Message;
use tonic::Status;

use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};

/// Answers that are there from the beginning.
#[derive(Default)]
pub(super) struct Answers(std::vec::IntoIter<FramedMessage>);

impl Answers {
    pub fn of(messages: impl IntoIterator<Item = FramedMessage>) -> Answers {
        Answers(messages.into_iter().collect::<Vec<_>>().into_iter())
    }
}

impl Responder for Answers {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        self.0.next().map(Ok)
    }
}

/// The only message of a request.
pub(super) async fn first<T: Message + Default>(input: &mut Input) -> Result<T, Status> {
    let message = input.message().await?.unwrap_or_default();
    decode(message)
}

pub(super) fn decode<T: Message + Default>(message: Bytes) -> Result<T, Status> {
    T::decode(message).map_err(|error| Status::invalid_argument(format!("a message of Flight cannot be read: {error}")))
}

pub(super) fn of_arrow(error: &ArrowFault) -> Status {
    Status::invalid_argument(error.to_string())
}

/// What only a bug, or a message beyond what Arrow can hold, brings about.
pub(super) fn not_encoded(error: &impl std::fmt::Display) -> Status {
    Status::internal(format!("messages cannot be made a record batch: {error}"))
}
