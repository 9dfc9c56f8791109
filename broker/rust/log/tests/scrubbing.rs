//! Checks of what lies on the disk: corruption is found wherever a record is, and a log without corruption has none. Proptest prints the case that
//! fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::Path;
use std::sync::Arc;

use penstock_log::{CorruptAt, Log, RealDisk, ScrubPlace};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, sizes, steps};

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

/// A whole round; returns how many bytes it read.
fn scrub(log: &Log, bytes_max: usize) -> Result<usize, CorruptAt> {
    let (mut place, mut read) = (ScrubPlace::default(), 0);
    while let Some(ticket) = log.begin_scrub(place)? {
        let (next, bytes) = ticket.perform(bytes_max)?;
        assert_ne!(next, place, "it goes on");
        (place, read) = (next, read + bytes);
    }
    Ok(read)
}

fn begun(at: &Path, sizes: (u64, u64)) -> Replica {
    let mut replica = Replica::open(at, sizes, Arc::new(RealDisk));
    replica.append_all(&[Step::Epoch]);
    replica
}

fn commit_all(replica: &mut Replica) {
    replica.log.write().unwrap();
    replica.log.set_bound(replica.log.end()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_log_without_damage_has_none_after_rewrites_cuts_and_starts(
        parts in prop::collection::vec((steps(1..60), 0..4_u8, 0..9_u8), 1..6), sizes in sizes(), at in any::<prop::sample::Index>(),
        bytes_max in prop_oneof![Just(1_usize), 100..2_000_usize, Just(1 << 20)],
    ) {
        let place = directory();
        let mut replica = begun(place.path(), sizes);
        let mut under_way = ScrubPlace::default();
        for (steps, then, slices) in &parts {
            replica.append_all(steps);
            match then {
                0 => commit_all(&mut replica),
                1 => replica.compact(),
                2 => {
                    let ends = replica.ends(replica.log.bound());
                    if !ends.is_empty() {
                        replica.truncate_to(*at.get(&ends));
                    }
                    replica.append_all(&[Step::Epoch]);
                }
                _ => {
                    replica.compact();
                    replica.reopen();
                    replica.go_on();
                }
            }
            scrub(&replica.log, bytes_max).unwrap();
            for _ in 0..*slices {
                under_way = slice(&replica.log, under_way, bytes_max);
            }
        }
    }
}

/// A part of a round, which goes on after rewrites; the place after it. A round that has ended begins anew.
fn slice(log: &Log, after: ScrubPlace, bytes_max: usize) -> ScrubPlace {
    let Some(ticket) = log.begin_scrub(after).unwrap() else { return ScrubPlace::default() };
    ticket.perform(bytes_max).unwrap().0
}

/// A log with a message of a known body in a sealed segment, and the offset of that body in its file.
fn with_body(at: &Path, body: &[u8]) -> (Replica, std::path::PathBuf, usize) {
    let mut replica = begun(at, (512, 4096));
    let publish = |seed| Step::Publish { queues: vec![1], body_bytes: 200, seed };
    replica.append_all(&[publish(1)]);
    replica.log.append_mark(b"x", b"known", body).unwrap();
    replica.append_all(&(0..60).map(publish).collect::<Vec<_>>());
    commit_all(&mut replica);
    let find = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(body.len()).position(|window| window == body)
    };
    let files = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("msgs."));
    let (path, offset) = segments.filter_map(|path| find(&path).map(|offset| (path, offset))).next().unwrap();
    (replica, path, offset)
}

#[test]
fn a_bit_that_the_disk_has_changed_is_found_with_its_file_and_its_record() {
    let place = directory();
    let (replica, path, offset) = with_body(place.path(), b"a body that is known by its bytes");
    let before = scrub(&replica.log, 1 << 20).unwrap();
    assert!(before > 8192, "{before}");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset + 3] ^= 4;
    std::fs::write(&path, &bytes).unwrap();

    let found = scrub(&replica.log, 1 << 20).unwrap_err();

    assert_eq!(found.file, path.file_name().unwrap().to_str().unwrap());
    assert!(found.at < offset as u64 && found.at + 200 > offset as u64, "{found:?} {offset}");
}

#[test]
fn a_file_that_is_cut_short_or_gone_is_damage() {
    let place = directory();
    let (replica, path, offset) = with_body(place.path(), b"a body that is known by its bytes");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(offset as u64).unwrap();

    assert_eq!(scrub(&replica.log, 1 << 20).unwrap_err().file, path.file_name().unwrap().to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(scrub(&replica.log, 1 << 20).unwrap_err().file, path.file_name().unwrap().to_str().unwrap());
}

#[test]
fn what_is_not_committed_is_not_checked_as_it_may_be_cut() {
    let place = directory();
    let mut replica = begun(place.path(), (512, 4096));
    let publish = |seed| Step::Publish { queues: vec![1], body_bytes: 200, seed };
    replica.append_all(&(0..60).map(publish).collect::<Vec<_>>());

    assert_eq!(scrub(&replica.log, 1 << 20).unwrap(), 0);
    commit_all(&mut replica);
    assert!(scrub(&replica.log, 1 << 20).unwrap() > 8192);
}
