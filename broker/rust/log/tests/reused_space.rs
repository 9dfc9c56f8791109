//! Space of a deleted file in a segment that was begun just before a power failure: reserved blocks that were not
//! written may hold their old content.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use penstock_log::{Disk, LogOptions, Opened, RealDisk};
use support::{Model, Stored, message, open, open_with, small_segments, sync};

const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: u64 = 64;

fn segment(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("msgs.{number:010}"))
}

fn open_after_power_failure(directory: &Path) -> Opened {
    open_with(directory, LogOptions { raise: true, ..small_segments() }).unwrap()
}

/// A log of several segments, synced, and its content.
fn synced_log(directory: &Path) -> Model {
    let mut log = open(directory).log;
    let mut model = Model::default();
    for seed in 0..30 {
        model.publish(&mut log, &[1], message(100, seed)).unwrap();
    }
    log.write().unwrap();
    sync(&mut log);
    model
}

/// The space of a temporary copy of a segment became a new segment's. The power failed before the new segment's header
/// was on the disk, and the start took the old header's copy for its own: it reported a corrupt segment where nothing
/// was lost.
#[test]
fn the_header_of_an_earlier_segment_in_reused_space_is_no_corruption() {
    for earlier in 2..=4 {
        let directory = tempfile::tempdir().unwrap();
        let mut model = synced_log(directory.path());
        let newest = (1..60).rfind(|&number| segment(directory.path(), number).exists()).unwrap();
        assert!(newest >= earlier);
        let mut reused = std::fs::read(segment(directory.path(), earlier)).unwrap();
        reused[..SECTOR_BYTES].fill(0);
        std::fs::write(segment(directory.path(), newest + 1), reused).unwrap();

        let opened = open_after_power_failure(directory.path());

        assert_eq!(opened.quarantined, []);
        model.raise();
        model.check_state(&opened.state);
        model.check_messages(&opened.log);
        drop(opened);
        assert_eq!(open(directory.path()).quarantined, []);
    }
}

/// Where the writes of a start ended, in files that it wrote again.
#[derive(Debug, Default)]
struct Ends(Mutex<Vec<u64>>);

impl Disk for Ends {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock().unwrap().push(offset + bytes.len() as u64);
        RealDisk.write_at(file, bytes, offset)
    }
}

/// Records may end with zeros. A start that wrote their segment again left these out, so that other bytes could be
/// there after a power failure.
#[test]
fn a_segment_that_is_written_again_is_written_to_the_end_of_its_last_record() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path()).log;
    Model::default().publish(&mut log, &[1], Stored { body: vec![0; 100], ..message(0, 0) }).unwrap();
    let end = log.write().unwrap();
    drop(log);
    let disk = Arc::new(Ends::default());

    let opened = open_with(directory.path(), LogOptions { disk: Arc::clone(&disk) as _, ..small_segments() }).unwrap();

    let in_file = HEADER_BYTES + end.0;
    assert!(disk.0.lock().unwrap().contains(&in_file), "{in_file} of {:?}", disk.0);
    drop(opened);
}

/// The copy of a segment's own header still counts.
#[test]
fn a_lost_first_sector_costs_the_records_in_it_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let model = synced_log(directory.path());
    let path = segment(directory.path(), 4);
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 4 * SECTOR_BYTES);
    bytes[..SECTOR_BYTES].fill(0);
    std::fs::write(&path, bytes).unwrap();

    let opened = open_after_power_failure(directory.path());

    let lost = model.queues[&1].messages.len() as u64 - opened.state.queues[&penstock_queue::QueueId(1)].count;
    assert!((1..=4).contains(&lost), "{lost} messages are lost");
    assert!(opened.quarantined.iter().all(|corrupt| corrupt.file == "msgs.0000000004"), "{:?}", opened.quarantined);
    assert!(!opened.quarantined.is_empty());
}
