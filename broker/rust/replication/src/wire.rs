//! Frames between brokers: messages of replicas, with their records, and those of the brokers themselves. See `docs/format.md`,
//! "Frames between brokers".
//!
//! Invariants: no bytes, however hostile, make decoding panic or allocate more than they have themselves. Each frame has its length, the version of the protocol
//! and a checksum of all but records, which have their own. A frame is decoded only whole, and what follows its fields is refused.

use penstock_replica::{Epoch, Epochs, Message};

pub use crate::copy_frames::encode_copy;
use crate::copy_frames::{copy_in, is_of_copy};
use crate::copying::CopyMessage;
use crate::frame_fields::{CRC_AT, Fields, Head};
pub use crate::frame_fields::{FRAME_BYTES_MAX, FrameError, HEADER_BYTES, PROTOCOL, PROTOCOL_OLDEST, needed};

/// The most epochs that a replica names.
pub const EPOCHS_MAX: usize = 1 << 16;

const EPOCH_BYTES: usize = 16;

const BEAT: u8 = 16;
const BEAT_ANSWER: u8 = 17;
const HELLO: u8 = 18;
const WELCOME: u8 = 19;
const APPEND: u8 = 20;
const ACKNOWLEDGE: u8 = 21;
const FENCED: u8 = 22;
const PRE_VOTE: u8 = 23;
const PRE_VOTE_ANSWER: u8 = 24;
const TAKE_OVER: u8 = 25;
const HOST: u8 = 48;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message of a replica of the shard whose log has this id, and records, which only [`Message::Append`] has.
    Message { log_id: [u8; 16], message: Message, records: &'a [u8] },
    /// A message about a copy of the log with this id.
    Copy { log_id: [u8; 16], message: CopyMessage },
    /// A message between the brokers that have a replica of the shard: this crate does not know what it says.
    Host { log_id: [u8; 16], content: &'a [u8] },
}

/// The length of the frame that begins these bytes; `None` until four of them are there. A reader makes no space for more.
///
/// # Errors
/// `Length` out of bounds.
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(length) = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else { return Ok(None) };
    let is_possible = (HEADER_BYTES..=FRAME_BYTES_MAX).contains(&(length as usize));
    if is_possible { Ok(Some(length as usize)) } else { Err(FrameError::Length(length.into())) }
}

/// The frame of a message between brokers.
#[must_use]
pub fn encode_host(log_id: &[u8; 16], content: &[u8]) -> Vec<u8> {
    let mut head = Head::begin(HOST, log_id);
    head.0.extend_from_slice(content);
    head.end(0)
}

/// The frame of a message, up to its records, of which so many bytes follow.
#[must_use]
pub fn encode_message(log_id: &[u8; 16], message: &Message, record_bytes: usize) -> Vec<u8> {
    let mut head = Head::begin(kind_of(message), log_id);
    match *message {
        Message::Beat { epoch, high_watermark, sent, session } => head.longs(&[epoch, high_watermark, sent, session]),
        Message::BeatAnswer { epoch, sent } => head.longs(&[epoch, sent]),
        Message::Hello { epoch, replica, session, ref epochs, end } => {
            head.longs(&[epoch, session, end]);
            head.0.extend_from_slice(&replica.to_le_bytes());
            epochs.iter().for_each(|(epoch, first)| head.longs(&[epoch, first]));
        }
        Message::Welcome { epoch, session, equal_until, high_watermark } => {
            head.longs(&[epoch, session, equal_until, high_watermark]);
        }
        Message::Append { epoch, after, until, of, high_watermark } => {
            head.longs(&[epoch, after, until, of, high_watermark]);
        }
        Message::Acknowledge { epoch, replica, session, position } => {
            head.longs(&[epoch, session, position]);
            head.0.extend_from_slice(&replica.to_le_bytes());
        }
        Message::Fenced { epoch } | Message::TakeOver { epoch } => head.long(epoch),
        Message::PreVote { epoch, question } => head.longs(&[epoch, question]),
        Message::PreVoteAnswer { epoch, question, agrees } => {
            head.longs(&[epoch, question]);
            head.0.push(u8::from(agrees));
        }
    }
    head.end(record_bytes)
}

fn kind_of(message: &Message) -> u8 {
    match message {
        Message::Beat { .. } => BEAT,
        Message::BeatAnswer { .. } => BEAT_ANSWER,
        Message::Hello { .. } => HELLO,
        Message::Welcome { .. } => WELCOME,
        Message::Append { .. } => APPEND,
        Message::Acknowledge { .. } => ACKNOWLEDGE,
        Message::Fenced { .. } => FENCED,
        Message::PreVote { .. } => PRE_VOTE,
        Message::PreVoteAnswer { .. } => PRE_VOTE_ANSWER,
        Message::TakeOver { .. } => TAKE_OVER,
    }
}

/// Reads a whole frame.
///
/// # Errors
/// Why the bytes are not one.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    if frame_length(bytes)? != Some(bytes.len()) {
        return Err(FrameError::Length(bytes.len() as u64));
    }
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(FrameError::Fields)?;
    let &[_, _, _, _, kind, protocol, r0, r1, id @ .., c0, c1, c2, c3] = header;
    if !(PROTOCOL_OLDEST..=PROTOCOL).contains(&protocol) {
        return Err(FrameError::Protocol(protocol));
    }
    let mut fields = Fields(rest);
    let frame = decode_fields(kind, id, &mut fields)?;
    let records = fields.0;
    let checked = header.get(..CRC_AT).unwrap_or_default();
    let fields = rest.get(..rest.len() - records.len()).unwrap_or_default();
    if crc32c::crc32c_append(crc32c::crc32c(checked), fields) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(FrameError::Checksum);
    }
    if [r0, r1] != [0, 0] {
        return Err(FrameError::Fields);
    }
    match frame {
        Frame::Message { log_id, message: message @ Message::Append { after, until, .. }, .. } => {
            // Positions count bytes.
            let is_whole = until.checked_sub(after).is_some_and(|bytes| bytes > 0 && bytes == records.len() as u64);
            if is_whole { Ok(Frame::Message { log_id, message, records }) } else { Err(FrameError::Fields) }
        }
        Frame::Copy { log_id, message: CopyMessage::Part { copy, file, at, crc, .. } } => {
            let message = CopyMessage::Part { copy, file, at, bytes: records.to_vec(), crc };
            Ok(Frame::Copy { log_id, message })
        }
        frame if records.is_empty() => Ok(frame),
        _ => Err(FrameError::Fields),
    }
}

fn decode_fields<'a>(kind: u8, id: [u8; 16], fields: &mut Fields<'a>) -> Result<Frame<'a>, FrameError> {
    let message = match kind {
        HOST => return Ok(Frame::Host { log_id: id, content: std::mem::take(&mut fields.0) }),
        kind if is_of_copy(kind) => return copy_in(kind, fields).map(|message| Frame::Copy { log_id: id, message }),
        BEAT => {
            let [epoch, high_watermark, sent, session] = fields.longs()?;
            Message::Beat { epoch, high_watermark, sent, session }
        }
        BEAT_ANSWER => {
            let [epoch, sent] = fields.longs()?;
            Message::BeatAnswer { epoch, sent }
        }
        HELLO => hello_in(fields)?,
        WELCOME => {
            let [epoch, session, equal_until, high_watermark] = fields.longs()?;
            Message::Welcome { epoch, session, equal_until, high_watermark }
        }
        APPEND => {
            let [epoch, after, until, of, high_watermark] = fields.longs()?;
            Message::Append { epoch, after, until, of, high_watermark }
        }
        ACKNOWLEDGE => {
            let [epoch, session, position] = fields.longs()?;
            Message::Acknowledge { epoch, replica: u128::from_le_bytes(fields.array()?), session, position }
        }
        FENCED => Message::Fenced { epoch: fields.long()? },
        PRE_VOTE => {
            let [epoch, question] = fields.longs()?;
            Message::PreVote { epoch, question }
        }
        PRE_VOTE_ANSWER => {
            let [epoch, question] = fields.longs()?;
            match fields.array()? {
                [agrees @ (0 | 1)] => Message::PreVoteAnswer { epoch, question, agrees: agrees == 1 },
                _ => return Err(FrameError::Fields),
            }
        }
        TAKE_OVER => Message::TakeOver { epoch: fields.long()? },
        kind => return Err(FrameError::Kind(kind)),
    };
    Ok(Frame::Message { log_id: id, message, records: &[] })
}

fn hello_in(fields: &mut Fields<'_>) -> Result<Message, FrameError> {
    let [epoch, session, end] = fields.longs()?;
    let replica = u128::from_le_bytes(fields.array()?);
    let (all, rest) = fields.0.as_chunks::<EPOCH_BYTES>();
    if !rest.is_empty() || all.len() > EPOCHS_MAX {
        return Err(FrameError::Fields);
    }
    let pair = |bytes: &[u8; EPOCH_BYTES]| -> Result<(Epoch, u64), FrameError> {
        let [epoch, first] = Fields(bytes).longs()?;
        Ok((epoch, first))
    };
    let epochs = Epochs::new(all.iter().map(pair).collect::<Result<Vec<_>, _>>()?);
    fields.0 = &[];
    if !epochs.are_valid(end) {
        return Err(FrameError::Fields);
    }
    Ok(Message::Hello { epoch, replica, session, epochs, end })
}
