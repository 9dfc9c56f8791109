//! `Get` and `Settle`, the message path without a stream.

use super::deliveries::DeliveriesView;
use super::settlement::{SettlementView, put_settlement};
use crate::grpc::deliveries::{DeliveriesEncoder, DeliveryRef};
use crate::protobuf::{Reader, put_bool, put_text, put_uint};
use crate::{NAME_BYTES_MAX, WireError};

const GET: &str = "a get request";
const SETTLE: &str = "a settle request";

/// An empty `vhost` means "/", a `count_max` of 0 means 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GetRequest<'a> {
    pub vhost: &'a str,
    pub queue: &'a str,
    pub count_max: u32,
    pub auto_ack: bool,
}

/// A settlement of messages taken by `Get`; an absent one has outcome 0 and no ranges.
#[derive(Debug, Clone, Copy)]
pub struct SettleRequest<'a> {
    pub vhost: &'a str,
    pub queue: &'a str,
    pub settlement: SettlementView<'a>,
}

/// A response of `Get`.
#[derive(Debug, Clone, Copy)]
pub struct GetResponseView<'a> {
    pub deliveries: DeliveriesView<'a>,
    pub ready_count: u64,
}

pub fn parse_get_request(bytes: &[u8]) -> Result<GetRequest<'_>, WireError> {
    let mut reader = Reader::new(bytes, GET);
    let mut request = GetRequest::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => request.vhost = reader.text(field, wire_type, "the name of a vhost", NAME_BYTES_MAX)?,
            2 => request.queue = reader.text(field, wire_type, "the name of a queue", NAME_BYTES_MAX)?,
            3 => request.count_max = reader.uint(field, wire_type)? as u32,
            4 => request.auto_ack = reader.bool(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(request)
}

pub fn encode_get_request(out: &mut Vec<u8>, request: &GetRequest<'_>) {
    put_text(out, 1, request.vhost);
    put_text(out, 2, request.queue);
    put_uint(out, 3, u64::from(request.count_max));
    put_bool(out, 4, request.auto_ack);
}

/// Writes a whole response; `DeliveriesEncoder::begin_get` does the same piece by piece.
pub fn encode_get_response<'a>(
    out: &mut Vec<u8>,
    deliveries: impl IntoIterator<Item = DeliveryRef<'a>>,
    ready_count: u64,
) -> Result<(), WireError> {
    let mut encoder = DeliveriesEncoder::begin_get(out);
    for delivery in deliveries {
        encoder.push(&delivery)?;
    }
    encoder.finish_get(ready_count);
    Ok(())
}

pub fn parse_get_response(bytes: &[u8]) -> Result<GetResponseView<'_>, WireError> {
    let mut reader = Reader::new(bytes, "a get response");
    let mut ready_count = 0;
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            2 => ready_count = reader.uint(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    // The deliveries are field 1 here as in `Deliveries`; the count is skipped.
    Ok(GetResponseView { deliveries: DeliveriesView::new(bytes), ready_count })
}

pub fn parse_settle_request(bytes: &[u8]) -> Result<SettleRequest<'_>, WireError> {
    let mut reader = Reader::new(bytes, SETTLE);
    let mut settlement: Option<SettlementView<'_>> = None;
    let (mut vhost, mut queue) = ("", "");
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => vhost = reader.text(field, wire_type, "the name of a vhost", NAME_BYTES_MAX)?,
            2 => queue = reader.text(field, wire_type, "the name of a queue", NAME_BYTES_MAX)?,
            3 => {
                if settlement.replace(SettlementView::parse(reader.slice(field, wire_type)?)?).is_some() {
                    return Err(WireError::Repeated { what: "the settlement of a settle request" });
                }
            }
            _ => reader.skip(wire_type)?,
        }
    }
    let settlement = match settlement {
        Some(settlement) => settlement,
        None => SettlementView::parse(&[])?,
    };
    Ok(SettleRequest { vhost, queue, settlement })
}

pub fn encode_settle_request(
    out: &mut Vec<u8>,
    vhost: &str,
    queue: &str,
    outcome: u32,
    ranges: impl IntoIterator<Item = (u64, u64)>,
) {
    put_text(out, 1, vhost);
    put_text(out, 2, queue);
    put_settlement(out, 3, outcome, ranges);
}

pub fn encode_settle_response(out: &mut Vec<u8>, settled_count: u64) {
    put_uint(out, 1, settled_count);
}

/// The number of messages that were settled.
pub fn parse_settle_response(bytes: &[u8]) -> Result<u64, WireError> {
    let mut reader = Reader::new(bytes, "a settle response");
    let mut settled_count = 0;
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => settled_count = reader.uint(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(settled_count)
}
