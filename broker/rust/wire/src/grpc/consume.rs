//! `ConsumeRequest` and `ConsumeResponse`: settlements up, deliveries down. Deliveries themselves are in `deliveries`.

use super::deliveries::DeliveriesView;
use super::settlement::{SettlementView, put_settlement};
use crate::protobuf::{Reader, WireType, begin_length, end_length, put_bool, put_text, put_uint};
use crate::{NAME_BYTES_MAX, WireError};

const REQUEST: &str = "a consume request";
const OPEN: &str = "the open of a consume stream";
const RESPONSE: &str = "a consume response";

/// The opening of a consume stream. An empty `vhost` means "/", an empty `consumer_tag` asks for a generated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumeOpen<'a> {
    pub vhost: &'a str,
    pub queue: &'a str,
    pub consumer_tag: &'a str,
    pub prefetch: u32,
    pub auto_ack: bool,
    pub exclusive: bool,
    pub priority: i32,
    pub ack_timeout_ms: Option<u64>,
}

/// One request of a consume stream.
#[derive(Debug, Clone, Copy)]
pub enum ConsumeFrame<'a> {
    Open(ConsumeOpen<'a>),
    Settlement(SettlementView<'a>),
    Flow { prefetch: u32 },
}

/// One response of a consume stream.
#[derive(Debug, Clone, Copy)]
pub enum ConsumeEvent<'a> {
    Opened { consumer_tag: &'a str },
    Deliveries(DeliveriesView<'a>),
    Cancelled { reason: &'a str },
}

pub fn parse_consume_request(bytes: &[u8]) -> Result<ConsumeFrame<'_>, WireError> {
    let mut reader = Reader::new(bytes, REQUEST);
    let mut frame = None;
    while let Some((field, wire_type)) = reader.field()? {
        let parsed = match field {
            1 => ConsumeFrame::Open(ConsumeOpen::parse(reader.slice(field, wire_type)?)?),
            2 => ConsumeFrame::Settlement(SettlementView::parse(reader.slice(field, wire_type)?)?),
            3 => parse_flow(reader.slice(field, wire_type)?)?,
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        if frame.replace(parsed).is_some() {
            return Err(WireError::Repeated { what: "the content of a consume request" });
        }
    }
    frame.ok_or(WireError::Empty { what: REQUEST })
}

impl<'a> ConsumeOpen<'a> {
    /// Reads a serialised `penstock.v1.ConsumeOpen`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, OPEN);
        let mut open = ConsumeOpen::default();
        while let Some((field, wire_type)) = reader.field()? {
            match field {
                1 => open.vhost = name(&mut reader, field, wire_type, "the name of a vhost")?,
                2 => open.queue = name(&mut reader, field, wire_type, "the name of a queue")?,
                3 => open.consumer_tag = name(&mut reader, field, wire_type, "a consumer tag")?,
                4 => open.prefetch = reader.uint(field, wire_type)? as u32,
                5 => open.auto_ack = reader.bool(field, wire_type)?,
                6 => open.exclusive = reader.bool(field, wire_type)?,
                // A negative number is written as one of 64 bits.
                7 => open.priority = reader.uint(field, wire_type)? as i32,
                8 => open.ack_timeout_ms = Some(reader.uint(field, wire_type)?).filter(|limit| *limit > 0),
                _ => reader.skip(wire_type)?,
            }
        }
        Ok(open)
    }

    /// Appends it as a serialised `penstock.v1.ConsumeOpen`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, 1, self.vhost);
        put_text(out, 2, self.queue);
        put_text(out, 3, self.consumer_tag);
        put_uint(out, 4, u64::from(self.prefetch));
        put_bool(out, 5, self.auto_ack);
        put_bool(out, 6, self.exclusive);
        put_uint(out, 7, i64::from(self.priority) as u64);
        put_uint(out, 8, self.ack_timeout_ms.unwrap_or(0));
    }
}

fn name<'a>(
    reader: &mut Reader<'a>,
    field: u32,
    wire_type: WireType,
    what: &'static str,
) -> Result<&'a str, WireError> {
    reader.text(field, wire_type, what, NAME_BYTES_MAX)
}

fn parse_flow<'a>(bytes: &[u8]) -> Result<ConsumeFrame<'a>, WireError> {
    let mut reader = Reader::new(bytes, "a flow request");
    let mut prefetch = 0;
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => prefetch = reader.uint(field, wire_type)? as u32,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(ConsumeFrame::Flow { prefetch })
}

pub fn parse_consume_response(bytes: &[u8]) -> Result<ConsumeEvent<'_>, WireError> {
    let mut reader = Reader::new(bytes, RESPONSE);
    let mut event = None;
    while let Some((field, wire_type)) = reader.field()? {
        let parsed = match field {
            1 => ConsumeEvent::Opened { consumer_tag: parse_text(reader.slice(field, wire_type)?)? },
            2 => ConsumeEvent::Deliveries(DeliveriesView::new(reader.slice(field, wire_type)?)),
            3 => ConsumeEvent::Cancelled { reason: parse_text(reader.slice(field, wire_type)?)? },
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        if event.replace(parsed).is_some() {
            return Err(WireError::Repeated { what: "the content of a consume response" });
        }
    }
    event.ok_or(WireError::Empty { what: RESPONSE })
}

/// `ConsumeOpened` and `ConsumeCancelled` are both one text in field 1.
fn parse_text(bytes: &[u8]) -> Result<&str, WireError> {
    let mut reader = Reader::new(bytes, RESPONSE);
    let mut text = "";
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => text = reader.text(field, wire_type, "the text of a consume response", usize::MAX)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(text)
}

pub fn encode_consume_open(out: &mut Vec<u8>, open: &ConsumeOpen<'_>) {
    let contents = begin_length(out, 1);
    open.encode(out);
    end_length(out, contents);
}

pub fn encode_settlement(out: &mut Vec<u8>, outcome: u32, ranges: impl IntoIterator<Item = (u64, u64)>) {
    put_settlement(out, 2, outcome, ranges);
}

pub fn encode_flow(out: &mut Vec<u8>, prefetch: u32) {
    let contents = begin_length(out, 3);
    put_uint(out, 1, u64::from(prefetch));
    end_length(out, contents);
}

pub fn encode_consume_opened(out: &mut Vec<u8>, consumer_tag: &str) {
    let contents = begin_length(out, 1);
    put_text(out, 1, consumer_tag);
    end_length(out, contents);
}

pub fn encode_consume_cancelled(out: &mut Vec<u8>, reason: &str) {
    let contents = begin_length(out, 3);
    put_text(out, 1, reason);
    end_length(out, contents);
}
