//! Envelopes: records that are applied as a whole or not at all. See `docs/format.md`, "Envelope".
//!
//! Invariant: an envelope that was decoded with its checks has only valid records, each with the position that it claims,
//! and no more of them than the limits.

use super::{
    DecodeError, Decoded, Framed, HEADER_BYTES, KIND_MARK, KIND_MESSAGE, MessageView, Position, RECORD_BYTES_MAX,
    Record, decode_with, le_u32, verify_head,
};
use crate::format::Coding;

/// The most records in an envelope.
pub const ENVELOPE_RECORDS_MAX: usize = 4096;
/// The most targets of all its messages together.
pub const ENVELOPE_TARGETS_MAX: usize = 16 * 1024;
/// The most ranges of all its settlements together.
pub const ENVELOPE_RANGES_MAX: usize = 64 * 1024;
/// The most bytes of all its records together, without payloads.
pub const ENVELOPE_HEADS_BYTES_MAX: usize = 4 << 20;
/// Its bytes before the records: a header and a head.
pub(crate) const ENVELOPE_FIXED_BYTES: usize = HEADER_BYTES + 8;

/// Records that are applied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvelopeView<'a> {
    first: Position,
    count: usize,
    records: &'a [u8],
    coding: Coding,
}

impl<'a> EnvelopeView<'a> {
    /// Its records, each with its offset from where the envelope begins.
    pub fn records(&self) -> impl Iterator<Item = (u32, Decoded<'a>)> + use<'a> {
        let (mut rest, coding) = (self.records, self.coding);
        let mut at = ENVELOPE_FIXED_BYTES as u32;
        std::iter::from_fn(move || {
            let decoded = decode_with(rest, coding, false).ok()?;
            let offset = at;
            at += decoded.length;
            rest = rest.get(decoded.length as usize..)?;
            Some((offset, decoded))
        })
    }

    /// Whether the checksums of all payloads match.
    pub fn verify(&self) -> Result<(), DecodeError> {
        self.messages().try_for_each(|message| message.verify())
    }

    fn messages(&self) -> impl Iterator<Item = MessageView<'a>> + use<'a> {
        self.records().filter_map(|(_, decoded)| match decoded.record {
            Record::Message(message) => Some(message),
            _ => None,
        })
    }

    /// Reads the envelope of a header, and with `check` all that is in it but payloads.
    pub(super) fn read(framed: &Framed<'a>, coding: Coding, check: bool) -> Result<EnvelopeView<'a>, DecodeError> {
        let (fixed, records) = framed.record.split_at_checked(ENVELOPE_FIXED_BYTES).ok_or(DecodeError::Fields)?;
        if framed.count == 0 || framed.count > ENVELOPE_RECORDS_MAX {
            return Err(DecodeError::Fields);
        }
        let first = Position(framed.position.0.saturating_add(ENVELOPE_FIXED_BYTES as u64));
        let view = EnvelopeView { first, count: framed.count, records, coding };
        if check {
            verify_head(framed.record, ENVELOPE_FIXED_BYTES, coding.seed)?;
            let [payload_crc, entries, heads_bytes] = [16, 24, 28].map(|at| fixed.get(at..).map_or(0, le_u32));
            view.check(payload_crc, Sizes { entries: entries as usize, heads_bytes: heads_bytes as usize })?;
        }
        Ok(view)
    }

    fn check(&self, payload_crc: u32, claimed: Sizes) -> Result<(), DecodeError> {
        let (mut at, mut crc, mut found) = (0, 0, Sizes::default());
        for _ in 0..self.count {
            let framed = Framed::read(self.records.get(at..).unwrap_or_default())?;
            let is_placed = framed.position.0 == self.first.0.saturating_add(at as u64);
            if !framed.is_enclosed || !(KIND_MESSAGE..=KIND_MARK).contains(&framed.kind) || !is_placed {
                return Err(DecodeError::Fields);
            }
            let record = framed.content(self.coding, true).map_err(|error| framed.or_newer(error, self.coding))?;
            found.add(&record, framed.record.len());
            crc = crc32c::crc32c_append(crc, framed.record.get(..HEADER_BYTES).unwrap_or_default());
            at += framed.record.len();
        }
        if crc != payload_crc {
            return Err(DecodeError::PayloadChecksum);
        }
        if at != self.records.len() || found != claimed || found.heads_bytes > ENVELOPE_HEADS_BYTES_MAX {
            return Err(DecodeError::Fields);
        }
        Ok(())
    }
}

/// How much work an envelope is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sizes {
    /// Targets and ranges.
    entries: usize,
    heads_bytes: usize,
}

impl Sizes {
    fn add(&mut self, record: &Record<'_>, bytes: usize) {
        let (entries, heads_bytes) = match record {
            Record::Message(message) => (message.targets().len(), message.head_bytes as usize),
            Record::Settle(settle) => (settle.range_count(), bytes),
            _ => (0, bytes),
        };
        self.entries += entries;
        self.heads_bytes += heads_bytes;
    }
}

/// Where the envelope ends that begins these bytes, by its own length; `None` for another record.
pub(crate) fn envelope_end(bytes: &[u8]) -> Option<u64> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let length = u64::from(le_u32(header));
    (header[4] == super::KIND_ENVELOPE && length <= RECORD_BYTES_MAX).then_some(length)
}
