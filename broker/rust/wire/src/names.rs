//! Names that were checked, and how they are compared on the hot path.

use crate::WireError;

/// Names of exchanges, queues, vhosts and consumers, and routing keys, have at most this many bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A name or a routing key of a client: at most [`NAME_BYTES_MAX`] bytes of UTF-8, any characters. There is no other way to
/// make one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    pub const EMPTY: Name<'static> = Name(b"");

    /// Checks the bytes; `what` they name stands in the error.
    ///
    /// # Errors
    /// When they are too many, or no UTF-8.
    #[inline]
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Result<Name<'a>, WireError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(WireError::TooLong { what, size: bytes.len(), max: NAME_BYTES_MAX });
        }
        std::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8 { what })?;
        Ok(Name(bytes))
    }

    /// As much of a text as a name may have: the broker's own words, which need no error.
    #[must_use]
    pub fn cut(text: &'a str) -> Name<'a> {
        let end = (0..=NAME_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        Name(text.get(..end).unwrap_or_default().as_bytes())
    }

    /// Bytes that were checked before, as a part of the same frame.
    #[inline]
    pub(crate) fn checked(bytes: &'a [u8]) -> Name<'a> {
        Name(bytes)
    }

    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn to_text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

/// Whether two names are the same.
///
/// Most names of most messages are empty, and an empty slice may point anywhere: libc's masked vector compare of
/// nothing at an unmapped address takes a microcode assist of some 100 ns. So emptiness is checked first.
#[inline]
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, Name, is_same};
    use crate::WireError;

    #[test]
    fn names_are_the_same_by_their_bytes() {
        assert!(is_same(b"", &[]));
        assert!(is_same(b"logs", b"logs"));
        assert!(!is_same(b"logs", b"log"));
        assert!(!is_same(b"logs", b"lags"));
    }

    #[test]
    fn a_name_has_a_bounded_length_and_is_utf8() {
        let longest = "é".repeat(NAME_BYTES_MAX / 2);
        assert_eq!(Name::new("a queue", longest.as_bytes()).map(Name::to_text), Ok(longest));
        assert!(Name::new("a queue", b"line\nfeed and \0").is_ok());
        assert_eq!(Name::new("a queue", b"\xff"), Err(WireError::NotUtf8 { what: "a queue" }));
        assert_eq!(Name::cut("short").as_bytes(), b"short");
        assert_eq!(Name::cut(&"é".repeat(200)).to_text(), "é".repeat(127));
        let too_long = [b'x'; NAME_BYTES_MAX + 1];
        assert_eq!(Name::new("a queue", &too_long), Err(WireError::TooLong { what: "a queue", size: 256, max: 255 }));
    }
}
