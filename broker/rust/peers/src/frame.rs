//! A frame: bytes for a broker, in two parts so that records are not copied behind their head.

use bytes::{BufMut, Bytes};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub head: Bytes,
    pub body: Bytes,
}

impl Frame {
    pub(crate) fn bytes(&self) -> usize {
        self.head.len().saturating_add(self.body.len())
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_slice(&self.head);
        out.put_slice(&self.body);
    }
}
