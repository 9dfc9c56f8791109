//! A log that goes to another owner, with the state of its queues at its end. Proptest prints the case that fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use penstock_log::{FoldState, Log, LogError, LogOptions};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, first_of_all, sizes, steps};
use support::sync;

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(32)
}

/// The state that a start without a bound finds in a copy of the directory.
fn state_of_start(of: &Path) -> FoldState {
    let copy = directory();
    for entry in std::fs::read_dir(of).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    Log::open(copy.path(), LogOptions::default()).unwrap().state
}

fn state(log: &mut Log) -> FoldState {
    log.begin_state().unwrap().perform().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn the_state_at_the_end_is_that_of_a_start_whatever_is_committed_or_folded(
        [before, after] in [steps(1..60), steps(1..60)], bound in any::<prop::sample::Index>(), sizes in sizes(),
        [syncs, folds, kills] in any::<[bool; 3]>(),
    ) {
        let (first, directory) = (first_of_all(), directory());
        let mut replica = Replica::copy_of(first.path(), directory.path(), sizes);
        replica.append(&Step::Epoch);
        replica.append_all(&before);
        replica.append(&Step::Epoch);
        replica.append_all(&after);
        let ends = replica.ends(replica.log.bound());
        replica.log.set_bound(ends[bound.index(ends.len())]).unwrap();
        if syncs {
            sync(&mut replica.log);
        }
        if folds {
            support::fold(&mut replica.log).map(penstock_log::Retired::perform).transpose().unwrap();
        }
        if kills {
            replica.reopen();
        }

        let found = state(&mut replica.log);

        prop_assert_eq!(found.position, replica.log.end());
        prop_assert_eq!(found, state_of_start(directory.path()));
    }
}

/// A log of a replica with a mark below its bound.
fn log_with_a_mark(first: &std::path::Path, directory: &std::path::Path) -> Log {
    let Replica { mut log, .. } = Replica::copy_of(first, directory, (4096, 32 << 10));
    log.follow_epoch(100 << 32, 0, penstock_log::Begun::default()).unwrap();
    log.append_mark(b"x", b"key", b"one").unwrap();
    let end = log.write().unwrap();
    log.set_bound(end).unwrap();
    log
}

#[test]
fn a_log_goes_on_with_another_owner_and_the_rest_of_it_is_closed() {
    let (first, directory) = (first_of_all(), directory());
    let mut log = log_with_a_mark(first.path(), directory.path());

    let mut other = log.hand_on().unwrap();

    assert!(matches!(log.append_mark(b"x", b"key", b"lost"), Err(LogError::Closed { .. })));
    assert!(log.begin_sync().is_none() && log.begin_fold().is_none() && log.begin_compaction().is_none());
    assert!(log.close().is_ok());
    drop(log);
    other.append_mark(b"x", b"key", b"two").unwrap();
    let end = other.write().unwrap();
    other.set_bound(end).unwrap();
    support::fold(&mut other).map(penstock_log::Retired::perform).transpose().unwrap();
    assert_eq!(state(&mut other).marks[&(b"x".to_vec(), b"key".to_vec())], b"two");
    other.close().unwrap();
    let opened = Log::open(directory.path(), LogOptions { is_bounded: true, ..LogOptions::default() }).unwrap();
    assert_eq!(opened.state.marks[&(b"x".to_vec(), b"key".to_vec())], b"two");
}

#[test]
fn a_log_stays_while_a_fold_is_under_way() {
    let (first, directory) = (first_of_all(), directory());
    let mut log = log_with_a_mark(first.path(), directory.path());
    let ticket = log.begin_whole_fold().unwrap().unwrap();

    assert!(log.hand_on().is_none());
    let folded = ticket.perform().unwrap();
    assert!(log.hand_on().is_none());
    log.finish_fold(folded).perform().unwrap();

    assert!(log.hand_on().is_some());
}
