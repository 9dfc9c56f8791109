//! The method for relays: who the client is, in the headers of a call, and the messages of the call.
//!
//! | header | |
//! |---|---|
//! | `penstock-cluster-secret` | as for a connection |
//! | `penstock-cluster` | the cluster's id, 32 hexadecimal digits |
//! | `penstock-relay-from` | the number of the broker that relays |
//! | `penstock-relay-protocol` | the name of the listener's protocol |
//! | `penstock-relay-connection` | the number of the client's connection at that broker |
//! | `penstock-relay-address` | the client's IP address and port; absent on a Unix socket |
//! | `penstock-relay-certificate-bin` | the certificate that the client showed, DER; absent for none |
//! | `penstock-relay-tls` | `1` if the client's connection has TLS, else `0` |
//!
//! A message begins with its kind: 0 for bytes, which follow; 1 for a grant, with the number of bytes as a u32, little-endian; 2 for the
//! end of the bytes.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BufMut};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use crate::codec::SECRET;
use crate::relaying::tunnel::{MESSAGE_BYTES_MAX, Message};
use crate::settings::{BrokerId, ClusterId, Settings};

pub(crate) const RELAY_PATH: &str = "/penstock.internal.v1.PeerService/Relay";
/// A message with its kind.
pub(crate) const ENCODED_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;
const BUFFER_BYTES: usize = 8 << 10;
const YIELD_BYTES: usize = 64 << 10;

const CLUSTER: &str = "penstock-cluster";
const FROM: &str = "penstock-relay-from";
const PROTOCOL: &str = "penstock-relay-protocol";
const CONNECTION: &str = "penstock-relay-connection";
const ADDRESS: &str = "penstock-relay-address";
const CERTIFICATE: &str = "penstock-relay-certificate-bin";
const TLS: &str = "penstock-relay-tls";

const BYTES: u8 = 0;
const GRANT: u8 = 1;
const END: u8 = 2;

/// A client whose connection is relayed, as the broker that it is connected to knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayedClient {
    /// The name of the listener's protocol.
    pub protocol: String,
    /// The number of its connection at that broker.
    pub connection: u64,
    /// `None` on a Unix socket.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed in the TLS handshake, DER.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether its own connection has TLS.
    pub is_tls: bool,
}

/// Writes the headers; `None` when the secret or the protocol has characters that no header has.
pub(crate) fn put_headers(headers: &mut MetadataMap, settings: &Settings, client: &RelayedClient) -> Option<()> {
    let mut secret: MetadataValue<Ascii> = settings.secrets.shown()?.parse().ok()?;
    secret.set_sensitive(true);
    headers.insert(SECRET, secret);
    headers.insert(CLUSTER, hex(&settings.cluster).parse().ok()?);
    headers.insert(FROM, settings.broker.into());
    headers.insert(PROTOCOL, client.protocol.parse().ok()?);
    headers.insert(CONNECTION, client.connection.into());
    headers.insert(TLS, u64::from(client.is_tls).into());
    if let Some(address) = client.address {
        headers.insert(ADDRESS, address.to_string().parse().ok()?);
    }
    if let Some(certificate) = &client.certificate {
        headers.insert_bin(CERTIFICATE, MetadataValue::from_bytes(certificate));
    }
    Some(())
}

/// The broker that relays, and its client.
///
/// # Errors
/// For another cluster, and for headers that are missing or malformed.
pub(crate) fn parse_headers(headers: &MetadataMap, cluster: &ClusterId) -> Result<(BrokerId, RelayedClient), Status> {
    let text = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
    let malformed = |name: &'static str| Status::invalid_argument(format!("the header {name} is missing or malformed"));
    let number = |name| text(name).and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| malformed(name));
    if text(CLUSTER) != Some(hex(cluster).as_str()) {
        return Err(Status::failed_precondition("the broker is of another cluster"));
    }
    let address = match headers.get(ADDRESS) {
        None => None,
        Some(_) => Some(text(ADDRESS).and_then(|text| text.parse().ok()).ok_or_else(|| malformed(ADDRESS))?),
    };
    let certificate = match headers.get_bin(CERTIFICATE) {
        None => None,
        Some(value) => Some(value.to_bytes().map_err(|_| malformed(CERTIFICATE))?.as_ref().into()),
    };
    let protocol = text(PROTOCOL).ok_or_else(|| malformed(PROTOCOL))?.to_owned();
    let client =
        RelayedClient { protocol, connection: number(CONNECTION)?, address, certificate, is_tls: number(TLS)? != 0 };
    Ok((number(FROM)?, client))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RelayCodec;

impl Codec for RelayCodec {
    type Encode = Message;
    type Decode = Message;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RelayCodec {
    type Item = Message;
    type Error = Status;

    fn encode(&mut self, message: Message, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match message {
            Message::Bytes(bytes) => {
                out.reserve(1 + bytes.len());
                out.put_u8(BYTES);
                out.put_slice(&bytes);
            }
            Message::Grant(more) => {
                out.put_u8(GRANT);
                out.put_u32_le(more);
            }
            Message::End => out.put_u8(END),
        }
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

impl Decoder for RelayCodec {
    type Item = Message;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Message>, Status> {
        let malformed = || Status::invalid_argument("a message of a relay is malformed");
        match bytes.try_get_u8().map_err(|_| malformed())? {
            BYTES => Ok(Some(Message::Bytes(bytes.copy_to_bytes(bytes.remaining())))),
            GRANT if bytes.remaining() == 4 => Ok(Some(Message::Grant(bytes.get_u32_le()))),
            END if !bytes.has_remaining() => Ok(Some(Message::End)),
            _ => Err(malformed()),
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::settings::{Secrets, Timeouts, Versions};

    fn settings() -> Settings {
        Settings {
            broker: 7,
            cluster: *b"cluster of tests",
            versions: Versions { protocol_lowest: 1, protocol_highest: 1, format: 2 },
            secrets: Secrets::new(vec!["a secret of a cluster".to_owned()]),
            tls: None,
            frame_bytes_max: 1 << 20,
            timeouts: Timeouts::default(),
        }
    }

    #[test]
    fn headers_say_who_relays_and_who_the_client_is() {
        let full = RelayedClient {
            protocol: "amqp".to_owned(),
            connection: u64::MAX,
            address: Some("[2001:db8::7]:40000".parse().unwrap()),
            certificate: Some(Arc::from(&[0x30, 0x82, 0, 255][..])),
            is_tls: true,
        };
        let small = RelayedClient { protocol: "grpc".to_owned(), ..RelayedClient::default() };
        for client in [full, small] {
            let mut headers = MetadataMap::new();
            put_headers(&mut headers, &settings(), &client).unwrap();

            assert_eq!(parse_headers(&headers, &settings().cluster).unwrap(), (7, client));
        }
    }

    #[test]
    fn headers_of_another_cluster_and_malformed_ones_are_refused() {
        let client = RelayedClient { protocol: "grpc".to_owned(), ..RelayedClient::default() };
        let mut headers = MetadataMap::new();
        put_headers(&mut headers, &settings(), &client).unwrap();
        let refused = |headers: &MetadataMap| parse_headers(headers, &settings().cluster).unwrap_err().code();

        assert_eq!(parse_headers(&headers, b"another cluster.").unwrap_err().code(), Code::FailedPrecondition);
        for name in [FROM, PROTOCOL, CONNECTION, TLS] {
            let mut fewer = headers.clone();
            fewer.remove(name);
            assert_eq!(refused(&fewer), Code::InvalidArgument, "{name}");
        }
        for (name, wrong) in [(FROM, "mq-0"), (CONNECTION, "-1"), (ADDRESS, "localhost:1"), (TLS, "yes")] {
            let mut other = headers.clone();
            other.insert(name, wrong.parse().unwrap());
            assert_eq!(refused(&other), Code::InvalidArgument, "{name}");
        }
    }
}
