//! The section of a checkpoint with the ids that queues and exchanges have seen. See `docs/format.md`, "Checkpoints of format 2".

use penstock_queue::Window;
use penstock_queue::window::WINDOW_SIZE_MAX;

use super::fields::{Fields, put_u32, put_u64};
use crate::windows::Windows;

/// Appends the section of a checkpoint.
pub(super) fn encode(windows: &Windows, out: &mut Vec<u8>) {
    let mut ascending: Vec<_> = windows.iter().collect();
    ascending.sort_unstable_by_key(|(owner, _)| *owner);
    for (owner, window) in ascending {
        put_u32(out, owner.len() as u32);
        out.extend_from_slice(owner);
        put_u32(out, window.count() as u32);
        for (id, expires_at_ms) in window.iter() {
            out.extend_from_slice(&id);
            put_u64(out, expires_at_ms);
        }
    }
}

/// `None` when the bytes are no section.
pub(super) fn decode(content: &[u8]) -> Option<Windows> {
    let (mut fields, mut windows) = (Fields(content), Windows::default());
    while !fields.0.is_empty() {
        let length = usize::try_from(fields.u32()?).ok()?;
        let owner = fields.take(length)?.to_vec();
        let mut window = Window::default();
        for _ in 0..fields.u32()? {
            let id = *fields.take(16)?.first_chunk()?;
            window.insert(id, fields.u64()?, WINDOW_SIZE_MAX);
        }
        windows.insert(owner, window);
    }
    Some(windows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use penstock_queue::QueueId;

    use super::*;
    use crate::marks::{owner_of_exchange_window, owner_of_window};
    use crate::windows::{put, seen_value};

    #[test]
    fn a_section_is_read_back_and_a_part_of_it_is_none_or_has_fewer_windows() {
        let mut windows = Windows::default();
        let owners = [owner_of_window(QueueId(7)).to_vec(), owner_of_exchange_window(b"orders")];
        for (number, owner) in owners.iter().enumerate() {
            for id in 0..=number as u8 {
                put(&mut windows, owner, &[id; 16], &seen_value(u64::from(id) << 40, 128));
            }
        }
        let mut bytes = Vec::new();
        encode(&windows, &mut bytes);

        assert_eq!(decode(&bytes).unwrap(), windows);
        let parts: Vec<_> = (1..bytes.len()).filter_map(|length| decode(&bytes[..length])).collect();
        assert_eq!(parts.iter().map(Windows::len).collect::<Vec<_>>(), [1]);
    }
}
