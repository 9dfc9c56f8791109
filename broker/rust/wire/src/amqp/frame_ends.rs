//! Where frames end in bytes that come in pieces and are passed on unread. Behind the end of a frame, whoever passes them on can say
//! something else instead.
//!
//! It trusts the sizes, and looks at no end octets: bytes that are no frames make the ends wrong, and nothing else. It keeps eleven bytes, whatever
//! comes.

use super::frame::FrameKind;
use super::method::MethodId;

/// Type, channel and size.
const HEAD_BYTES: usize = 7;

/// A method frame begins with these, and with the method's numbers.
const NUMBERED_BYTES: usize = HEAD_BYTES + 4;

/// The methods by which the sender ends a connection, or agrees to its end.
const ENDS: [MethodId; 2] = [MethodId { class: 10, method: 50 }, MethodId { class: 10, method: 51 }];

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct FrameEnds {
    /// The beginning of the frame that has begun.
    beginning: [u8; NUMBERED_BYTES],
    taken: usize,
    /// How much of that frame is to come, once its size is known.
    rest: Option<u64>,
    has_closed: bool,
}

impl FrameEnds {
    /// Takes the bytes that come next. Return how many of them there are up to the end of the last frame that ends in them, if any does.
    pub fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut end) = (0, None);
        while let Some(left) = bytes.get(at..).filter(|left| !left.is_empty()) {
            at += self.take_of_frame(left);
            if self.rest == Some(0) {
                end = Some(at);
                self.has_closed |= self.is_end();
                (self.taken, self.rest) = (0, None);
            }
        }
        end
    }

    /// Return whether all frames that have begun have ended.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.taken == 0
    }

    /// Return whether a whole frame has ended the connection, or agreed to its end.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// Takes some bytes of one frame, and returns how many.
    fn take_of_frame(&mut self, bytes: &[u8]) -> usize {
        let wanted = match self.rest {
            None => HEAD_BYTES - self.taken,
            // The size counts no end octet.
            Some(rest) => usize::try_from(rest).unwrap_or(usize::MAX),
        };
        let count = wanted.min(bytes.len());
        let slots = self.beginning.get_mut(self.taken..).unwrap_or_default();
        slots.iter_mut().zip(bytes.get(..count).unwrap_or_default()).for_each(|(slot, byte)| *slot = *byte);
        match self.rest.as_mut() {
            Some(rest) => *rest -= count as u64,
            None if self.taken + count == HEAD_BYTES => {
                let [_, _, _, a, b, c, d, ..] = self.beginning;
                self.rest = Some(u64::from(u32::from_be_bytes([a, b, c, d])) + 1);
            }
            None => {}
        }
        self.taken = (self.taken + count).min(NUMBERED_BYTES);
        count
    }

    fn is_end(&self) -> bool {
        let [kind, c1, c2, _, _, _, _, class_high, class_low, method_high, method_low] = self.beginning;
        let id = MethodId {
            class: u16::from_be_bytes([class_high, class_low]),
            method: u16::from_be_bytes([method_high, method_low]),
        };
        kind == FrameKind::Method as u8 && [c1, c2] == [0, 0] && self.taken == NUMBERED_BYTES && ENDS.contains(&id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::FrameEnds;
    use crate::Name;
    use crate::amqp::content::put_content;
    use crate::amqp::frame::put_heartbeat;
    use crate::amqp::method::Method;

    /// Frames of several kinds and sizes, and where each of them ends.
    fn frames() -> (Vec<u8>, Vec<usize>) {
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        Method::ChannelOpenOk {}.put(1, &mut out);
        ends.push(out.len());
        put_heartbeat(&mut out);
        ends.push(out.len());
        put_content(1, &[0x10, 0, 1], &[7; 300], 4096, &mut out);
        ends.extend([out.len() - 308, out.len()]);
        Method::ChannelCloseOk {}.put(1, &mut out);
        ends.push(out.len());
        (out, ends)
    }

    #[test]
    fn ends_are_found_however_the_bytes_come() {
        let (bytes, ends) = frames();
        for size in 1..=bytes.len() {
            let (mut found, mut at) = (FrameEnds::default(), 0);
            for piece in bytes.chunks(size) {
                let end = found.take(piece).map(|end| at + end);
                let last = ends.iter().copied().filter(|end| (at + 1..=at + piece.len()).contains(end)).max();
                at += piece.len();
                assert_eq!(end, last, "pieces of {size}");
                assert_eq!(found.is_between(), last == Some(at));
            }
            assert!(!found.has_closed());
        }
    }

    #[test]
    fn a_close_counts_once_it_has_ended_and_on_no_other_channel() {
        let close = Method::ConnectionClose { reply_code: 320, reply_text: Name::cut("bye"), class: 0, method: 0 };
        for method in [close, Method::ConnectionCloseOk {}] {
            let (mut out, mut found) = (Vec::new(), FrameEnds::default());
            method.put(1, &mut out);
            found.take(&out);
            assert!(!found.has_closed());
            out.clear();
            method.put(0, &mut out);
            found.take(&out[..out.len() - 1]);
            assert!(!found.has_closed());
            found.take(&out[out.len() - 1..]);
            assert!(found.has_closed());
        }
    }

    #[test]
    fn a_short_method_frame_is_no_close() {
        let mut found = FrameEnds::default();
        let mut close = Vec::new();
        Method::ConnectionCloseOk {}.put(0, &mut close);
        // The numbers of a close are left from the frame before.
        found.take(&close[..11]);
        let mut found = FrameEnds { rest: None, taken: 0, ..found };
        assert_eq!(found.take(&[1, 0, 0, 0, 0, 0, 0, 0xce]), Some(8));
        assert!(!found.has_closed());
    }

    #[test]
    fn the_largest_size_is_no_trouble() {
        let mut found = FrameEnds::default();
        assert_eq!(found.take(&[3, 0, 1, 255, 255, 255, 255, 0]), None);
        assert!(!found.is_between());
    }
}
