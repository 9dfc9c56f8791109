//! A message as routing sees it: what exchanges match, and what they choose by.

/// The parts of a message that routing reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routable<'a> {
    pub key: &'a [u8],
    /// Routing keys beside `key`: direct and topic exchanges match each of them, the default one leads to each queue.
    pub more_keys: &'a [&'a [u8]],
    /// The message's own key, which selects a partition.
    pub own_key: Option<&'a [u8]>,
    /// Its header table, without its length; one that cannot be read counts up to its first bad entry.
    pub headers: Option<&'a [u8]>,
    /// Its properties as they are stored.
    pub properties: &'a [u8],
    /// A number that random exchanges choose by.
    pub draw: u64,
}
