//! Checks of copied files: the copy of a log without corruption passes, whatever was rewritten and cut, and is that log. Proptest prints the case
//! that fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{CopiedLog, Log, LogError, LogOptions, Position, RealDisk, copied_order};
use penstock_queue::{QueueId, Sequence};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, sizes, steps};
use tempfile::TempDir;

const PREFIX: &str = "copy.";

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

/// A copy, with the names of its files in their order.
struct Copy {
    directory: TempDir,
    names: Vec<String>,
    log_id: [u8; 16],
    end: Position,
}

impl Copy {
    fn of(log: &mut Log) -> Copy {
        let ticket = log.begin_backup().unwrap();
        let (end, mut reader, directory) = (ticket.position(), ticket.open().unwrap(), directory());
        let mut names = Vec::new();
        for index in 0..reader.files().len() {
            let (name, bytes, size) = {
                let file = &reader.files()[index];
                (file.name.clone(), file.bytes, file.size)
            };
            reader.check(index, bytes).unwrap();
            let path = directory.path().join(format!("{PREFIX}{name}"));
            std::fs::write(&path, reader.read(index, 0, bytes as usize).unwrap()).unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
            names.push(name);
        }
        names.sort_by_cached_key(|name| copied_order(name));
        Copy { directory, names, log_id: log.id(), end }
    }

    fn check(&self) -> Result<(), LogError> {
        let mut copied = CopiedLog::new(self.directory.path(), PREFIX, self.log_id, self.end);
        self.names.iter().try_for_each(|name| copied.take(name))?;
        copied.finish()
    }

    /// Renames the copied files to those of a log, and opens that log.
    fn open(&self, options: LogOptions) -> penstock_log::Opened {
        for name in &self.names {
            let place = self.directory.path();
            std::fs::rename(place.join(format!("{PREFIX}{name}")), place.join(name)).unwrap();
        }
        Log::open(self.directory.path(), options).unwrap()
    }
}

fn begun(at: &Path, sizes: (u64, u64)) -> Replica {
    let mut replica = Replica::open(at, sizes, Arc::new(RealDisk));
    replica.append_all(&[Step::Epoch]);
    replica
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_copy_of_a_log_without_corruption_passes_after_rewrites_cuts_and_starts(
        parts in prop::collection::vec((steps(1..60), 0..5_u8), 1..6), sizes in sizes(), at in any::<prop::sample::Index>(),
    ) {
        let place = directory();
        let mut replica = begun(place.path(), sizes);
        for (steps, then) in &parts {
            replica.append_all(steps);
            match then {
                0 => replica.log.set_bound(replica.log.end()).unwrap(),
                1 => replica.compact(),
                2 => {
                    let ends = replica.ends(replica.log.bound());
                    if !ends.is_empty() {
                        replica.truncate_to(*at.get(&ends));
                    }
                    replica.append_all(&[Step::Epoch]);
                }
                3 => {}
                _ => {
                    replica.compact();
                    replica.reopen();
                    replica.go_on();
                }
            }
            let copy = Copy::of(&mut replica.log);
            copy.check().unwrap();
            let options = LogOptions { is_bounded: true, ..support::small_segments() };
            let opened = copy.open(options);
            prop_assert_eq!(opened.quarantined, []);
            prop_assert_eq!(opened.state.position, copy.end);
            replica.model_at(copy.end).check_state(&opened.state);
            replica.model_at(copy.end).check_messages(&opened.log);
        }
    }

    #[test]
    fn any_changed_byte_of_a_record_is_found(
        steps in steps(60..120), sizes in sizes(),
        (file, byte, bit) in (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..8_u8),
    ) {
        let place = directory();
        let mut replica = begun(place.path(), sizes);
        replica.append_all(&steps);
        replica.log.set_bound(replica.log.end()).unwrap();
        let copy = Copy::of(&mut replica.log);
        let is_segment = |name: &&String| name.starts_with("msgs.") && !name.ends_with(".idx");
        let segments: Vec<&String> = copy.names.iter().filter(is_segment).collect();
        let path = copy.directory.path().join(format!("{PREFIX}{}", file.get(&segments)));
        let bytes = std::fs::read(&path).unwrap();
        // A copy of the header is at the end of a file.
        let records = bytes[..bytes.len() - 64].iter().rposition(|&byte| byte != 0).unwrap() + 1;
        prop_assume!(records > 64);

        change(&path, 64 + byte.index(records - 64), bit);

        let found = copy.check().map_err(corrupt_path);
        prop_assert_eq!(found, Err(Some(path)));
    }

    #[test]
    fn a_changed_byte_of_a_live_message_is_found_wherever_it_was_rewritten_to(
        steps in steps(60..120), sizes in sizes(), starts in any::<bool>(),
        (message, byte, bit) in (any::<prop::sample::Index>(), 0..30_usize, 0..8_u8),
    ) {
        let place = directory();
        let mut replica = begun(place.path(), sizes);
        replica.append_all(&steps);
        replica.compact();
        if starts {
            replica.reopen();
        }
        let queues = replica.model().queues.iter();
        let live = queues.flat_map(|(&queue, content)| content.messages.keys().map(move |&number| (queue, number)));
        let live: Vec<(u64, u64)> = live.collect();
        prop_assume!(!live.is_empty());
        let (queue, number) = *message.get(&live);
        let found = replica.log.locate(QueueId(queue), Sequence(number), 1).unwrap().unwrap();
        let copy = Copy::of(&mut replica.log);
        let name = found.segment.path().file_name().unwrap().to_str().unwrap();
        let path = copy.directory.path().join(format!("{PREFIX}{name}"));

        change(&path, found.offsets[0] as usize + byte, bit);

        let found = copy.check().map_err(corrupt_path);
        prop_assert_eq!(found, Err(Some(path)));
    }
}

fn corrupt_path(error: LogError) -> Option<PathBuf> {
    if let LogError::Corrupt { path, .. } = error { Some(path) } else { None }
}

fn change(path: &Path, at: usize, bit: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << bit;
    std::fs::write(path, &bytes).unwrap();
}

#[test]
fn a_copy_of_another_log_and_one_without_a_readable_checkpoint_are_refused() {
    let place = directory();
    let mut replica = begun(place.path(), (512, 4096));
    let publish = |seed| Step::Publish { queues: vec![1], body_bytes: 200, seed };
    replica.append_all(&(0..60).map(publish).collect::<Vec<_>>());
    replica.compact();
    let mut copy = Copy::of(&mut replica.log);
    copy.check().unwrap();

    let id = std::mem::replace(&mut copy.log_id, [7; 16]);
    assert!(copy.check().unwrap_err().to_string().contains("it belongs to another log"));
    copy.log_id = id;
    for name in copy.names.iter().filter(|name| name.starts_with("checkpoint.")) {
        std::fs::write(copy.directory.path().join(format!("{PREFIX}{name}")), b"no checkpoint").unwrap();
    }
    assert!(copy.check().unwrap_err().to_string().contains("it is not a checkpoint"));
}

/// Its file is not held, but open. The check of it took the leader's log for corrupt.
#[test]
fn a_segment_that_is_removed_while_the_files_before_it_are_fetched_passes_the_leaders_check() {
    let place = directory();
    let mut replica = begun(place.path(), (512, 4096));
    let publish = |queue: u64| move |seed| Step::Publish { queues: vec![queue], body_bytes: 200, seed };
    replica.append_all(&(0..40).map(publish(1)).collect::<Vec<_>>());
    replica.log.set_bound(replica.log.end()).unwrap();
    let mut reader = replica.log.begin_backup().unwrap().open().unwrap();
    let is_segment = |name: &str| name.starts_with("msgs.") && !name.ends_with(".idx");
    let active = reader.files().iter().rposition(|file| is_segment(&file.name)).unwrap();
    let path = place.path().join(&reader.files()[active].name);
    assert!(path.exists());

    replica.append_all(&(0..40).map(publish(1)).collect::<Vec<_>>());
    replica.append_all(&[Step::Delete { queue: 1 }]);
    for _ in 0..3 {
        replica.append_all(&(0..40).map(publish(2)).collect::<Vec<_>>());
        replica.log.set_bound(replica.log.end()).unwrap();
        support::sync(&mut replica.log);
        support::fold(&mut replica.log).unwrap().perform().unwrap();
    }

    assert!(!path.exists());
    reader.check(active, u64::MAX).unwrap();
}
