//! The messages of `arrow.flight.protocol`, as far as this broker speaks it (Flight.proto of Apache Arrow). Fields that it neither
//! reads nor writes are left out.

use bytes::Bytes;
use prost::Message;

use crate::grpc::responses::FramedMessage;

/// Kinds of a [`FlightDescriptor`].
pub(crate) const PATH: i32 = 1;
pub(crate) const COMMAND: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightDescriptor {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub command: Bytes,
    #[prost(string, repeated, tag = "3")]
    pub path: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightTicket {
    #[prost(bytes = "bytes", tag = "1")]
    pub ticket: Bytes,
}

/// Without a location it is to be had where it was asked for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightEndpoint {
    #[prost(message, optional, tag = "1")]
    pub ticket: Option<FlightTicket>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightInfo {
    #[prost(bytes = "bytes", tag = "1")]
    pub schema: Bytes,
    #[prost(message, optional, tag = "2")]
    pub descriptor: Option<FlightDescriptor>,
    #[prost(message, repeated, tag = "3")]
    pub endpoints: Vec<FlightEndpoint>,
    /// -1 when it is not known, as the bytes.
    #[prost(int64, tag = "4")]
    pub total_records: i64,
    #[prost(int64, tag = "5")]
    pub total_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchemaResult {
    #[prost(bytes = "bytes", tag = "1")]
    pub schema: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Criteria {
    #[prost(bytes = "bytes", tag = "1")]
    pub expression: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Action {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ActionType {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(string, tag = "2")]
    pub description: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ActionResult {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutResult {
    #[prost(bytes = "bytes", tag = "1")]
    pub app_metadata: Bytes,
}

/// As it comes up; what goes down is framed without a copy of its body.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightData {
    #[prost(message, optional, tag = "1")]
    pub descriptor: Option<FlightDescriptor>,
    #[prost(bytes = "bytes", tag = "2")]
    pub header: Bytes,
    #[prost(bytes = "bytes", tag = "1000")]
    pub body: Bytes,
}

/// The numbers of the fields that are written by hand.
pub(crate) const DATA_HEADER: u32 = 2;
pub(crate) const DATA_APP_METADATA: u32 = 3;
pub(crate) const DATA_BODY: u32 = 1000;

pub(crate) fn framed(message: &impl Message) -> FramedMessage {
    FramedMessage::new(message.encoded_len(), |out| message.encode(out)).unwrap_or_else(|_| {
        // A vector has room for everything.
        FramedMessage::of(0, |_| ())
    })
}
