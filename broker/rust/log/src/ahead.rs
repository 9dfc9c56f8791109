//! Zeros written ahead of the records while syncs are small.
//!
//! A segment's blocks are reserved and were never written: each time a sync reaches a new one, the file system also
//! records that it is used now, which for a single small message is more data than the message. Blocks of zeros avoid
//! that. Readers see the same bytes either way, so no failure here has an effect.

use std::fs::File;

use crate::disk::Disk;
use crate::record::Position;

/// Syncs of less than this are small.
const SMALL_SYNC_BYTES: u64 = 16 << 10;
/// How much is prepared at a time: some 50 us, for a thousand small messages.
const AHEAD_BYTES: u64 = 128 << 10;
/// It is written page by page: a large write would make large folios, and a sync then counts all of one for each message.
const PAGE_BYTES: u64 = 4 << 10;

/// How far the active segment is prepared, and whether that is worth while.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The written position when the last sync began.
    sync_begun: Position,
    syncs_are_small: bool,
    /// The file was written up to this offset.
    prepared: u64,
}

impl Ahead {
    pub(crate) fn new(written: Position) -> Ahead {
        Ahead { sync_begun: written, syncs_are_small: false, prepared: 0 }
    }

    pub(crate) fn sync_begins(&mut self, written: Position) {
        self.syncs_are_small = self.is_small(written);
        self.sync_begun = written;
    }

    fn is_small(&self, written: Position) -> bool {
        written.0.saturating_sub(self.sync_begun.0) < SMALL_SYNC_BYTES
    }

    pub(crate) fn segment_begins(&mut self) {
        self.prepared = 0;
    }

    /// Call it when the log was written up to `written`, which is `end` in the file, of the `bytes` that it has.
    pub(crate) fn prepare(&mut self, disk: &dyn Disk, file: &File, written: Position, end: u64, bytes: u64) {
        // Without publishers that wait for the disk the last sync was long ago: the next one would not be small.
        self.syncs_are_small &= self.is_small(written);
        if !self.syncs_are_small || end <= self.prepared {
            return;
        }
        let length = AHEAD_BYTES.min(bytes.saturating_sub(end));
        self.prepared = end + length;
        let zeros = [0; PAGE_BYTES as usize];
        let mut at = end;
        while at < self.prepared {
            let piece = (PAGE_BYTES - at % PAGE_BYTES).min(self.prepared - at);
            // A disk that fails here also fails for the next records, which report it.
            let _ = disk.write_at(file, zeros.get(..piece as usize).unwrap_or_default(), at);
            at += piece;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::disk::RealDisk;

    fn used_bytes(file: &File) -> u64 {
        file.metadata().unwrap().len()
    }

    /// Written since a sync that began at `Position(100)`.
    const LITTLE: Position = Position(100);

    #[test]
    fn zeros_are_written_only_while_syncs_are_small_and_never_beyond_the_segment() {
        let file = tempfile::tempfile().unwrap();
        let mut ahead = Ahead::new(Position(0));
        ahead.prepare(&RealDisk, &file, LITTLE, 100, 200 << 10);
        assert_eq!(used_bytes(&file), 0, "nothing is known of syncs yet");

        ahead.sync_begins(Position(100));
        file.write_all_at(b"record", 94).unwrap();
        ahead.prepare(&RealDisk, &file, LITTLE, 100, 200 << 10);
        assert_eq!(used_bytes(&file), 100 + AHEAD_BYTES);
        let mut record = [0; 6];
        file.read_exact_at(&mut record, 94).unwrap();
        assert_eq!(&record, b"record");

        ahead.prepare(&RealDisk, &file, LITTLE, 100 + AHEAD_BYTES, 200 << 10);
        assert_eq!(used_bytes(&file), 100 + AHEAD_BYTES, "up to there it is prepared already");
        ahead.prepare(&RealDisk, &file, LITTLE, 101 + AHEAD_BYTES, 200 << 10);
        assert_eq!(used_bytes(&file), 200 << 10);

        ahead.sync_begins(Position(1 << 20));
        ahead.segment_begins();
        file.set_len(0).unwrap();
        ahead.prepare(&RealDisk, &file, Position(1 << 20), 100, 200 << 10);
        assert_eq!(used_bytes(&file), 0, "the last sync was large");
    }

    #[test]
    fn no_zeros_are_written_where_nobody_asks_for_syncs() {
        let file = tempfile::tempfile().unwrap();
        let mut ahead = Ahead::new(Position(0));
        ahead.sync_begins(Position(100));

        ahead.prepare(&RealDisk, &file, Position(100 + SMALL_SYNC_BYTES), 100 + SMALL_SYNC_BYTES, 200 << 10);
        assert_eq!(used_bytes(&file), 0, "much was written since the one small sync");

        ahead.sync_begins(Position(100 + SMALL_SYNC_BYTES));
        ahead.sync_begins(Position(200 + SMALL_SYNC_BYTES));
        ahead.prepare(&RealDisk, &file, Position(200 + SMALL_SYNC_BYTES), 200 + SMALL_SYNC_BYTES, 200 << 10);
        assert_eq!(used_bytes(&file), 200 + SMALL_SYNC_BYTES + AHEAD_BYTES, "they are small again");
    }
}
