//! Arrow's IPC messages, one at a time, as Flight carries them: a header (a flatbuffer) and a body.
//!
//! Invariant: a batch's body consists of the batch's own buffers, not copies.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;

use crate::error::ArrowFault;
use crate::layout;

/// The first bytes of a message in a stream.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// One message; the body's parts follow each other without a gap.
#[derive(Clone, Debug, Default)]
pub struct IpcMessage {
    pub header: Bytes,
    pub body: Vec<Bytes>,
    pub body_bytes: usize,
}

/// Encodes the batches of one stream; the first message is its schema.
pub struct Encoder {
    encoder: StreamEncoder,
    schema: Option<IpcMessage>,
}

impl Encoder {
    /// # Errors
    /// When the schema cannot be encoded.
    pub fn new(schema: &SchemaRef) -> Result<Encoder, ArrowError> {
        let options = IpcWriteOptions::default();
        let mut encoder = StreamEncoder::try_new_with_options(schema, options)?;
        // The first batch comes with the schema's message; an empty one is discarded.
        let mut parts: VecDeque<Buffer> = encoder.encode(&RecordBatch::new_empty(Arc::clone(schema)))?.into();
        let header = take_header(&mut parts)?;
        Ok(Encoder { encoder, schema: Some(IpcMessage { header, ..IpcMessage::default() }) })
    }

    /// A schema as it precedes a stream: a marker, its header's length, and the header.
    ///
    /// # Errors
    /// When the schema cannot be encoded.
    pub fn schema_alone(schema: &SchemaRef) -> Result<Bytes, ArrowError> {
        let header = Encoder::new(schema)?.schema().map(|message| message.header).unwrap_or_default();
        let length = u32::try_from(header.len()).unwrap_or(u32::MAX);
        Ok([&CONTINUATION[..], &length.to_le_bytes(), &header].concat().into())
    }

    /// The schema's message, once.
    pub fn schema(&mut self) -> Option<IpcMessage> {
        self.schema.take()
    }

    /// # Errors
    /// When the batch does not fit the schema.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<IpcMessage, ArrowError> {
        let mut parts: VecDeque<Buffer> = self.encoder.encode(batch)?.into();
        let header = take_header(&mut parts)?;
        let body_bytes = parts.iter().map(Buffer::len).sum();
        Ok(IpcMessage { header, body: join_small(parts), body_bytes })
    }
}

/// Parts up to this size are copied together: a part of its own costs more than a copy.
const PART_BYTES_MIN: usize = 16 << 10;

fn join_small(parts: VecDeque<Buffer>) -> Vec<Bytes> {
    let mut joined = Vec::new();
    let mut small: Vec<u8> = Vec::new();
    for part in parts {
        if part.len() < PART_BYTES_MIN {
            small.extend_from_slice(&part);
            continue;
        }
        if !small.is_empty() {
            joined.push(Bytes::from(std::mem::take(&mut small)));
        }
        joined.push(Bytes::from(part));
    }
    if !small.is_empty() {
        joined.push(Bytes::from(small));
    }
    joined
}

/// In a stream a message's header comes after a marker and its length, in four bytes each.
fn take_header(parts: &mut VecDeque<Buffer>) -> Result<Bytes, ArrowError> {
    let malformed = || ArrowError::IpcError("an encoded message has no header".to_owned());
    let prefix = parts.pop_front().ok_or_else(malformed)?;
    let length = prefix.get(4..8).and_then(|length| <[u8; 4]>::try_from(length).ok()).ok_or_else(malformed)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| malformed())?;
    let mut header = Vec::with_capacity(length);
    while header.len() < length {
        header.extend_from_slice(&parts.pop_front().ok_or_else(malformed)?);
    }
    Ok(Bytes::from(header))
}

/// Reads the batches that a client sends; the first message is their schema.
#[derive(Default)]
pub struct PutDecoder {
    schema: Option<SchemaRef>,
}

impl PutDecoder {
    /// A batch, or `None` for the schema's message. Decoding checks all input, on the caller's thread.
    ///
    /// # Errors
    /// `Malformed`, or an error of the batch.
    pub fn read(&mut self, header: &Bytes, body: Bytes) -> Result<Option<RecordBatch>, ArrowFault> {
        let message =
            arrow_ipc::root_as_message(header).map_err(|_| ArrowFault::Malformed("its header is not a flatbuffer"))?;
        match message.header_type() {
            MessageHeader::Schema => {
                let schema = message.header_as_schema().ok_or(ArrowFault::Malformed("a schema's message has none"))?;
                let schema = try_fb_to_schema(schema)?;
                layout::check_types(&schema)?;
                self.schema = Some(Arc::new(schema));
                Ok(None)
            }
            MessageHeader::RecordBatch => {
                let schema = self.schema.clone().ok_or(ArrowFault::Malformed("a batch came before its schema"))?;
                let batch = message.header_as_record_batch();
                let batch = batch.ok_or(ArrowFault::Malformed("a batch's message has none"))?;
                layout::check_batch(&schema, &batch, body.len())?;
                let body = Buffer::from(body);
                Ok(Some(read_record_batch(&body, batch, schema, &HashMap::new(), None, &message.version())?))
            }
            _ => Err(ArrowFault::Malformed("it is neither a schema nor a batch")),
        }
    }
}
