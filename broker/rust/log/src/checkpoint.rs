//! Checkpoints: the fold's state as a file, so that a start reads only later records. See `docs/format.md`,
//! "Checkpoints".
//!
//! Invariants: a checkpoint gets its name only when it and everything it depends on are on the disk, the newest two are
//! kept, and one whose checksum does not match is skipped for the one before. The bytes of the formats are known to the
//! modules `one` and `two`.

mod fields;
mod one;
mod two;
mod windows;

use std::io;
use std::path::{Path, PathBuf};

use penstock_queue::Sequence;

use self::fields::{Fields, put_u32, put_u64};
use self::two::Unread;
use crate::backup::Holds;
use crate::directory::write_whole;
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::format::Format;
use crate::header::is_bad_sector;
use crate::live_segments::LiveSegment;
use crate::record::{Position, le_u32};

const MAGIC: &[u8; 8] = b"PNSTKCKP";
const HEADER_BYTES: usize = 72;
const KEPT: usize = 2;

/// The name of the checkpoint with that number.
pub(crate) fn checkpoint_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("checkpoint.{number:010}"))
}

/// The checkpoints that are kept, oldest first: (number, position).
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    kept: Vec<(u64, Position)>,
    /// The segments that the loaded one depends on.
    pub(crate) live: Vec<LiveSegment>,
    /// Size of the newest one.
    pub(crate) newest_bytes: u64,
}

impl Checkpoints {
    /// Reads the directory's checkpoints by their numbers in ascending order; returns the newest whole one.
    pub(crate) fn load(
        directory: &Path,
        numbers: &[u64],
        log_id: &mut Option<[u8; 16]>,
    ) -> Result<(Checkpoints, FoldState), LogError> {
        let mut found = Checkpoints::default();
        let mut newest = FoldState::default();
        for &number in numbers {
            let path = checkpoint_path(directory, number);
            let bytes = match std::fs::read(&path) {
                Err(error) if is_bad_sector(&error) => continue,
                read => read.map_err(|error| LogError::io("read", &path, error))?,
            };
            match decode(&bytes, &path) {
                Ok((id, state, live)) => {
                    if log_id.is_some_and(|expected| expected != id) {
                        return Err(LogError::corrupt(&path, 0, Corruption::OtherLog));
                    }
                    *log_id = Some(id);
                    found.kept.push((number, state.position));
                    (newest, found.live) = (state, live);
                    found.newest_bytes = bytes.len() as u64;
                }
                Err(LogError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((found, newest))
    }

    /// The position below which no start will ever read again: that of the older of the two kept.
    pub(crate) fn floor(&self) -> Position {
        if self.kept.len() < KEPT {
            Position(0)
        } else {
            self.kept.first().map_or(Position(0), |&(_, position)| position)
        }
    }

    /// Position of the newest one.
    pub(crate) fn newest(&self) -> Position {
        self.kept.last().map_or(Position(0), |&(_, position)| position)
    }

    /// The number of the newest one.
    pub(crate) fn newest_number(&self) -> Option<u64> {
        self.kept.last().map(|&(number, _)| number)
    }

    /// Writes the state as the newest checkpoint; returns its size. Everything it depends on is on the disk already,
    /// and `live` lists the segments among it.
    pub(crate) fn save(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        (log_id, format): (&[u8; 16], Format),
        state: &FoldState,
        live: &[LiveSegment],
    ) -> Result<u64, LogError> {
        let number = self.kept.last().map_or(1, |&(number, _)| number + 1);
        let path = checkpoint_path(directory, number);
        let temporary = path.with_file_name(format!("checkpoint.{number:010}.tmp"));
        let bytes = encode((log_id, format), state, live);
        write_whole(disk, &temporary, &bytes)?;
        disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))?;
        disk.sync_directory(directory).map_err(|error| LogError::io("sync", directory, error))?;
        self.kept.push((number, state.position));
        Ok(bytes.len() as u64)
    }

    /// Removes all but the newest two. A running copy keeps those that it needs until it is done.
    pub(crate) fn trim(&mut self, disk: &dyn Disk, directory: &Path, holds: &Holds) -> Result<(), LogError> {
        while self.kept.len() > KEPT {
            let (oldest, _) = self.kept.remove(0);
            holds.remove(disk, &checkpoint_path(directory, oldest), false)?;
        }
        Ok(())
    }
}

pub(crate) fn unlink_if_there(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    match disk.unlink(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", path, error)),
        _ => Ok(()),
    }
}

pub(crate) fn encode((log_id, format): (&[u8; 16], Format), state: &FoldState, live: &[LiveSegment]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + state.queues.len() * 48 + 64);
    out.extend_from_slice(MAGIC);
    put_u32(&mut out, format.number());
    put_u32(&mut out, HEADER_BYTES as u32);
    out.extend_from_slice(log_id);
    put_u64(&mut out, state.position.0);
    put_u64(&mut out, state.epoch);
    put_u64(&mut out, state.first_sequence.0);
    match format {
        Format::One => one::put(&mut out, state, live),
        Format::Two => two::put(&mut out, state, live),
    }
    let crc = crc32c::crc32c(&out);
    put_u32(&mut out, crc);
    out
}

/// Content of a checkpoint: the log's id, the state, and the segments that it depends on.
type Content = ([u8; 16], FoldState, Vec<LiveSegment>);

/// The log's id and the state in one file.
pub(crate) fn read(path: &Path) -> Result<([u8; 16], FoldState), LogError> {
    let bytes = std::fs::read(path).map_err(|error| LogError::io("read", path, error))?;
    decode(&bytes, path).map(|(log_id, state, _)| (log_id, state))
}

/// Decodes a whole file.
pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Content, LogError> {
    let corrupt = || LogError::corrupt(path, 0, Corruption::Checkpoint);
    let (content, crc) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
    if !content.starts_with(MAGIC) || le_u32(crc) != crc32c::crc32c(content) {
        return Err(corrupt());
    }
    let found = content.get(8..12).map_or(0, le_u32);
    let supported = Format::NEWEST.number();
    let format =
        Format::of_number(found).ok_or_else(|| LogError::NewerFormat { path: path.to_owned(), found, supported })?;
    let mut fields = Fields(content.get(16..).unwrap_or_default());
    let (log_id, mut state) = begin(&mut fields).ok_or_else(corrupt)?;
    let live = match format {
        Format::One => one::read(&mut fields, &mut state).ok_or_else(corrupt)?,
        Format::Two => two::read(&mut fields, &mut state).map_err(|unread| match unread {
            Unread::Corrupt => corrupt(),
            Unread::Newer => LogError::newer_section(path),
        })?,
    };
    if fields.0.is_empty() { Ok((log_id, state, live)) } else { Err(corrupt()) }
}

/// The fields that both formats begin with.
fn begin(fields: &mut Fields<'_>) -> Option<([u8; 16], FoldState)> {
    let mut log_id = [0; 16];
    log_id.copy_from_slice(fields.take(16)?);
    let mut state = FoldState { position: Position(fields.u64()?), epoch: fields.u64()?, ..FoldState::default() };
    state.first_sequence = Sequence(fields.u64()?);
    Some((log_id, state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use penstock_queue::{QueueId, SequenceRange};
    use std::collections::HashMap;

    use penstock_queue::Window;
    use proptest::prelude::*;

    use super::*;
    use crate::batches::{ProducerBatches, sequence_in};
    use crate::disk::RealDisk;
    use crate::encode::{Payload, Stamp, encode_mark, encode_message};
    use crate::epochs::Epochs;
    use crate::fold::FoldedQueue;
    use crate::format::Coding;
    use crate::marks::{LIVE_SEGMENTS, SKIPPED, owner_of_producer};
    use crate::record::{EpochView, MarkView, Producer, Record, Target, decode_record};

    const LOG_ID: [u8; 16] = [3; 16];

    fn formats() -> impl Strategy<Value = Format> {
        prop_oneof![Just(Format::One), Just(Format::Two)]
    }

    fn queues() -> impl Strategy<Value = FoldedQueue> {
        let ranges = prop::collection::vec((1..1000_u64, 0..50_u64), 0..10);
        let deliveries = prop::collection::btree_map(any::<u64>().prop_map(Sequence), any::<u32>(), 0..5);
        let skipped = prop_oneof![Just(0), 0..1_u64 << 56];
        (1..500_u64, ranges, deliveries, any::<[u64; 2]>(), skipped).prop_map(
            |(below, ranges, delivery_counts, [count, bytes], skipped)| {
                let mut queue = FoldedQueue::starting_at(Sequence(below));
                for (first, more) in ranges {
                    queue.settled.insert(SequenceRange::new(Sequence(first), Sequence(first + more)).unwrap());
                }
                queue.next = Sequence(5000);
                FoldedQueue { count, bytes, delivery_counts, skipped, ..queue }
            },
        )
    }

    /// A raise, or a message of a queue so far from its next sequence: records before it are missing, or a raise skipped it.
    fn step() -> impl Strategy<Value = Option<(QueueId, i64)>> {
        let raise = 1_i64 << 32;
        let jump = prop_oneof![5 => Just(0), 1 => 0..5_i64, 1 => raise..raise + 5, 1 => -raise..-raise + 5];
        prop_oneof![1 => Just(None), 4 => ((1..4_u64).prop_map(QueueId), jump).prop_map(Some)]
    }

    /// Numbers of queues, in format 2 of all sizes.
    fn ids(format: Format) -> impl Strategy<Value = QueueId> {
        let max = if format == Format::One { u64::from(u32::MAX) } else { QueueId::MAX.0 };
        prop_oneof![0..9_u64, 0..=max].prop_map(QueueId)
    }

    fn states(format: Format) -> impl Strategy<Value = FoldState> {
        let queues = prop::collection::hash_map(ids(format), queues(), 0..6);
        let sources_max = if format == Format::One { 0 } else { 4 };
        let sources = prop::collection::hash_map(ids(format), self::queues(), 0..=sources_max);
        let bytes = || prop::collection::vec(any::<u8>(), 0..9);
        let value = prop::collection::vec(any::<u8>(), 1..9);
        let owner = bytes().prop_filter("no mark has this owner", |owner| {
            owner != LIVE_SEGMENTS && owner != SKIPPED && !matches!(owner.first(), Some(&(b'c' | b'w' | b'e')))
        });
        let marks = prop::collection::btree_map((owner, bytes()), value, 0..4);
        let producers = prop::collection::hash_map(any::<u64>(), any::<u64>(), 0..4);
        let rows = prop::collection::vec((0..200_u32, 1..5_u32, 1..=u32::MAX), 0..300);
        (queues, marks, producers, rows, any::<[u64; 3]>(), (ids(format), sources), windows(format)).prop_map(
            |(queues, marks, producers, rows, [position, epoch, first], (highest, sources), windows)| FoldState {
                epochs: Epochs::default(),
                batches: batches_of(producers.keys().copied(), &rows),
                position: Position(position),
                epoch,
                queues: queues.into_iter().collect(),
                highest_queue_id: highest,
                sources: sources.into_iter().map(|(id, queue)| (id, queue.settled)).collect(),
                first_sequence: Sequence(first),
                marks,
                producers: producers.into_iter().collect(),
                windows: windows.into_iter().collect(),
            },
        )
    }

    fn windows(format: Format) -> impl Strategy<Value = HashMap<Vec<u8>, Window>> {
        let windows_max = if format == Format::One { 0 } else { 3 };
        let window = prop::collection::vec((any::<[u8; 16]>(), 0..1_u64 << 48), 0..20).prop_map(|seen| {
            let mut window = Window::default();
            seen.into_iter().for_each(|(id, expires_at_ms)| window.insert(id, expires_at_ms, 15));
            window
        });
        prop::collection::hash_map(prop::collection::vec(any::<u8>(), 1..9), window, 0..=windows_max)
    }

    fn fold_step(state: &mut FoldState, (id, batch, row): (u64, u32, u32), is_removal: bool) {
        let mut record = Vec::new();
        let stamp = Stamp { position: state.position, coding: Coding::of_segment(9), enclosed: 0 };
        if is_removal {
            encode_mark(&mut record, stamp, &MarkView { owner: &owner_of_producer(id), key: b"", value: b"" });
        } else {
            let producer = Producer { id: id.try_into().unwrap(), sequence: sequence_in(batch, row) };
            let payload = Payload::new(b"", b"", b"", b"row").unwrap().with_producer(producer);
            let payload = payload.with_batch_digest((batch * 10 + row).try_into().unwrap());
            let target = Target { queue: QueueId(1), sequence: Sequence(state.position.0 + 1) };
            encode_message(&mut record, stamp, &payload, 1, &[target]);
        }
        let end = Position(state.position.0 + record.len() as u64);
        state.apply(&decode_record(&record, Coding::of_segment(9)).unwrap().record, end);
    }

    fn batches_of(ids: impl Iterator<Item = u64>, rows: &[(u32, u32, u32)]) -> ProducerBatches {
        let mut batches = ProducerBatches::default();
        for id in ids {
            for &(batch, row, digest) in rows {
                batches.stored(id, sequence_in(batch, row), digest.try_into().unwrap());
            }
        }
        batches
    }

    proptest! {
        #[test]
        fn a_state_is_read_back(
            (format, mut state) in formats().prop_flat_map(|format| (Just(format), states(format))),
            numbers in prop::collection::vec(any::<u64>(), 0..4),
            epochs in prop::collection::vec(any::<[u64; 2]>(), 0..4),
        ) {
            if format == Format::Two {
                epochs.into_iter().for_each(|[epoch, first]| state.epochs.begin(epoch, Position(first)));
            }
            if format == Format::Two {
                for queue in state.queues.values_mut() {
                    queue.due_at_ms = queue.delivery_counts.iter().map(|(&at, &count)| (at, u64::from(count))).collect();
                }
            }
            let one = |&number: &u64| LiveSegment { number, edition: 2, first: Position(!number) };
            let live: Vec<_> = numbers.iter().map(one).collect();

            let (log_id, found, listed) = decode(&encode((&LOG_ID, format), &state, &live), Path::new("checkpoint")).unwrap();

            prop_assert_eq!(found, state);
            prop_assert_eq!(listed, live);
            prop_assert_eq!(log_id, LOG_ID);
        }

        /// Batches of producers and their removals, with a checkpoint at every point between.
        #[test]
        fn folding_goes_on_from_a_checkpoint_as_from_the_beginning(
            steps in prop::collection::vec((1..4_u64, 0..200_u32, 1..5_u32, 0..20_u8), 1..300),
            at in any::<prop::sample::Index>(), format in formats(),
        ) {
            let mut whole = FoldState::default();
            let mut resumed = FoldState::default();
            for (place, (id, batch, row, kind)) in steps.iter().enumerate() {
                if place == at.index(steps.len()) {
                    resumed = decode(&encode((&LOG_ID, format), &resumed, &[]), Path::new("checkpoint")).unwrap().1;
                }
                [&mut whole, &mut resumed].into_iter().for_each(|state| fold_step(state, (*id, *batch, *row), *kind == 0));
                prop_assert_eq!(&whole, &resumed);
            }
        }

        #[test]
        fn folding_from_any_checkpoint_counts_the_same(
            steps in prop::collection::vec(step(), 1..40), at in any::<prop::sample::Index>(), format in formats(),
        ) {
            let mut whole = FoldState::default();
            let mut from_checkpoint = FoldState::default();
            let at = at.index(steps.len());
            for (number, step) in steps.into_iter().enumerate() {
                if number == at {
                    let bytes = encode((&LOG_ID, format), &from_checkpoint, &[]);
                    from_checkpoint = decode(&bytes, Path::new("checkpoint")).unwrap().1;
                }
                let target = step.map(|(queue, jump)| {
                    let next = whole.queues.get(&queue).map_or(whole.first_sequence, |queue| queue.next);
                    Target { queue, sequence: Sequence(next.0.saturating_add_signed(jump).max(1)) }
                });
                for state in [&mut whole, &mut from_checkpoint] {
                    match target {
                        Some(target) => state.apply_unreadable(target),
                        None => state.apply(&Record::Epoch(EpochView::of_one(1, true)), Position(0)),
                    }
                }
                prop_assert_eq!(&from_checkpoint, &whole);
            }
        }

        #[test]
        fn any_change_is_noticed(
            (format, state) in formats().prop_flat_map(|format| (Just(format), states(format))),
            at in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let live = LiveSegment { number: 3, edition: 0, first: Position(9) };
            let mut bytes = encode((&LOG_ID, format), &state, &[live]);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;

            prop_assert!(decode(&bytes, Path::new("checkpoint")).is_err());
            prop_assert!(decode(&bytes[..at], Path::new("checkpoint")).is_err());
        }

        #[test]
        fn any_fields_are_refused_or_read_without_a_panic(
            fields in prop::collection::vec(any::<u8>(), 0..300), format in formats(), kind in 0..8_u8, sections in 0..4_u8,
        ) {
            let mut bytes = [MAGIC.as_slice(), &format.number().to_le_bytes(), &72_u32.to_le_bytes(), &fields].concat();
            // In format 2 the sections themselves are reached.
            let length = bytes.len().saturating_sub(HEADER_BYTES + 12) as u64;
            if format == Format::Two && bytes.len() >= HEADER_BYTES + 12 {
                bytes[64..68].copy_from_slice(&[sections, 0, 0, 0]);
                bytes[72..76].copy_from_slice(&[kind, 0, 0, 0]);
                bytes[76..84].copy_from_slice(&length.to_le_bytes());
            }
            let crc = crc32c::crc32c(&bytes);
            put_u32(&mut bytes, crc);

            let _ = decode(&bytes, Path::new("checkpoint"));
        }
    }

    #[test]
    fn the_newest_two_are_kept_and_the_older_one_is_the_floor() {
        let directory = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::default();
        let mut floors = Vec::new();
        for position in [10, 20, 30] {
            let state = FoldState { position: Position(position), ..FoldState::default() };
            checkpoints.save(&RealDisk, directory.path(), (&LOG_ID, Format::Two), &state, &[]).unwrap();
            checkpoints.trim(&RealDisk, directory.path(), &Holds::default()).unwrap();
            floors.push(checkpoints.floor().0);
        }

        assert_eq!(floors, [0, 10, 20]);
        assert_eq!(checkpoints.newest(), Position(30));
        assert!(!checkpoint_path(directory.path(), 1).exists());
        let mut log_id = None;
        let (found, state) = Checkpoints::load(directory.path(), &[2, 3], &mut log_id).unwrap();
        assert_eq!((found.floor(), state.position, log_id), (Position(20), Position(30), Some(LOG_ID)));
    }

    /// A queue of a million messages of which each second one is settled, as acks in any order leave it.
    fn scattered() -> FoldState {
        let mut state = FoldState::default();
        let target = |number| Target { queue: QueueId(1), sequence: Sequence(number) };
        (1..=1_000_000).for_each(|number| state.apply_unreadable(target(number)));
        let queue = state.queues.get_mut(&QueueId(1)).unwrap();
        for number in (2..=1_000_000).step_by(2) {
            queue.settled.insert(SequenceRange::new(Sequence(number), Sequence(number)).unwrap());
        }
        queue.count = 500_000;
        state
    }

    #[test]
    fn half_a_million_scattered_acks_take_less_than_a_megabyte_from_the_fold_to_the_queue() {
        let state = scattered();
        assert!(state.queues[&QueueId(1)].settled.heap_bytes() < 1 << 20);

        let bytes = encode((&LOG_ID, Format::Two), &state, &[]);
        assert!(bytes.len() < 1 << 20, "{} bytes", bytes.len());

        let mut found = decode(&bytes, Path::new("checkpoint")).unwrap().1;
        assert_eq!(found, state);
        let FoldedQueue { next, settled, count, bytes, .. } = found.queues.remove(&QueueId(1)).unwrap();
        let queue = penstock_queue::Queue::recovered(next, settled, count, bytes, std::collections::BTreeMap::new());
        assert_eq!(queue.ready_count(), 500_000);
        assert!(queue.settled().heap_bytes() < 1 << 20, "{} bytes", queue.settled().heap_bytes());
    }

    #[test]
    fn a_settled_block_of_a_newer_version_is_refused_and_is_not_corrupt() {
        let mut state = FoldState::default();
        let mut queue = FoldedQueue::starting_at(Sequence(1));
        queue.next = Sequence(9);
        queue.settled.insert(SequenceRange::new(Sequence(3), Sequence(5)).unwrap());
        state.queues.insert(QueueId(1), queue);
        let mut bytes = encode((&LOG_ID, Format::Two), &state, &[]);
        bytes.truncate(bytes.len() - 4);
        // The header, the head of the section, and the queue up to its block's number.
        let kind_at = 72 + 12 + 8 + 4 + 4 + 32 + 6;
        assert_eq!(bytes[kind_at], 1);
        bytes[kind_at] = 9;
        let crc = crc32c::crc32c(&bytes);
        put_u32(&mut bytes, crc);

        assert!(matches!(decode(&bytes, Path::new("checkpoint")), Err(LogError::Newer { .. })));
    }

    #[test]
    fn a_section_of_a_newer_version_is_refused_and_is_not_corrupt() {
        let mut bytes = encode((&LOG_ID, Format::Two), &FoldState::default(), &[]);
        bytes.truncate(bytes.len() - 4);
        bytes[64] += 1;
        bytes.extend_from_slice(&[99, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        let crc = crc32c::crc32c(&bytes);
        put_u32(&mut bytes, crc);

        assert!(matches!(decode(&bytes, Path::new("checkpoint")), Err(LogError::Newer { .. })));
    }
}
