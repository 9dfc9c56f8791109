//! Records copied from one replica's log to another's as bytes. Proptest prints the case that fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use penstock_log::{Begun, CheckedRecords, DecodeError, Format, Log, LogError, LogOptions, Opened, Position, RealDisk};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, epoch, sizes, steps};
use support::sync;

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

/// A log that takes everything from others.
struct Follower {
    directory: PathBuf,
    options: LogOptions,
    log: Log,
}

impl Follower {
    fn blank(directory: &Path, (segment_bytes_min, segment_bytes_max): (u64, u64), log_id: [u8; 16]) -> Follower {
        let (format, log_id) = (Format::Two, Some(log_id));
        let options = LogOptions {
            segment_bytes_min,
            segment_bytes_max,
            format,
            log_id,
            is_bounded: true,
            ..LogOptions::default()
        };
        let log = Log::open(directory, options.clone()).unwrap().log;
        Follower { directory: directory.to_owned(), options, log }
    }

    fn reopen(&mut self) -> Opened {
        let opened = Log::open(&self.directory, self.options.clone()).unwrap();
        assert_eq!((&opened.quarantined[..], &opened.set_aside[..]), (&[][..], &[][..]));
        assert_eq!(opened.recovery.torn_bytes, 0);
        opened
    }

    fn restart(&mut self) {
        self.log = self.reopen().log;
    }

    fn copy_to(&mut self, from: &Log, until: Position, bytes_max: usize) {
        while self.log.end() < until {
            self.take_next(from, until, bytes_max);
        }
        self.log.write().unwrap();
    }

    fn take_next(&mut self, from: &Log, until: Position, bytes_max: usize) {
        let after = self.log.end();
        let of = from.epochs().of(after).unwrap();
        let records = from.begin_records(after, until).unwrap().unwrap().perform(bytes_max).unwrap().unwrap();
        assert_eq!(records.after, after);
        let checked = CheckedRecords::check(&from.id(), of, after, records.bytes).unwrap();
        assert_eq!(checked.until(), records.until);
        assert_eq!(self.log.append_records(&checked).unwrap(), records.until);
    }

    fn list(&self) -> Vec<(Position, u32)> {
        self.log.begin_checksums(Position(0)..Position(u64::MAX)).unwrap().perform().unwrap()
    }

    /// It is equal to another one, also after a start, and finds its messages.
    fn check_equal(&mut self, other: &mut Replica) {
        assert_eq!(self.log.end(), other.log.end());
        assert!(self.log.epochs().iter().eq(other.log.epochs().iter()));
        assert!(self.list().into_iter().eq(other.list()));
        let end = self.log.end();
        self.log.set_bound(end).unwrap();
        other.model().check_messages(&self.log);
        sync(&mut self.log);
        let opened = self.reopen();
        // The bound is stored with a sync, which may have come before.
        other.model_at(opened.state.position).check_state(&opened.state);
        self.log = opened.log;
        assert!(self.list().into_iter().eq(other.list()));
        self.log.set_bound(end).unwrap();
        other.model().check_messages(&self.log);
    }
}

fn leader(sizes: (u64, u64)) -> (tempfile::TempDir, Replica) {
    let at = directory();
    let mut leader = Replica::open(at.path(), sizes, Arc::new(RealDisk));
    leader.append(&Step::Epoch);
    leader.log.write().unwrap();
    (at, leader)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_blank_log_that_takes_all_records_of_another_is_equal_to_it(
        parts in prop::collection::vec((steps(1..40), 0..4_u8), 1..5), sizes in [sizes(), sizes()],
        bytes_max in prop_oneof![Just(1_usize), 100..2_000_usize, Just(1 << 20)],
    ) {
        let (_directory, mut leader) = leader(sizes[0]);
        let at = directory();
        let mut follower = Follower::blank(at.path(), sizes[1], leader.log.id());
        for (steps, then) in &parts {
            leader.append_all(steps);
            let end = leader.log.end();
            match then {
                0 => {}
                1 => follower.restart(),
                2 => follower.copy_to(&leader.log, end, bytes_max),
                // The steps may have appended nothing.
                _ if follower.log.end() == end => {}
                _ => {
                    follower.take_next(&leader.log, end, bytes_max);
                    follower.log.write().unwrap();
                    follower.restart();
                }
            }
        }
        let end = leader.log.end();
        follower.copy_to(&leader.log, end, bytes_max);
        follower.check_equal(&mut leader);
    }

    /// It went on only in the highest epoch that had begun in it, so a replica that had led for a moment could never follow again.
    #[test]
    fn a_log_whose_newest_epoch_was_cut_goes_on_in_an_older_one(
        [before, after] in [steps(1..30), steps(1..30)], own in 0..40_u8, sizes in [sizes(), sizes()],
        at in any::<prop::sample::Index>(), restarts in any::<[bool; 3]>(), bytes_max in 100..4_000_usize,
    ) {
        let (_directory, mut leader) = leader(sizes[0]);
        let mut ends = vec![leader.log.end()];
        for step in before.iter().chain([&Step::Epoch]).chain(&after) {
            leader.append(step);
            ends.push(leader.log.end());
        }
        leader.log.write().unwrap();
        let common = *at.get(&ends);
        let place = directory();
        let mut follower = Follower::blank(place.path(), sizes[1], leader.log.id());
        follower.copy_to(&leader.log, common, bytes_max);

        // It leads for a moment, in an epoch that the other one never sees.
        follower.log.follow_epoch(epoch(50), 0, Begun::default()).unwrap();
        for seed in 0..own {
            follower.log.append_mark(b"x", &[seed], &[seed; 100]).unwrap();
        }
        follower.log.write().unwrap();
        if restarts[0] {
            follower.restart();
        }
        follower.log.truncate_to(common).unwrap();
        if restarts[1] {
            follower.restart();
        }
        let end = leader.log.end();
        if common < end {
            follower.take_next(&leader.log, end, bytes_max);
            follower.log.write().unwrap();
        }
        if restarts[2] {
            follower.restart();
        }
        follower.copy_to(&leader.log, end, bytes_max);
        follower.check_equal(&mut leader);
    }

    #[test]
    fn bytes_that_changed_on_their_way_are_refused(
        steps in steps(1..10), sizes in sizes(), at in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let (_directory, mut leader) = leader(sizes);
        let first = leader.log.epochs().iter().last().unwrap();
        leader.append_all(&steps);
        let ticket = leader.log.begin_records(first.1, leader.log.end()).unwrap().unwrap();
        let records = ticket.perform(1 << 20).unwrap().unwrap();
        let check = |bytes: &[u8]| CheckedRecords::check(&leader.log.id(), first.0, first.1, bytes.to_vec().into());
        prop_assert!(check(&records.bytes).is_ok());

        let mut changed = records.bytes.to_vec();
        *at.get_mut(&mut changed) ^= 1 << bit;

        prop_assert!(check(&changed).is_err());
        let cut = at.index(records.bytes.len());
        let found = check(&records.bytes[..cut]);
        prop_assert!(found.is_err() || found.unwrap().until().0 < records.until.0);
    }
}

#[test]
fn records_are_taken_only_for_their_place_and_their_epoch() {
    let (_directory, mut leader) = leader((512, 4096));
    let (last, first) = leader.log.epochs().iter().last().unwrap();
    leader.append_all(&[Step::Mark { seed: 1 }, Step::Mark { seed: 2 }]);
    let (id, end) = (leader.log.id(), leader.log.end());
    let read = |after: Position| {
        leader.log.begin_records(after, end).unwrap().unwrap().perform(1 << 20).unwrap().unwrap().bytes
    };
    let place = directory();
    let mut follower = Follower::blank(place.path(), (512, 4096), id);
    follower.copy_to(&leader.log, first, 1 << 20);

    let bytes = read(first);
    let begun = CheckedRecords::check(&id, last, first, bytes.clone()).unwrap();
    assert_eq!(CheckedRecords::check(&id, last + 1, first, bytes.clone()), Err(DecodeError::HeadChecksum));
    assert_eq!(CheckedRecords::check(&[7; 16], last, first, bytes.clone()), Err(DecodeError::HeadChecksum));
    assert_eq!(CheckedRecords::check(&id, last, Position(first.0 + 1), bytes.clone()), Err(DecodeError::Position));
    assert_eq!(CheckedRecords::check(&id, last, first, Bytes::new()), Err(DecodeError::End));

    // Without the record that begins the epoch.
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let second = Position(first.0 + length as u64);
    let later = CheckedRecords::check(&id, last, second, bytes.slice(length..)).unwrap();
    assert!(matches!(follower.log.append_records(&later), Err(LogError::NotCopied { .. })));
    follower.log.append_records(&begun).unwrap();
    follower.log.write().unwrap();
    assert!(matches!(follower.log.append_records(&begun), Err(LogError::NotCopied { .. })));
    follower.check_equal(&mut leader);
}

#[test]
fn a_log_that_has_another_id_than_its_shard_is_refused() {
    let place = directory();
    drop(Follower::blank(place.path(), (512, 4096), [1; 16]).log.close());
    let options = LogOptions { log_id: Some([2; 16]), ..LogOptions::default() };

    assert!(matches!(Log::open(place.path(), options), Err(LogError::Corrupt { .. })));
    let options = LogOptions { log_id: Some([1; 16]), ..LogOptions::default() };
    assert_eq!(Log::open(place.path(), options).unwrap().log.id(), [1; 16]);
}
