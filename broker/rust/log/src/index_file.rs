//! The bytes of an index file. See `docs/format.md`, "Indexes" and "Indexes of format 2".
//!
//! Invariants: equal indexes have equal bytes. Whatever the bytes are, a layout names only places within the file, and a
//! section that this version does not know is refused. Entries and sections have checksums of their own, which are
//! checked where they are read. This module knows no file.

use std::ops::Range;

use penstock_queue::{QueueId, Sequence};

use crate::deadlines::{Deadline, DeadlineKind};
use crate::format::Format;
use crate::index::{MemoryIndex, Run};
use crate::record::one::queue_bytes;
use crate::record::{le_u32, le_u64};

const MAGIC: &[u8; 8] = b"PNSTKIDX";
/// The header without the table of sections.
pub(crate) const FIXED_BYTES: usize = 64;
const SECTION_BYTES: usize = 24;
/// A bound for the header that is read.
const SECTIONS_MAX: usize = 16;
const OFFSET_BYTES: usize = 4;
const DEADLINE_BYTES: usize = 18;
/// Set in the time of a deadline that is no expiry.
const DUE_BIT: u64 = 1 << 47;

const OFFSETS: u32 = 1;
const DEADLINES: u32 = 2;

/// Contiguous messages of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) queue: QueueId,
    pub(crate) first: Sequence,
    pub(crate) count: u32,
    pub(crate) body_bytes: u64,
    /// When the first and the last of them were stored; format 1 does not say.
    pub(crate) stored_ms: Option<(u64, u64)>,
    /// Index of its first offset.
    pub(crate) place: u32,
}

/// Why bytes are no index of a segment that this version reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Corrupt,
    /// This format is newer.
    NewerFormat(u32),
    /// A newer version wrote a section.
    NewerSection,
}

/// A part of a file, and the checksum that its bytes must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    place: Range<usize>,
    crc: u32,
}

impl Part {
    fn is_whole(&self, bytes: &[u8]) -> bool {
        bytes.get(self.place.clone()).is_some_and(|part| crc32c::crc32c(part) == self.crc)
    }
}

/// Where the parts of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    format: Format,
    entries: Part,
    offsets: Part,
    deadlines: Part,
    earliest_ms: Option<u64>,
}

/// How many bytes the header has by what it says itself, which is checked later; at most a bound.
pub(crate) fn header_bytes(fixed: &[u8]) -> usize {
    let of_sections = fixed.get(12..16).map_or(0, le_u32) as usize;
    of_sections.clamp(FIXED_BYTES, FIXED_BYTES + SECTIONS_MAX * SECTION_BYTES)
}

impl Layout {
    /// Reads the header of a segment's index; `bytes` are the whole file, of which only the header is touched.
    pub(crate) fn read(bytes: &[u8], segment_id: u64) -> Result<Layout, Unread> {
        let fixed: &[u8; FIXED_BYTES] = bytes.first_chunk().ok_or(Unread::Corrupt)?;
        let format = if &fixed[..8] == MAGIC { le_u32(&fixed[8..12]) } else { return Err(Unread::Corrupt) };
        let table = match format {
            0 | 1 => &[],
            _ => bytes.get(FIXED_BYTES..header_bytes(fixed)).ok_or(Unread::Corrupt)?,
        };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&fixed[..60]), table);
        if le_u32(&fixed[60..]) != crc {
            return Err(Unread::Corrupt);
        }
        let format = Format::of_number(format).ok_or(Unread::NewerFormat(format))?;
        if le_u64(&fixed[16..24]) != segment_id {
            return Err(Unread::Corrupt);
        }
        let begin = FIXED_BYTES + table.len();
        let end = begin.saturating_add((le_u32(&fixed[24..28]) as usize).saturating_mul(entry_bytes(format)));
        let entries = Part { place: begin..end, crc: le_u32(&fixed[32..36]) };
        let mut layout =
            Layout { format, entries, offsets: Part::default(), deadlines: Part::default(), earliest_ms: None };
        let offsets_bytes = (le_u32(&fixed[28..32]) as usize).saturating_mul(OFFSET_BYTES);
        let mut place = end;
        match format {
            Format::One => {
                layout.offsets = Part { place: end..end.saturating_add(offsets_bytes), crc: le_u32(&fixed[36..40]) };
                place = layout.offsets.place.end;
            }
            Format::Two => {
                let (sections, rest) = table.as_chunks::<SECTION_BYTES>();
                if !rest.is_empty() {
                    return Err(Unread::Corrupt);
                }
                for section in sections {
                    place = layout.take_section(section, place)?;
                }
                if !layout.deadlines.place.is_empty() {
                    layout.earliest_ms = Some(u48(&fixed[40..46]));
                }
            }
        }
        // In format 2 this also rules out that the offsets are missing.
        let is_whole = place == bytes.len() && layout.offsets.place.len() == offsets_bytes;
        if is_whole { Ok(layout) } else { Err(Unread::Corrupt) }
    }

    /// Adds a section, which begins where the one before it ends; returns where it ends.
    fn take_section(&mut self, section: &[u8; SECTION_BYTES], begin: usize) -> Result<usize, Unread> {
        let [kind, crc] = [0, 4].map(|at| section.get(at..).map_or(0, le_u32));
        let [place, bytes] = [8, 16].map(|at| section.get(at..).map_or(0, le_u64));
        let end = usize::try_from(bytes).ok().and_then(|bytes| begin.checked_add(bytes)).ok_or(Unread::Corrupt)?;
        let (part, item_bytes) = match kind {
            OFFSETS => (&mut self.offsets, OFFSET_BYTES),
            DEADLINES => (&mut self.deadlines, DEADLINE_BYTES),
            _ => return Err(Unread::NewerSection),
        };
        let is_there = part.place.end > 0;
        if place != begin as u64 || is_there || !(end - begin).is_multiple_of(item_bytes) {
            return Err(Unread::Corrupt);
        }
        *part = Part { place: begin..end, crc };
        Ok(end)
    }

    /// Header and entries.
    pub(crate) fn entries_end(&self) -> usize {
        self.entries.place.end
    }

    pub(crate) fn has_whole_entries(&self, bytes: &[u8]) -> bool {
        self.entries.is_whole(bytes)
    }

    pub(crate) fn has_whole_offsets(&self, bytes: &[u8]) -> bool {
        self.offsets.is_whole(bytes)
    }

    pub(crate) fn has_whole_deadlines(&self, bytes: &[u8]) -> bool {
        self.deadlines.place.is_empty() || self.deadlines.is_whole(bytes)
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.entries.place.len() / entry_bytes(self.format)
    }

    pub(crate) fn entry(&self, bytes: &[u8], index: usize) -> Option<Entry> {
        let size = entry_bytes(self.format);
        let entry = bytes.get(self.entries.place.clone())?.get(index.checked_mul(size)?..)?.get(..size)?;
        Some(match self.format {
            Format::One => entry_of_one(entry),
            Format::Two => entry_of_two(entry),
        })
    }

    /// The place of so many offsets.
    pub(crate) fn offsets(&self, first: usize, count: usize) -> Range<usize> {
        let begin = self.offsets.place.start.saturating_add(first.saturating_mul(OFFSET_BYTES));
        begin..begin.saturating_add(count.saturating_mul(OFFSET_BYTES)).min(self.offsets.place.end)
    }

    /// The earliest time of a deadline.
    pub(crate) fn earliest_ms(&self) -> Option<u64> {
        self.earliest_ms
    }

    pub(crate) fn deadlines(&self) -> Range<usize> {
        self.deadlines.place.clone()
    }

    /// The deadlines from an index on, by time.
    pub(crate) fn deadlines_from<'a>(&self, bytes: &'a [u8], index: usize) -> impl Iterator<Item = Deadline> + use<'a> {
        let section = bytes.get(self.deadlines.place.clone()).unwrap_or_default();
        section.as_chunks::<DEADLINE_BYTES>().0.iter().skip(index).map(deadline)
    }
}

fn entry_bytes(format: Format) -> usize {
    match format {
        Format::One => 28,
        Format::Two => 44,
    }
}

fn entry_of_one(entry: &[u8]) -> Entry {
    let field = |from: usize| entry.get(from..).unwrap_or_default();
    Entry {
        queue: QueueId(u64::from(le_u32(field(0)))),
        count: le_u32(field(4)),
        first: Sequence(le_u64(field(8))),
        body_bytes: le_u64(field(16)),
        stored_ms: None,
        place: le_u32(field(24)),
    }
}

fn entry_of_two(entry: &[u8]) -> Entry {
    let field = |from: usize| entry.get(from..).unwrap_or_default();
    Entry {
        queue: field(0).first_chunk().map_or(QueueId(0), |queue| QueueId::from_bytes(*queue)),
        first: Sequence(le_u64(field(8))),
        count: le_u32(field(16)),
        place: le_u32(field(20)),
        body_bytes: le_u64(field(24)),
        stored_ms: Some((u48(field(32)), u48(field(38)))),
    }
}

fn deadline(bytes: &[u8; DEADLINE_BYTES]) -> Deadline {
    let [time @ .., q0, q1, q2, q3, q4, s0, s1, s2, s3, s4, s5, s6] = bytes;
    let time: &[u8; 6] = time;
    let time = u48(time);
    Deadline {
        at_ms: time & !DUE_BIT,
        kind: if time & DUE_BIT == 0 { DeadlineKind::Expires } else { DeadlineKind::Due },
        queue: QueueId::from_bytes([*q0, *q1, *q2, *q3, *q4]),
        sequence: Sequence(u64::from_le_bytes([*s0, *s1, *s2, *s3, *s4, *s5, *s6, 0])),
    }
}

fn u48(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |&[a, b, c, d, e, f]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
}

/// The index of a segment as a file.
pub(crate) fn encode(format: Format, segment_id: u64, index: &MemoryIndex) -> Vec<u8> {
    let runs = index.sorted_runs();
    let offsets_count: usize = runs.iter().map(|(_, run)| run.offsets.len()).sum();
    let deadlines = if format == Format::Two { index.sorted_deadlines() } else { Vec::new() };
    let section_count = match format {
        Format::One => 0,
        Format::Two => 1 + usize::from(!deadlines.is_empty()),
    };
    let begin = FIXED_BYTES + section_count * SECTION_BYTES;
    let sections_bytes = offsets_count * OFFSET_BYTES + deadlines.len() * DEADLINE_BYTES;
    let mut bytes = Vec::with_capacity(begin + runs.len() * entry_bytes(format) + sections_bytes);
    bytes.resize(begin, 0);
    let mut place = 0_u32;
    for (queue, run) in &runs {
        match format {
            Format::One => put_entry_of_one(&mut bytes, (*queue, run), place),
            Format::Two => put_entry_of_two(&mut bytes, (*queue, run), place),
        }
        place += run.offsets.len() as u32;
    }
    let entries_crc = crc32c::crc32c(&bytes[begin..]);
    let offsets_at = bytes.len();
    for offset in runs.iter().flat_map(|(_, run)| &run.offsets) {
        bytes.extend_from_slice(&offset.to_le_bytes());
    }
    let deadlines_at = bytes.len();
    deadlines.iter().for_each(|deadline| put_deadline(&mut bytes, deadline));
    let offsets_crc = crc32c::crc32c(&bytes[offsets_at..deadlines_at]);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&format.number().to_le_bytes());
    bytes[12..16].copy_from_slice(&(begin as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&segment_id.to_le_bytes());
    bytes[24..28].copy_from_slice(&(runs.len() as u32).to_le_bytes());
    bytes[28..32].copy_from_slice(&place.to_le_bytes());
    bytes[32..36].copy_from_slice(&entries_crc.to_le_bytes());
    if format == Format::One {
        bytes[36..40].copy_from_slice(&offsets_crc.to_le_bytes());
    } else {
        put_section(&mut bytes, 0, (OFFSETS, offsets_crc), offsets_at..deadlines_at);
    }
    if let Some(earliest) = deadlines.first() {
        let deadlines_crc = crc32c::crc32c(&bytes[deadlines_at..]);
        let end = bytes.len();
        put_section(&mut bytes, 1, (DEADLINES, deadlines_crc), deadlines_at..end);
        bytes[40..46].copy_from_slice(&earliest.at_ms.to_le_bytes()[..6]);
    }
    let header_crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[FIXED_BYTES..begin]);
    bytes[60..64].copy_from_slice(&header_crc.to_le_bytes());
    bytes
}

/// Makes the checksum of a header right.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn seal(bytes: &mut [u8]) {
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return };
    let is_two = le_u32(&fixed[8..12]) > 1;
    let table = if is_two { bytes.get(FIXED_BYTES..header_bytes(fixed)) } else { None };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&fixed[..60]), table.unwrap_or_default());
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
}

fn put_section(bytes: &mut [u8], index: usize, (kind, crc): (u32, u32), place: Range<usize>) {
    let at = FIXED_BYTES + index * SECTION_BYTES;
    bytes[at..at + 4].copy_from_slice(&kind.to_le_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&(place.start as u64).to_le_bytes());
    bytes[at + 16..at + 24].copy_from_slice(&(place.len() as u64).to_le_bytes());
}

fn put_entry_of_one(out: &mut Vec<u8>, (queue, run): (QueueId, &Run), place: u32) {
    out.extend_from_slice(&queue_bytes(queue));
    out.extend_from_slice(&(run.offsets.len() as u32).to_le_bytes());
    out.extend_from_slice(&run.first.to_le_bytes());
    out.extend_from_slice(&run.body_bytes.to_le_bytes());
    out.extend_from_slice(&place.to_le_bytes());
}

fn put_entry_of_two(out: &mut Vec<u8>, (queue, run): (QueueId, &Run), place: u32) {
    out.extend_from_slice(&queue.to_bytes());
    out.extend_from_slice(&[0; 3]);
    out.extend_from_slice(&run.first.to_le_bytes());
    out.extend_from_slice(&(run.offsets.len() as u32).to_le_bytes());
    out.extend_from_slice(&place.to_le_bytes());
    out.extend_from_slice(&run.body_bytes.to_le_bytes());
    out.extend_from_slice(&run.first_ms.to_le_bytes()[..6]);
    out.extend_from_slice(&run.last_ms.to_le_bytes()[..6]);
}

fn put_deadline(out: &mut Vec<u8>, deadline: &Deadline) {
    let due_bit = if deadline.kind == DeadlineKind::Due { DUE_BIT } else { 0 };
    out.extend_from_slice(&(deadline.at_ms | due_bit).to_le_bytes()[..6]);
    out.extend_from_slice(&deadline.queue.to_bytes());
    out.extend_from_slice(&deadline.sequence.0.to_le_bytes()[..7]);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use proptest::prelude::*;

    use super::*;
    use crate::deadlines::Times;
    use crate::record::Target;

    const SEGMENT: u64 = 77;

    #[derive(Clone, Debug)]
    struct One {
        queue: u64,
        skipped: u64,
        body_bytes: u64,
        stored_at_ms: u64,
        deadline: Option<(u64, bool)>,
    }

    fn messages() -> impl Strategy<Value = Vec<One>> {
        let skipped = prop_oneof![4 => Just(0), 1 => 1..9_u64];
        let deadline = prop::option::of((0..1_u64 << 40, any::<bool>()));
        let queue = prop_oneof![1..5_u64, (1 << 32) + 1..(1_u64 << 32) + 3, Just(QueueId::MAX.0)];
        let one = (queue, skipped, 0..999_u64, 0..1_u64 << 40, deadline);
        let one = one.prop_map(|(queue, skipped, body_bytes, stored_at_ms, deadline)| One {
            queue,
            skipped,
            body_bytes,
            stored_at_ms,
            deadline,
        });
        prop::collection::vec(one, 0..60)
    }

    /// In format 1 a queue has 32 bits.
    fn index_of(messages: &[One], format: Format) -> MemoryIndex {
        let mut index = MemoryIndex::default();
        for (offset, one) in (64..).zip(messages) {
            let queue = QueueId(if format == Format::One { one.queue & 0xffff_ffff } else { one.queue });
            let next = index.next_of(queue).max(1) + one.skipped;
            let target = Target { queue, sequence: Sequence(next) };
            let (due_at_ms, expires_at_ms) = match one.deadline {
                Some((at_ms, true)) => (Some(at_ms), None),
                Some((at_ms, false)) => (None, Some(at_ms)),
                None => (None, None),
            };
            index.push(target, offset, (one.body_bytes, one.stored_at_ms));
            index.push_deadlines(target, Times { due_at_ms, expires_at_ms });
        }
        index
    }

    fn formats() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::One), Just(Format::Two)]
    }

    /// Reads everything that a layout names.
    fn read_all(bytes: &[u8]) -> Result<(), Unread> {
        let layout = Layout::read(bytes, SEGMENT)?;
        assert!(layout.entries_end() <= bytes.len() && layout.deadlines().end <= bytes.len());
        (0..layout.entry_count().min(1000)).for_each(|index| assert!(layout.entry(bytes, index).is_some()));
        assert!(layout.offsets(0, usize::MAX).end <= bytes.len() && layout.offsets(usize::MAX, 9).end <= bytes.len());
        let _ = layout.has_whole_entries(bytes) && layout.has_whole_offsets(bytes) && layout.has_whole_deadlines(bytes);
        assert!(layout.deadlines_from(bytes, 0).count() <= bytes.len());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn an_index_is_read_back(messages in messages(), format in formats()) {
            let index = index_of(&messages, format);
            let bytes = encode(format, SEGMENT, &index);

            let layout = Layout::read(&bytes, SEGMENT).unwrap();

            prop_assert!(layout.has_whole_entries(&bytes) && layout.has_whole_offsets(&bytes));
            let runs = index.sorted_runs();
            prop_assert_eq!(layout.entry_count(), runs.len());
            for (at, (queue, run)) in runs.into_iter().enumerate() {
                let entry = layout.entry(&bytes, at).unwrap();
                let stored_ms = (format == Format::Two).then_some((run.first_ms, run.last_ms));
                prop_assert_eq!((entry.queue, entry.first.0, entry.count as usize), (queue, run.first, run.offsets.len()));
                prop_assert_eq!((entry.body_bytes, entry.stored_ms), (run.body_bytes, stored_ms));
                let offsets = &bytes[layout.offsets(entry.place as usize, entry.count as usize)];
                prop_assert_eq!(offsets.chunks_exact(4).map(le_u32).collect::<Vec<_>>(), &run.offsets[..]);
            }
            let deadlines = if format == Format::Two { index.sorted_deadlines() } else { Vec::new() };
            prop_assert!(layout.has_whole_deadlines(&bytes));
            prop_assert_eq!(layout.earliest_ms(), deadlines.first().map(|deadline| deadline.at_ms));
            prop_assert_eq!(layout.deadlines_from(&bytes, 0).collect::<Vec<_>>(), deadlines);
        }

        #[test]
        fn any_bytes_are_refused_or_read_within_the_file(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400), format in 0..4_u8, sections in 0..4_u8,
        ) {
            if bytes.len() > FIXED_BYTES + 3 * SECTION_BYTES {
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&[format, 0, 0, 0]);
                bytes[12..16].copy_from_slice(&(64 + 24 * u32::from(sections)).to_le_bytes());
                bytes[16..24].copy_from_slice(&SEGMENT.to_le_bytes());
                seal(&mut bytes);
            }
            let _ = read_all(&bytes);
        }

        #[test]
        fn a_changed_header_is_refused_or_names_places_within_the_file(
            messages in messages(), at in 8..112_usize, change in 1..=u8::MAX, format in formats(), is_sealed: bool,
        ) {
            let mut bytes = encode(format, SEGMENT, &index_of(&messages, format));
            let end = if format == Format::One { FIXED_BYTES } else { header_bytes(&bytes) };
            let at = at.min(end - 1);
            bytes[at] ^= change;
            if is_sealed {
                seal(&mut bytes);
            }

            let read = read_all(&bytes);

            prop_assert!(is_sealed || read.is_err());
        }

        #[test]
        fn a_change_behind_the_header_is_noticed(
            messages in messages(), at in any::<prop::sample::Index>(), bit in 0..8_u32, format in formats(),
        ) {
            let mut bytes = encode(format, SEGMENT, &index_of(&messages, format));
            let layout = Layout::read(&bytes, SEGMENT).unwrap();
            let begin = if format == Format::One { FIXED_BYTES } else { header_bytes(&bytes) };
            prop_assume!(begin < bytes.len());
            let at = begin + at.index(bytes.len() - begin);
            bytes[at] ^= 1 << bit;

            let is_whole =
                layout.has_whole_entries(&bytes) && layout.has_whole_offsets(&bytes) && layout.has_whole_deadlines(&bytes);
            prop_assert!(!is_whole);
        }
    }

    #[test]
    fn an_index_of_another_segment_or_a_newer_version_is_refused() {
        let deadline = Some((9, true));
        let one = One { queue: 1, skipped: 0, body_bytes: 5, stored_at_ms: 3, deadline };
        let bytes = encode(Format::Two, SEGMENT, &index_of(&[one], Format::Two));
        assert_eq!(bytes.len(), 64 + 2 * 24 + 44 + 4 + 18);
        let changed = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            seal(&mut bytes);
            Layout::read(&bytes, SEGMENT).unwrap_err()
        };

        assert_eq!(Layout::read(&bytes, SEGMENT + 1), Err(Unread::Corrupt));
        assert_eq!(changed(8, 3), Unread::NewerFormat(3));
        assert_eq!(changed(64 + 24, 3), Unread::NewerSection);
        assert_eq!(changed(64 + 24, 1), Unread::Corrupt, "a second section of offsets");
        assert_eq!(changed(64 + 24 + 16, 17), Unread::Corrupt, "a part of a deadline");
        assert_eq!(changed(64 + 24 + 8, 1), Unread::Corrupt, "a section elsewhere");
    }
}
