//! A leader whose log has a gap, because a fold removed a segment in which nothing lived: a follower that needs the records before it
//! gets them, and then a copy.
#![allow(clippy::unwrap_used, reason = "a test")]

mod alone;

use alone::{Alone, record};
use penstock_log::Position;

/// The gap counted as a part of the segment before it, whose records seemed corrupt then: the leader halted.
#[test]
fn a_leader_sends_what_is_before_a_gap_after_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(directory.path(), 1, record(), 1);
    alone.append(b"kept", 1);
    let kept = alone.replicated.log().end();
    // The segments after that of the kept message have only settled ones.
    (0..100).for_each(|_| alone.append(&[7; 500], 2));
    alone.settle(2);
    for _ in 0..100 {
        alone.append(&[7; 500], 3);
        alone.fold();
    }
    let (before, lacks) = alone.ship();
    assert!(lacks && Position(before) >= kept && Position(before) < alone.replicated.log().end(), "{before}");
    let (record, version) = (alone.record, alone.version);

    let mut alone = Alone::start(directory.path(), 2, record, version);

    assert_eq!(alone.ship(), (before, true));
}
