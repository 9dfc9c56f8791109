//! The parts that all frames between brokers have: bounds, header, and how fields are read and written.

/// The version of the protocol that this version of the broker speaks.
pub const PROTOCOL: u8 = 1;
/// The oldest one that it also speaks.
pub const PROTOCOL_OLDEST: u8 = 1;
/// Bytes before the fields of a frame.
pub const HEADER_BYTES: usize = 28;
/// The largest frame: the largest record of a log, and what is before it.
pub const FRAME_BYTES_MAX: usize = penstock_log::RECORD_BYTES_MAX as usize + 1024;
/// Where the version of the protocol is in a header.
const PROTOCOL_AT: usize = 5;
/// Where the checksum is in a header.
pub(crate) const CRC_AT: usize = 24;

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame has {0} bytes, between {HEADER_BYTES} and {FRAME_BYTES_MAX} are possible")]
    Length(u64),
    #[error(
        "a frame of protocol {0}, this version speaks {PROTOCOL_OLDEST} to {PROTOCOL}; start the same version on all brokers"
    )]
    Protocol(u8),
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("the checksum of a frame does not match")]
    Checksum,
    #[error("the fields of a frame do not fit its length, or their bounds")]
    Fields,
}

/// The version of the protocol that a kind of frames came with, so that brokers of earlier versions go on taking older kinds.
const fn protocol_of(_kind: u8) -> u8 {
    // All kinds are those of the first version.
    1
}

/// The version of the protocol that the receiver of a frame has to know.
#[must_use]
pub fn needed(frame: &[u8]) -> u16 {
    frame.get(PROTOCOL_AT).map_or(0, |&protocol| protocol.into())
}

/// The bytes of a frame before its records.
pub(crate) struct Head(pub Vec<u8>);

impl Head {
    pub fn begin(kind: u8, id: &[u8; 16]) -> Head {
        let mut bytes = vec![0, 0, 0, 0, kind, protocol_of(kind), 0, 0];
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(&[0; HEADER_BYTES - CRC_AT]);
        Head(bytes)
    }

    pub fn long(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn longs(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|&number| self.long(number));
    }

    pub fn end(mut self, record_bytes: usize) -> Vec<u8> {
        let length = (self.0.len() + record_bytes) as u32;
        self.0[..4].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&self.0[..CRC_AT]), &self.0[HEADER_BYTES..]);
        self.0[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.0
    }
}

/// The fields that are still to be read.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(FrameError::Fields)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn int(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn long(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn longs<const N: usize>(&mut self) -> Result<[u64; N], FrameError> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.long()?;
        }
        Ok(numbers)
    }
}
