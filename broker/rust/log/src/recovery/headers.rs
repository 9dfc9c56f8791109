//! The segment files that a start finds: by their headers they count, are replaced by others, or can only be kept.
//!
//! Invariants: nothing is removed before it is certain that the log can be read, and then only files that others
//! replace, that were dead when the checkpoint was made, or that were never written.

use std::path::{Path, PathBuf};

use super::Reader;
use crate::contents::Contents;
use crate::corruption::Quarantined;
use crate::epochs::count_of;
use crate::error::{Corruption, LogError};
use crate::header::{HeaderFound, Instead, read_header};
use crate::live_segments::{LiveSegment, unnamed_segments};
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::Position;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, directory_path, rewritten_path, segment_path};

/// A segment file with a whole header, and where the next one begins.
pub(super) struct Found {
    pub(super) segment: Segment,
    pub(super) header: SegmentHeader,
    pub(super) limit: Option<Position>,
}

/// The segment files by their role.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) plain: Vec<u64>,
    /// Replaced by others.
    pub(super) replaced: Vec<PathBuf>,
    /// Rewritten ones that the manifest does not name and no other replaces: either never published, or the only copy
    /// of messages under an older manifest. Missing messages distinguish the two.
    pub(super) unnamed: Vec<LiveSegment>,
}

/// The number of a segment file without a header, and whether it has zeros in its place.
pub(super) type Headless = (u64, bool);

/// Without a checkpoint all records are needed. Only a checkpoint allows segments to be removed or rewritten. Where none of a
/// log was synced, a power failure may have taken the names of its first segments and left those of later ones.
pub(super) fn refuse_without_checkpoint(
    directory: &Path,
    names: &Names,
    headers: &[Found],
    headless: &[Headless],
    is_unsynced: bool,
) -> Result<(), LogError> {
    let rewritten = names.rewritten.iter().map(|&(number, edition)| rewritten_path(directory, number, edition));
    let rewritten = rewritten.into_iter().find(|path| path.exists());
    let begins_later = |first: &&Found| {
        // The header of the log's first segment may be the unreadable one; a checkpoint file proves that a checkpoint
        // was made.
        let is_first = headless.iter().all(|&(number, _)| number > first.segment.number());
        first.segment.first() > Position(0) && ((is_first && !is_unsynced) || !names.checkpoints.is_empty())
    };
    let later = headers.first().filter(begins_later).map(|first| first.segment.path().to_owned());
    let refused = later.or(rewritten);
    refused.map_or(Ok(()), |path| Err(LogError::corrupt(&path, 0, Corruption::NoCheckpoint)))
}

/// Whether a copy of a header may come after those segments. Where a power failure lost a header, the reserved space
/// after it may hold the copy that an earlier segment had there, but not one written since the segment before was
/// begun. Two starts of which the first wrote no record make segments of the same epoch and position.
fn follows(header: &SegmentHeader, before: &[SegmentHeader]) -> bool {
    let place = |header: &SegmentHeader| (count_of(header.epoch), header.first);
    let is_new = before.iter().all(|before| before.segment_id != header.segment_id);
    is_new && before.last().is_none_or(|before| place(header) >= place(before))
}

impl Reader<'_> {
    /// The segments with a header, and those without one.
    pub(super) fn headers(
        &mut self,
        numbers: &[u64],
        log_id: &mut Option<[u8; 16]>,
    ) -> Result<(Vec<Found>, Vec<Headless>), LogError> {
        let (mut found, mut before) = (Vec::<Found>::new(), Vec::new());
        let mut unreadable = Vec::new();
        for &number in numbers {
            let path = segment_path(self.directory, number);
            let (header, bytes) = match read_header(&path)? {
                HeaderFound::Segment(header, bytes) => (header, bytes),
                HeaderFound::Copy(header, bytes, instead)
                    if follows(&header, &before)
                        && self.counts(number, &header, instead, *log_id)
                        && !self.is_left_over(&header, instead, found.last())? =>
                {
                    // Unsynced segments may lack their first sector after a power failure.
                    if self.keeps_order || instead == Instead::Other || header.first < self.synced {
                        self.quarantine_header(&path);
                    }
                    (header, bytes)
                }
                HeaderFound::Zeros | HeaderFound::Copy(_, _, Instead::Zeros) => {
                    unreadable.push((number, true));
                    continue;
                }
                HeaderFound::Unreadable(_) | HeaderFound::Copy(..) => {
                    unreadable.push((number, false));
                    continue;
                }
            };
            if log_id.is_some_and(|expected| expected != header.log_id) {
                return Err(LogError::corrupt(&path, 16, Corruption::OtherLog));
            }
            header.check_shard(self.shard, &path)?;
            *log_id = Some(header.log_id);
            self.format = self.format.max(header.format);
            let segment = Segment::new(self.directory, number, &header, bytes);
            segment.mark_recovered();
            found.push(Found { segment, header, limit: None });
            before.push(header);
        }
        let mut limit = None;
        for later in found.iter_mut().rev() {
            later.limit = limit;
            limit = Some(limit.map_or(later.segment.first(), |limit| later.segment.first().min(limit)));
        }
        Ok((found, unreadable))
    }

    /// Whether the copy replaces a header that cannot be read.
    fn counts(&self, number: u64, header: &SegmentHeader, instead: Instead, log_id: Option<[u8; 16]>) -> bool {
        // The end of a message may look like a copy, but for the log's id.
        let is_own = log_id.is_none_or(|id| id == header.log_id);
        // A segment that was dead when the checkpoint was made never had to reach the disk.
        let may_be_dead = instead == Instead::Zeros && !self.keeps_order && header.first < self.floor;
        is_own && (!may_be_dead || self.lived(number))
    }

    /// Whether the copy is that of a segment that was removed, in space that is used again. A replica's log has such ones: a start
    /// begins a segment, and the leader's next record is of an earlier epoch, so that it begins another one there. The segment
    /// before has records where that of the copy begins, so the one of the copy never came after it.
    fn is_left_over(&self, header: &SegmentHeader, instead: Instead, before: Option<&Found>) -> Result<bool, LogError> {
        let Some(before) = before.filter(|_| instead == Instead::Zeros && !self.keeps_order) else { return Ok(false) };
        let from = before.segment.offset_of(header.first.max(before.header.first));
        Ok(self.contents(&before.segment)?.written_above(from) > 0)
    }

    /// Handles a file whose header cannot be known. One that may hold a confirmed record is left unchanged.
    pub(super) fn pass_headless(&mut self, number: u64, is_zeros: bool, found: &[Found]) -> Result<(), LogError> {
        let path = segment_path(self.directory, number);
        let written = Contents::read(self.disk, &path, u64::MAX)?.written_above(SEGMENT_HEADER_BYTES);
        // A header is written before all else, and its sector reaches the disk whole: only a power failure leaves
        // records after zeros, and never after other bytes.
        let was_lost_by_power = is_zeros && !self.keeps_order;
        // Just before the synced position there may be an empty segment that was not synced. One that was not empty
        // leaves a gap.
        let may_be_empty = was_lost_by_power && !directory_path(&path).exists();
        let is_below = |first: Position| first < self.synced || (first == self.synced && !may_be_empty);
        let is_below_synced = |later: &Found| later.segment.number() > number && is_below(later.segment.first());
        let is_dead = is_zeros && self.was_dead(number, found);
        let is_owed = !is_dead && found.iter().any(is_below_synced);
        if is_owed || (written > 0 && !was_lost_by_power) {
            self.quarantine_header(&path);
            self.has_headless = true;
            // Without a segment after it, its number of records is unknown, and so are their sequences.
            self.has_lost |= !found.iter().any(|later| later.segment.number() > number);
            return Ok(());
        }
        if is_dead || written == 0 {
            return self.unlink(number);
        }
        self.recovery.torn_bytes += written;
        self.set_aside(number)
    }

    pub(super) fn quarantine_header(&mut self, path: &Path) {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.quarantined.push(Quarantined { file, at: 0, why: Corruption::SegmentHeader, queues: Vec::new() });
    }

    /// Whether a segment without a header was dead when the checkpoint was made, so that it never had to reach the
    /// disk.
    fn was_dead(&self, number: u64, found: &[Found]) -> bool {
        let next = found.iter().find(|later| later.segment.number() > number);
        next.is_some_and(|next| next.segment.first() <= self.floor) && !self.lived(number)
    }

    /// Whether a segment that the checkpoint covers was live then: it is listed, unless an earlier version made the
    /// checkpoint, and it has a directory, unless that is gone.
    fn lived(&self, number: u64) -> bool {
        let is_listed = self.live.iter().any(|one| (one.number, one.edition) == (number, 0));
        is_listed || directory_path(&segment_path(self.directory, number)).exists()
    }

    /// Separates the segments that count from the replaced ones. Nothing is removed before it is certain that the log
    /// can be read.
    pub(super) fn sort(&self, names: &Names, manifest: &Manifest) -> Result<Sorted, LogError> {
        let mut sorted = Sorted::default();
        for one in unnamed_segments(self.directory, &names.rewritten, manifest, self.live)? {
            if one.is_replaced(self.directory, manifest)? {
                sorted.replaced.push(one.path(self.directory));
            } else {
                sorted.unnamed.push(one);
            }
        }
        let mut before = Vec::new();
        for &number in &names.segments {
            let path = segment_path(self.directory, number);
            let header = match manifest.entries.is_empty() {
                true => None,
                false => match read_header(&path)? {
                    HeaderFound::Segment(header, _) => Some(header),
                    HeaderFound::Copy(header, ..) => Some(header).filter(|header| follows(header, &before)),
                    HeaderFound::Zeros | HeaderFound::Unreadable(_) => None,
                },
            };
            before.extend(header);
            if header.is_some_and(|header| manifest.replacement(self.directory, header.first).is_some()) {
                sorted.replaced.push(path);
            } else {
                sorted.plain.push(number);
            }
        }
        Ok(sorted)
    }

    pub(super) fn remove_all(&self, replaced: Vec<PathBuf>) -> Result<(), LogError> {
        if !replaced.is_empty() {
            // A killed process may have renamed the manifest without syncing its name: a power failure must not restore
            // the older one, which names files that are removed now.
            self.sync_directory()?;
        }
        replaced.into_iter().try_for_each(|path| self.unlink_with_directory(path))
    }
}
