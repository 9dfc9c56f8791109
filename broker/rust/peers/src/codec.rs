//! The method of the service, and a tonic codec for a greeting and then frames: what is sent is written into the connection's
//! buffer, what came is bytes.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::frame::Frame;
use crate::hello::Hello;

pub(crate) const PATH: &str = "/penstock.internal.v1.PeerService/Connect";
/// The header with the cluster's secret.
pub(crate) const SECRET: &str = "penstock-cluster-secret";
/// Lets the records of a few syncs be in transit at once.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 8 << 20;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Of HTTP/2: a frame of records is a few of them.
pub(crate) const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Frames of records are large; small ones gather in such a buffer before they are written.
const BUFFER_BYTES: usize = 64 << 10;
const YIELD_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) enum Sent {
    Hello(Hello),
    Frame(Frame),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerCodec;

impl Codec for PeerCodec {
    type Encode = Sent;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for PeerCodec {
    type Item = Sent;
    type Error = Status;

    fn encode(&mut self, sent: Sent, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match sent {
            Sent::Hello(hello) => out.put_slice(&hello.encode()),
            Sent::Frame(frame) => {
                out.reserve(frame.bytes());
                frame.encode(out);
            }
        }
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

impl Decoder for PeerCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}
