//! Replicas on real logs in worlds drawn from seeds: committed records never change, and once faults end all logs are equal. A seed
//! that fails is printed.
#![allow(clippy::unwrap_used)]

mod world;

use proptest::prelude::*;
use world::World;

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8)
}

const TROUBLED_FOR: u64 = 20_000;
const HEALS_WITHIN: u64 = 15_000;

proptest! {
    // A smaller seed is no simpler world.
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn committed_records_never_change_and_all_logs_are_equal_in_the_end(seed in any::<u64>()) {
        check(seed);
    }
}

fn check(seed: u64) {
    let mut world = World::new(seed, TROUBLED_FOR);
    world.run_until(TROUBLED_FOR + HEALS_WITHIN);
    let before = world.confirmed_count();
    world.run_until(world.now + 2_000);

    assert!(world.confirmed_count() > before, "nothing is committed any more");
    world.check_healed();
}

/// A power failure left an earlier segment's header in the space of an unsynced one, and the replica was refused.
#[test]
fn a_header_that_an_earlier_segment_left_is_no_lost_record() {
    check(10_103_451_678_865_579_050);
}

/// The same, where the earlier segment began below the one before.
#[test]
fn a_header_that_a_segment_of_an_earlier_start_left_is_no_lost_record() {
    check(501_496_271_750_193_282);
}

/// A power failure kept the name of a segment and lost those before it, of which nothing was synced, and the replica was refused.
#[test]
fn a_segment_whose_forerunners_never_reached_the_disk_is_no_lost_record() {
    check(6_389_365_456_484_736_777);
}

/// One that was drawn, by `WORLD_SEED`; `WORLD_TRACE` prints all steps.
#[test]
fn a_world_of_a_given_seed_heals() {
    check(std::env::var("WORLD_SEED").map_or(1, |seed| seed.parse().unwrap()));
}
