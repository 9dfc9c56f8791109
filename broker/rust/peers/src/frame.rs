//! A frame: the number of a shard (8 bytes, little-endian), and bytes for the shard's replica.

use bytes::{Buf, BufMut, Bytes};

/// The number of a shard comes first.
const HEAD_BYTES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub shard: u64,
    pub body: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes has no number of a shard")]
pub struct FrameError(usize);

impl Frame {
    pub(crate) fn encoded_bytes(&self) -> usize {
        HEAD_BYTES.saturating_add(self.body.len())
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u64_le(self.shard);
        out.put_slice(&self.body);
    }

    pub(crate) fn parse(mut bytes: Bytes) -> Result<Self, FrameError> {
        if bytes.len() < HEAD_BYTES {
            return Err(FrameError(bytes.len()));
        }
        let shard = bytes.get_u64_le();
        Ok(Self { shard, body: bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_parsed_as_they_were_encoded(shard: u64, body: Vec<u8>) {
            let frame = Frame { shard, body: body.into() };
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), frame.encoded_bytes());
            prop_assert_eq!(Frame::parse(bytes.into()), Ok(frame));
        }
    }

    #[test]
    fn a_frame_without_a_shard_is_refused() {
        assert_eq!(Frame::parse(Bytes::from_static(b"1234567")), Err(FrameError(7)));
    }
}
