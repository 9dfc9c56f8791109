//! Frames about copies of a log. See `docs/format.md`, "Frames between brokers".

use crate::copying::{CopiedFile, CopyMessage, FILES_MAX, NAME_BYTES_MAX};
use crate::frame_fields::{Fields, FrameError, Head};

const OFFER: u8 = 32;
const FETCH: u8 = 33;
const PART: u8 = 34;
const FETCHED: u8 = 35;

pub(crate) fn is_of_copy(kind: u8) -> bool {
    (OFFER..=FETCHED).contains(&kind)
}

/// The frame of a message about a copy, up to the bytes of a part, which follow.
#[must_use]
pub fn encode_copy(log_id: &[u8; 16], message: &CopyMessage) -> Vec<u8> {
    match message {
        CopyMessage::Offer { copy, position, files } => {
            let mut head = Head::begin(OFFER, log_id);
            head.longs(&[*copy, *position]);
            for file in files {
                head.longs(&[file.bytes, file.size]);
                // Names of a log's files are short.
                head.0.push(file.name.len() as u8);
                head.0.extend_from_slice(file.name.as_bytes());
            }
            head.end(0)
        }
        CopyMessage::Fetch { copy, file, at, length } => {
            let mut head = Head::begin(FETCH, log_id);
            head.longs(&[*copy, *at]);
            [file, length].iter().for_each(|number| head.0.extend_from_slice(&number.to_le_bytes()));
            head.end(0)
        }
        CopyMessage::Part { copy, file, at, bytes, crc } => {
            let mut head = Head::begin(PART, log_id);
            head.longs(&[*copy, *at]);
            [file, crc].iter().for_each(|number| head.0.extend_from_slice(&number.to_le_bytes()));
            head.end(bytes.len())
        }
        CopyMessage::Fetched { copy } => {
            let mut head = Head::begin(FETCHED, log_id);
            head.long(*copy);
            head.end(0)
        }
    }
}

/// Reads the fields of a message about a copy; those of a part come without its bytes.
pub(crate) fn copy_in(kind: u8, fields: &mut Fields<'_>) -> Result<CopyMessage, FrameError> {
    let copy = fields.long()?;
    match kind {
        OFFER => {
            let position = fields.long()?;
            let mut files = Vec::new();
            while !fields.0.is_empty() {
                files.push(file_in(fields)?);
                if files.len() > FILES_MAX {
                    return Err(FrameError::Fields);
                }
            }
            Ok(CopyMessage::Offer { copy, position, files })
        }
        FETCH => {
            let at = fields.long()?;
            let (file, length) = (fields.int()?, fields.int()?);
            Ok(CopyMessage::Fetch { copy, file, at, length })
        }
        PART => {
            let at = fields.long()?;
            let (file, crc) = (fields.int()?, fields.int()?);
            Ok(CopyMessage::Part { copy, file, at, bytes: Vec::new(), crc })
        }
        _ => Ok(CopyMessage::Fetched { copy }),
    }
}

fn file_in(fields: &mut Fields<'_>) -> Result<CopiedFile, FrameError> {
    let [bytes, size] = fields.longs()?;
    let [length] = fields.array()?;
    if usize::from(length) > NAME_BYTES_MAX {
        return Err(FrameError::Fields);
    }
    let (name, rest) = fields.0.split_at_checked(length.into()).ok_or(FrameError::Fields)?;
    fields.0 = rest;
    let name = std::str::from_utf8(name).map_err(|_| FrameError::Fields)?.to_owned();
    Ok(CopiedFile { name, bytes, size })
}
