//! The marks of the windows by which queues and exchanges recognize repetitions. See `docs/format.md`, "mark".
//!
//! Invariant: a mark says all that its window needs to be the same after a start: the id, its expiry, and how many ids the
//! window had room for. So a window is made again by inserting, and no mark says that an id left.

use penstock_queue::{SeenId, Window};
use rustc_hash::FxHashMap;

use crate::marks::{EXCHANGE_WINDOW, WINDOW};

/// The value of a mark: the expiry (6) and the size (4).
const SEEN_BYTES: usize = 10;

pub(crate) type Windows = FxHashMap<Vec<u8>, Window>;

/// The value of the mark of an id that was seen. `expires_at_ms` has 48 bits.
#[must_use]
pub fn seen_value(expires_at_ms: u64, size_max: usize) -> [u8; SEEN_BYTES] {
    let mut value = [0; SEEN_BYTES];
    let (expiry, size) = value.split_at_mut(6);
    expiry.copy_from_slice(expires_at_ms.to_le_bytes().get(..6).unwrap_or_default());
    size.copy_from_slice(&(size_max as u32).to_le_bytes());
    value
}

pub(crate) fn is_window(owner: &[u8]) -> bool {
    matches!(owner.first(), Some(&WINDOW | &EXCHANGE_WINDOW))
}

/// Inserts the id of a mark. A mark without an id limits the window to a size, or forgets it. Others are passed over.
pub(crate) fn put(windows: &mut Windows, owner: &[u8], key: &[u8], value: &[u8]) {
    if key.is_empty() && value.is_empty() {
        windows.remove(owner);
    } else if key.is_empty()
        && let Some(&size) = value.first_chunk()
    {
        windows.get_mut(owner).into_iter().for_each(|window| window.limit(u32::from_le_bytes(size) as usize));
    } else if let (Ok(id), Some((expires_at_ms, size_max))) = (SeenId::try_from(key), seen_in(value)) {
        let window = match windows.get_mut(owner) {
            Some(window) => window,
            None => windows.entry(owner.to_vec()).or_default(),
        };
        window.insert(id, expires_at_ms, size_max);
    }
}

fn seen_in(value: &[u8]) -> Option<(u64, usize)> {
    let [a, b, c, d, e, f, size @ ..] = *value.first_chunk::<SEEN_BYTES>().filter(|_| value.len() == SEEN_BYTES)?;
    Some((u64::from_le_bytes([a, b, c, d, e, f, 0, 0]), u32::from_le_bytes(size) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_without_an_id_forgets_and_other_marks_are_passed_over() {
        let mut windows = Windows::default();
        put(&mut windows, b"eorders", &[1; 16], &seen_value(0, 4));
        put(&mut windows, b"eorders", &[2; 15], &seen_value(0, 4));
        put(&mut windows, b"eorders", &[2; 16], &[0; 9]);
        assert_eq!(windows.values().map(Window::count).collect::<Vec<_>>(), [1]);

        put(&mut windows, b"eorders", &[], &[]);

        assert!(windows.is_empty());
    }

    #[test]
    fn a_mark_says_when_its_id_is_forgotten_and_how_many_others_there_may_be() {
        let mut windows = Windows::default();
        for id in 1..=5 {
            put(&mut windows, b"w\x01\0\0\0", &[id; 16], &seen_value((1 << 48) - 1, 2));
        }

        let found: Vec<_> = windows.values().flat_map(Window::iter).collect();
        assert_eq!(found, [([4; 16], (1 << 48) - 1), ([5; 16], (1 << 48) - 1)]);
    }
}
