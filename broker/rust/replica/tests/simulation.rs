//! Replicas in simulated worlds, each drawn from a seed: no promise is broken, and once faults end they all agree.
//!
//! `SIM_SEEDS` is how many worlds there are, and `SIM_FIRST` the first seed; each is run alone with `SIM_SEEDS=1`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod world;

use world::{Shape, World};

const SHAPES: [Shape; 4] = [
    Shape { brokers: 3, min_in_sync: 2, troubled_for: 60_000 },
    Shape { brokers: 3, min_in_sync: 1, troubled_for: 60_000 },
    Shape { brokers: 5, min_in_sync: 3, troubled_for: 60_000 },
    Shape { brokers: 2, min_in_sync: 1, troubled_for: 60_000 },
];

/// Within this time after the last fault all replicas are in sync and commit.
const HEALS_WITHIN: u64 = 30_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn run(seed: u64) -> Result<(u64, u64), String> {
    let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
    let mut world = World::new(seed, shape);
    let mut time = 0;
    while time < shape.troubled_for + HEALS_WITHIN {
        time += 100;
        world.run_until(time)?;
        world.checks.deliverers(world.now, &world.brokers)?;
    }
    let before = world.checks.committed.len();
    world.run_until(time + 2_000)?;
    let record = world.coordinator.record();
    if record.in_sync.len() != shape.brokers {
        return Err(format!("after {HEALS_WITHIN} ms without faults, in sync are {:?}", record.in_sync));
    }
    if world.checks.committed.len() == before {
        return Err("nothing is committed any more".to_owned());
    }
    for broker in &world.brokers {
        if broker.disk.entries[..before] != world.checks.committed[..before] {
            return Err(format!("broker {} has another log", broker.number));
        }
    }
    Ok((before as u64, record.epoch))
}

#[test]
fn no_world_breaks_a_promise() {
    let (first, seeds) = (number("SIM_FIRST", 1), number("SIM_SEEDS", 200));
    let (mut committed, mut epochs) = (0, 0);
    for seed in first..first + seeds {
        match run(seed) {
            Ok((entries, epoch)) => (committed, epochs) = (committed + entries, epochs + epoch),
            Err(broken) => panic!("SIM_FIRST={seed} SIM_SEEDS=1: {broken}"),
        }
    }
    println!("{seeds} worlds: {committed} entries committed in {epochs} epochs");
    assert!(
        committed > 100 * seeds && epochs > 2 * seeds,
        "the worlds are too calm, or too troubled, to show anything"
    );
}

#[test]
fn a_hand_over_pauses_publishing_for_less_than_100_ms() {
    let mut longest = 0;
    for seed in 0..100 {
        let mut world = World::new(seed, Shape { troubled_for: 0, ..SHAPES[0] });
        world.run_until(5_000).unwrap();
        let from = world.leader().expect("a leader");
        let to = (from + 1) % world.brokers.len();
        world.hand_over(from, to).unwrap();
        let began = world.now;
        while world.leader() != Some(to) {
            world.run_until(world.now + 1).unwrap();
            assert!(world.now < began + 1_000, "seed {seed}: broker {to} does not lead");
        }
        longest = longest.max(world.now - began);
    }
    println!("the longest pause is {longest} ms of the world's time");
    assert!(longest < 100);
}
