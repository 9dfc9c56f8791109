//! Missing records between segments or at the log's end: whether they were synced, and which files had them.
//!
//! Invariant: the log goes on above the synced records, so that no position names two records.

use std::sync::Arc;

use super::Reader;
use crate::corruption::Quarantined;
use crate::error::{Corruption, LogError};
use crate::lost_files;
use crate::record::Position;
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, segment_path};

impl Reader<'_> {
    /// The records between the log's end so far and this segment are missing, and none of them was synced.
    pub(super) fn end_before(&mut self, segment: Segment) -> Result<(), LogError> {
        self.ended = true;
        self.recovery.torn_bytes += self.contents(&segment)?.written_above(SEGMENT_HEADER_BYTES);
        self.set_aside(segment.number())
    }

    /// Synced records are missing before a segment. A file with a bad header reports that already.
    pub(super) fn pass_gap(&mut self, segment: &Segment) {
        let before = segment.number();
        let last = self.sealed.last().filter(|last| last.end == self.state.position);
        // Dead segments before it may be gone as well.
        let after = last.map_or(before.saturating_sub(2), |last| last.segment.number());
        let lost = lost_files::between(self.directory, after, before);
        if !self.has_headless {
            let gone = lost.as_ref().map(|lost| self.gone(*lost.start()));
            self.quarantined.push(gone.unwrap_or_else(|| Quarantined::new(segment, 0, Corruption::Gap)));
        }
        self.lost.extend(lost);
        self.has_lost = true;
        self.state.position = segment.first();
    }

    /// Records which files may have held the records between two positions, of which a segment has the first. Returns a
    /// report when the numbers do not suffice for all of them.
    pub(super) fn miss_behind(&mut self, segment: &Segment, end: Position, owed: Position) -> Option<Quarantined> {
        let number = segment.number();
        let before = self.numbers.iter().copied().find(|&before| before > number);
        let lost = match before {
            Some(before) => lost_files::between(self.directory, number, before)?,
            None => {
                // The record of the newest start may be among them, and no later segment shows it.
                self.missed_starts = self.missed_starts.saturating_add(1);
                lost_files::behind(number, (end, owed))
            }
        };
        let gone = (segment.offset_of(owed) > segment.bytes()).then(|| self.gone(*lost.start()));
        self.lost.push(lost);
        gone
    }

    /// The report of a missing file.
    fn gone(&self, number: u64) -> Quarantined {
        let path = segment_path(self.directory, number);
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Quarantined { file, at: 0, why: Corruption::GoneUncovered, queues: Vec::new() }
    }

    /// Synced records at the end are missing: the log goes on above them, so that no position names two records.
    pub(super) fn reach_synced(&mut self) {
        if self.state.position >= self.synced {
            return;
        }
        if let Some(last) = self.sealed.last_mut() {
            let (segment, end) = (Arc::clone(&last.segment), last.end);
            last.end = self.synced;
            let gone = self.miss_behind(&segment, end, self.synced);
            if !self.has_headless {
                let at = segment.offset_of(end);
                self.quarantined.push(gone.unwrap_or_else(|| Quarantined::new(&segment, at, Corruption::Gap)));
            }
        } else {
            let (file, why) = ("synced".to_owned(), Corruption::Gap);
            self.quarantined.push(Quarantined { file, at: 0, why, queues: Vec::new() });
        }
        self.has_lost = true;
        self.state.position = self.synced;
    }
}
