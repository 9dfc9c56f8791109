//! The messages of `penstock.v1.StagingService` that carry rows, or decide about them.

use super::publish::{BatchView, scan_batch};
use crate::protobuf::{Reader, begin_length, end_length, put_bool, put_text, put_uint};
use crate::{NAME_BYTES_MAX, WireError};

const STAGE: &str = "a stage request";
const DECIDE: &str = "a request about a staged batch";
const ATTEMPT: &str = "an attempt of a staged batch";
const TARGET: &str = "the target of a stage";

/// Rows of an attempt; attempt 0 is a new one.
#[derive(Debug, Clone, Copy)]
pub struct StageRequest<'a> {
    pub target: StageTarget<'a>,
    pub batch: u64,
    pub attempt: u64,
    pub rows: Option<BatchView<'a>>,
}

/// A batch to publish or to discard, and its attempts with the number of their rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecideRequest<'a> {
    pub target: StageTarget<'a>,
    pub batch: u64,
    pub attempts: Vec<(u64, u64)>,
}

/// The target of a stage, as in `penstock.v1.StageTarget`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTarget<'a> {
    pub vhost: &'a str,
    pub stage: &'a str,
    pub stream: &'a str,
    pub exchange: &'a str,
    pub routing_key: &'a str,
}

pub fn parse_stage_request(bytes: &[u8]) -> Result<StageRequest<'_>, WireError> {
    let mut reader = Reader::new(bytes, STAGE);
    let mut request = StageRequest { target: StageTarget::default(), batch: 0, attempt: 0, rows: None };
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => request.target = parse_target(reader.slice(field, wire_type)?)?,
            2 => request.batch = reader.uint(field, wire_type)?,
            3 => request.attempt = reader.uint(field, wire_type)?,
            4 => {
                if request.rows.replace(scan_batch(reader.slice(field, wire_type)?)?).is_some() {
                    return Err(WireError::Repeated { what: "the rows of a stage request" });
                }
            }
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(request)
}

/// Reads a `PublishStagedRequest` or a `DiscardStagedRequest`, which have the same layout.
pub fn parse_decide_request(bytes: &[u8]) -> Result<DecideRequest<'_>, WireError> {
    let mut reader = Reader::new(bytes, DECIDE);
    let mut request = DecideRequest { target: StageTarget::default(), batch: 0, attempts: Vec::new() };
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => request.target = parse_target(reader.slice(field, wire_type)?)?,
            2 => request.batch = reader.uint(field, wire_type)?,
            3 => request.attempts.push(parse_attempt(reader.slice(field, wire_type)?)?),
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(request)
}

fn parse_attempt(bytes: &[u8]) -> Result<(u64, u64), WireError> {
    let mut reader = Reader::new(bytes, ATTEMPT);
    let (mut attempt, mut count) = (0, 0);
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => attempt = reader.uint(field, wire_type)?,
            2 => count = reader.uint(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok((attempt, count))
}

fn parse_target(bytes: &[u8]) -> Result<StageTarget<'_>, WireError> {
    let mut reader = Reader::new(bytes, TARGET);
    let mut target = StageTarget::default();
    while let Some((field, wire_type)) = reader.field()? {
        let (place, what) = match field {
            1 => (&mut target.vhost, "the name of a vhost"),
            2 => (&mut target.stage, "the name of a stage"),
            3 => (&mut target.stream, "the name of a stream"),
            4 => (&mut target.exchange, "the name of an exchange"),
            5 => (&mut target.routing_key, "a routing key"),
            _ => {
                reader.skip(wire_type)?;
                continue;
            }
        };
        *place = reader.text(field, wire_type, what, NAME_BYTES_MAX)?;
    }
    Ok(target)
}

fn encode_stage_target(out: &mut Vec<u8>, target: &StageTarget<'_>) {
    let StageTarget { vhost, stage, stream, exchange, routing_key } = *target;
    for (field, text) in (1..).zip([vhost, stage, stream, exchange, routing_key]) {
        put_text(out, field, text);
    }
}

/// A whole request of one of the three kinds, with their common fields, for tests and clients.
pub fn encode_decide_request(out: &mut Vec<u8>, target: &StageTarget<'_>, batch: u64, attempts: &[(u64, u64)]) {
    let contents = begin_length(out, 1);
    encode_stage_target(out, target);
    end_length(out, contents);
    put_uint(out, 2, batch);
    for &(attempt, count) in attempts {
        let contents = begin_length(out, 3);
        put_uint(out, 1, attempt);
        put_uint(out, 2, count);
        end_length(out, contents);
    }
}

pub fn encode_stage_response(out: &mut Vec<u8>, attempt: u64, count: u64) {
    put_uint(out, 1, attempt);
    put_uint(out, 2, count);
}

pub fn encode_publish_staged_response(out: &mut Vec<u8>, was_decided: bool, stored: u64, unroutable: u64) {
    put_bool(out, 1, was_decided);
    put_uint(out, 2, stored);
    put_uint(out, 3, unroutable);
}

pub fn encode_discard_staged_response(out: &mut Vec<u8>, dropped: u64) {
    put_uint(out, 1, dropped);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn a_request_about_a_batch_is_read_back_and_cut_ones_are_refused_or_shorter() {
        let mut bytes = Vec::new();
        let target = StageTarget { vhost: "/", stage: "monday", stream: "events", exchange: "x", routing_key: "key" };
        encode_decide_request(&mut bytes, &target, 7, &[(u64::MAX, 3), (2, 0)]);

        let wanted = DecideRequest { target, batch: 7, attempts: vec![(u64::MAX, 3), (2, 0)] };
        assert_eq!(parse_decide_request(&bytes).unwrap(), wanted);
        for length in 0..bytes.len() {
            let cut = parse_decide_request(&bytes[..length]);
            assert!(cut.is_err() || cut.unwrap() != wanted);
        }
    }

    #[test]
    fn rows_of_a_stage_request_are_those_of_a_publish_batch() {
        let mut rows = crate::grpc::BatchEncoder::begin(Vec::new(), "", "", false);
        rows.push(b"one", None);
        rows.push(b"two", None);
        let (mut bytes, batch) = (Vec::new(), rows.finish());
        put_uint(&mut bytes, 2, 7);
        // The encoder writes the batch as field 2 of a publish request; its contents are those of field 4 here.
        let mut reader = Reader::new(&batch, "a publish request");
        let (field, wire_type) = reader.field().unwrap().unwrap();
        let contents = reader.slice(field, wire_type).unwrap();
        let begun = begin_length(&mut bytes, 4);
        bytes.extend_from_slice(contents);
        end_length(&mut bytes, begun);

        let request = parse_stage_request(&bytes).unwrap();

        let bodies: Vec<_> = request.rows.unwrap().messages().map(|message| message.unwrap().body.to_vec()).collect();
        assert_eq!((request.batch, request.attempt, bodies), (7, 0, vec![b"one".to_vec(), b"two".to_vec()]));
    }
}
