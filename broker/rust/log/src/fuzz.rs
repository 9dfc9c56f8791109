//! Doors for fuzzing: readers of files beside the segments, which nothing outside this crate needs. Whether the bytes were taken
//! is all they say.
//!
//! Each takes bytes as they are and once more with right checksums, without which hardly any get beyond the header.

use std::path::Path;

use crate::checkpoint;
use crate::cut;
use crate::format::Format;
use crate::index_file::{Layout, seal};
use crate::manifest;
use crate::record::{le_u32, le_u64};
use crate::segment_header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::synced_file;

const FILE: &str = "fuzzed";

/// An index: whatever it says of itself, nothing is read beyond its end.
///
/// # Panics
/// When that is not so.
#[must_use]
pub fn index(bytes: &[u8]) -> bool {
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    layout(bytes) | layout(&sealed)
}

fn layout(bytes: &[u8]) -> bool {
    let Ok(layout) = Layout::read(bytes, bytes.get(16..24).map_or(0, le_u64)) else { return false };
    let (entries, deadlines) = (layout.entries_end(), layout.deadlines().end);
    assert!(entries <= bytes.len() && deadlines <= bytes.len(), "a part beyond the end");
    let _ = (layout.has_whole_entries(bytes), layout.has_whole_offsets(bytes), layout.has_whole_deadlines(bytes));
    for number in 0..layout.entry_count() {
        let entry = layout.entry(bytes, number).expect("an entry within the file");
        let offsets = layout.offsets(entry.place as usize, entry.count as usize);
        assert!(offsets.end <= bytes.len(), "offsets beyond the end");
    }
    assert!(layout.deadlines_from(bytes, 0).count() <= bytes.len());
    true
}

/// A checkpoint, whose state reads the same when it is written again.
///
/// # Panics
/// When it does not.
#[must_use]
pub fn checkpoint(bytes: &[u8]) -> bool {
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let Ok((log_id, state, live)) = checkpoint::decode(&sealed, Path::new(FILE)) else { return false };
    // Format 1 takes sequences that format 2 has no room for.
    if bytes.get(8..12).map_or(0, le_u32) == Format::Two.number() {
        let again = checkpoint::encode((&log_id, Format::Two), &state, &live);
        let (_, found, listed) = checkpoint::decode(&again, Path::new(FILE)).expect("what was written is read");
        assert!(found == state && listed == live, "a state that changes");
    }
    true
}

/// The small files and headers: of a segment, of the manifest, a slot of `synced`, and `truncating`.
///
/// # Panics
/// When a header or an intention that was read is another one once it was written.
#[must_use]
pub fn headers(bytes: &[u8]) -> bool {
    header(bytes)
        | manifest::fuzz(bytes, Path::new(FILE))
        | synced_file::fuzz(bytes)
        | cut::fuzz(bytes, Path::new(FILE))
}

fn header(bytes: &[u8]) -> bool {
    const LENGTH: usize = SEGMENT_HEADER_BYTES as usize;
    let Some(header) = bytes.first_chunk::<LENGTH>() else { return false };
    let mut sealed = *header;
    let crc = crc32c::crc32c(&sealed[..LENGTH - 4]);
    sealed[LENGTH - 4..].copy_from_slice(&crc.to_le_bytes());
    let Ok(found) = SegmentHeader::decode(&sealed, Path::new(FILE)) else { return false };
    assert!(SegmentHeader::decode(&found.encode(), Path::new(FILE)).is_ok_and(|again| again == found));
    let _ = (found.check_shard(found.shard, Path::new(FILE)), found.coding());
    true
}
