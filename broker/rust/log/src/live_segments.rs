//! The segments that a checkpoint depends on, as it lists them, and the report of a start when one of them is gone, or
//! not named by the manifest.
//!
//! Invariants: a segment that was removed because it had no live message is never reported, and a rewritten one is
//! never removed as a leftover while messages are missing that it may hold. A list that does not match some segment may
//! be older than its removal, so it only leads to a comparison: live messages in the state that no segment holds are
//! reported. That reads every directory, so other starts skip it.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange};
use rustc_hash::FxHashMap;

use crate::corruption::Quarantined;
use crate::error::{Corruption, LogError, Missing};
use crate::fold::FoldState;
use crate::header::{HeaderFound, read_header};
use crate::manifest::Manifest;
use crate::names::number_of;
use crate::record::{Position, le_u32, le_u64};
use crate::recovery::Sealed;
use crate::segment::{Segment, rewritten_path, segment_path};

/// Size of one segment's entry in a checkpoint.
const ENTRY_BYTES: usize = 20;

/// A sealed segment with live messages when a checkpoint was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveSegment {
    pub(crate) number: u64,
    /// 0 for one that was not rewritten.
    pub(crate) edition: u32,
    pub(crate) first: Position,
}

impl LiveSegment {
    pub(crate) fn of(segment: &Segment) -> LiveSegment {
        let edition = if segment.is_rewritten() { segment.edition() } else { 0 };
        LiveSegment { number: segment.number(), edition, first: segment.first() }
    }

    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        match self.edition {
            0 => segment_path(directory, self.number),
            edition => rewritten_path(directory, self.number, edition),
        }
    }

    /// Whether another segment replaces this rewritten one: one that the manifest names, or the first of its sources,
    /// which are removed after the manifest names it and in their order.
    pub(crate) fn is_replaced(&self, directory: &Path, manifest: &Manifest) -> Result<bool, LogError> {
        if !self.path(directory).exists() || manifest.replacement(directory, self.first).is_some() {
            return Ok(true);
        }
        let source = header_at(&segment_path(directory, self.number))?;
        Ok(matches!(source, Some(HeaderFound::Segment(header, _)) if header.first == self.first))
    }
}

/// The value of the mark that lists them in the checkpoint at a position.
pub(crate) fn encode(position: Position, live: &[LiveSegment]) -> Vec<u8> {
    let mut value = position.0.to_le_bytes().to_vec();
    for one in live {
        value.extend_from_slice(&one.number.to_le_bytes());
        value.extend_from_slice(&one.edition.to_le_bytes());
        value.extend_from_slice(&one.first.0.to_le_bytes());
    }
    value
}

/// The segments in such a value. An earlier version passes it on from checkpoint to checkpoint, so one of another
/// position is ignored.
pub(crate) fn decode(position: Position, value: &[u8]) -> Vec<LiveSegment> {
    let Some((at, entries)) = value.split_first_chunk::<8>() else { return Vec::new() };
    if le_u64(at) != position.0 {
        return Vec::new();
    }
    let field = |entry: &[u8], from: usize| le_u64(entry.get(from..).unwrap_or_default());
    let entry = |entry: &[u8]| LiveSegment {
        number: field(entry, 0),
        edition: le_u32(entry.get(8..).unwrap_or_default()),
        first: Position(field(entry, 12)),
    };
    entries.chunks_exact(ENTRY_BYTES).map(entry).collect()
}

/// The existing rewritten segments that the manifest does not name.
pub(crate) fn unnamed_segments(
    directory: &Path,
    rewritten: &[(u64, u32)],
    manifest: &Manifest,
    live: &[LiveSegment],
) -> Result<Vec<LiveSegment>, LogError> {
    let names: BTreeSet<(u64, u32)> =
        rewritten.iter().copied().filter(|&(number, edition)| !manifest.names(number, edition)).collect();
    let mut found = Vec::with_capacity(names.len());
    for (number, edition) in names {
        let mut one = LiveSegment { number, edition, first: Position(0) };
        let listed = live.iter().find(|listed| (listed.number, listed.edition) == (number, edition));
        one.first = match (listed, header_at(&one.path(directory))?) {
            (Some(listed), _) => listed.first,
            (None, Some(HeaderFound::Segment(header, _) | HeaderFound::Copy(header, ..))) => header.first,
            (None, _) => one.first,
        };
        found.push(one);
    }
    Ok(found)
}

/// The header of a file that may not exist.
fn header_at(path: &Path) -> Result<Option<HeaderFound>, LogError> {
    match read_header(path) {
        Err(LogError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The listed segments that no start found, and the unnamed ones while messages are missing; and the report of each. A
/// file in `known` was reported already; it is still missing, so that the next checkpoint lists it.
pub(crate) fn find_gone(
    directory: &Path,
    live: &[LiveSegment],
    unnamed: &[LiveSegment],
    sealed: &[Sealed],
    state: &FoldState,
    known: &[Quarantined],
) -> Result<Vec<(LiveSegment, Option<Quarantined>)>, LogError> {
    let is_known = |one: &LiveSegment| known.iter().any(|found| number_of(&found.file) == Some(one.number));
    // A rewritten one has the number of the first segment that it replaces.
    let is_unnamed = |one: &LiveSegment| unnamed.iter().any(|unnamed| unnamed.number == one.number);
    let is_gone = |one: &&LiveSegment| !is_there(sealed, one.first) && !is_unnamed(one);
    let mut gone: Vec<&LiveSegment> = live.iter().filter(is_gone).chain(unnamed).collect();
    gone.sort_unstable_by_key(|one| (one.number, one.edition));
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let missing = missing(sealed, state)?;
    let messages = missing.iter().map(|(_, count)| count).sum();
    if messages == 0 {
        return Ok(Vec::new());
    }
    let files = gone.iter().filter(|one| !is_known(one)).count();
    let mut untold = messages;
    let report = |one: &LiveSegment| {
        if is_known(one) {
            return (*one, None);
        }
        let path = one.path(directory);
        let missing_here = Missing { messages: std::mem::take(&mut untold), files };
        let why = if path.exists() { Corruption::Unnamed(missing_here) } else { Corruption::Gone(missing_here) };
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut found = Quarantined { file, at: 0, why, queues: Vec::new() };
        missing.iter().for_each(|&(queue, _)| found.concern(queue));
        (*one, Some(found))
    };
    Ok(gone.into_iter().map(report).collect())
}

/// Whether a segment begins at a position, or was rewritten to replace it. The end of another one proves nothing: it
/// extends to the next.
fn is_there(sealed: &[Sealed], first: Position) -> bool {
    let after = sealed.partition_point(|sealed| sealed.segment.first() <= first);
    let before = after.checked_sub(1).and_then(|at| sealed.get(at));
    before
        .is_some_and(|before| before.segment.first() == first || (before.segment.is_rewritten() && first < before.end))
}

/// How many live messages no segment holds, by queue.
fn missing(sealed: &[Sealed], state: &FoldState) -> Result<Vec<(QueueId, u64)>, LogError> {
    let mut stored: FxHashMap<QueueId, AckSet> = FxHashMap::default();
    for one in sealed {
        let read = one.lookup.any_run(|queue, first, count| {
            let last = Sequence(first.0.saturating_add(count.max(1) - 1));
            if let Some(run) = SequenceRange::new(first, last) {
                stored.entry(queue).or_insert_with(|| AckSet::starting_at(Sequence::FIRST)).insert(run);
            }
            false
        });
        match read {
            // A file is gone: better to report too many missing messages than to stop the start.
            Ok(_) | Err(LogError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let nothing = AckSet::starting_at(Sequence::FIRST);
    let count = |(&queue, folded): (&QueueId, &crate::fold::FoldedQueue)| {
        let stored = stored.get(&queue).unwrap_or(&nothing);
        let live = state.live_runs(queue, Sequence::FIRST, folded.next.0.saturating_sub(1));
        (queue, live.map(|run| count_missing(stored, run)).sum::<u64>())
    };
    let mut missing: Vec<_> = state.queues.iter().map(count).filter(|&(_, count)| count > 0).collect();
    missing.sort_unstable_by_key(|&(queue, _)| queue);
    Ok(missing)
}

/// How many sequences of a range are not stored.
fn count_missing(stored: &AckSet, range: SequenceRange) -> u64 {
    let (mut count, end) = (0, range.last.next());
    let mut from = stored.next_unsettled(range.first);
    while from < end {
        let to = stored.next_settled(from).unwrap_or(end).min(end);
        count += to.0 - from.0;
        from = stored.next_unsettled(to);
    }
    count
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_of_another_checkpoint_counts_for_nothing() {
        let live = [
            LiveSegment { number: 3, edition: 0, first: Position(70) },
            LiveSegment { number: 4, edition: 7, first: Position(1 << 40) },
        ];
        let value = encode(Position(9), &live);

        assert_eq!(decode(Position(9), &value), live);
        assert_eq!(decode(Position(10), &value), []);
        assert_eq!(decode(Position(9), &[]), []);
    }

    #[test]
    fn numbers_that_are_not_stored_are_counted() {
        let range = |first, last| SequenceRange::new(Sequence(first), Sequence(last)).unwrap();
        let mut stored = AckSet::starting_at(Sequence::FIRST);
        stored.insert(range(3, 5));
        stored.insert(range(8, 8));

        let counted = [(1, 2), (3, 5), (4, 9), (8, 8), (6, 20)].map(|(a, b)| count_missing(&stored, range(a, b)));

        assert_eq!(counted, [2, 0, 3, 0, 14]);
    }
}
