//! Comparing names on the hot path.

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
    use super::is_same;

    #[test]
    fn names_are_the_same_by_their_bytes() {
        assert!(is_same(b"", &[]));
        assert!(is_same(b"logs", b"logs"));
        assert!(!is_same(b"logs", b"log"));
        assert!(!is_same(b"logs", b"lags"));
    }
}
