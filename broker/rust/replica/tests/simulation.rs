//! Replicas in simulated worlds, each drawn from a seed: no promise is broken, and once faults end they all agree.
//!
//! `SIM_SEEDS` is how many worlds there are, and `SIM_FIRST` the first seed; each is run alone with `SIM_SEEDS=1`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod moves;
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

/// A broker began an epoch late, when the leader of the next one had committed entries from before both: no promise is broken by that.
#[test]
fn a_leader_that_begins_late_may_lack_what_a_later_one_committed() {
    run(1489).unwrap();
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

/// A world without faults, in which some broker leads.
fn calm(seed: u64) -> (World, usize) {
    let mut world = World::new(seed, Shape { troubled_for: 0, ..SHAPES[0] });
    world.run_until(5_000).unwrap();
    let leader = world.leader().expect("a leader");
    (world, leader)
}

/// How long it takes until another broker leads than one.
fn failover(world: &mut World, of: usize) -> u64 {
    let began = world.now;
    while world.leader().is_none_or(|leader| leader == of) {
        world.run_until(world.now + 10).unwrap();
        assert!(world.now < began + 60_000, "no broker leads");
    }
    world.now - began
}

#[test]
fn a_broker_that_is_drained_leads_only_where_no_other_one_does() {
    for seed in 0..100 {
        let (mut world, leader) = calm(seed);
        let drained = (leader + 1) % world.brokers.len();
        let other = (leader + 2) % world.brokers.len();
        world.drain(drained).unwrap();
        world.lose_machine(leader);
        failover(&mut world, leader);
        assert_eq!(world.leader(), Some(other), "seed {seed}");
    }
}

/// Each answer of the coordinator, which still named the dead leader, counted as a sign of it, and so the followers took turns at
/// waiting for it.
#[test]
fn a_dead_leader_is_replaced_soon_also_while_messages_are_lost() {
    for per_thousand in [0, 100, 300] {
        let mut longest = 0;
        for seed in 0..100 {
            let (mut world, leader) = calm(seed);
            world.lose_messages(per_thousand);
            world.lose_machine(leader);
            longest = longest.max(failover(&mut world, leader));
        }
        println!("{per_thousand} of 1000 messages lost: the longest failover takes {longest} ms of the world's time");
        assert!(longest < 11_000, "{per_thousand}: {longest}");
    }
}

/// RabbitMQ tests its queues with such partitions: each broker reaches a majority, and no two the same one.
#[test]
fn while_each_broker_reaches_another_majority_the_leader_goes_on() {
    for seed in 0..12 {
        let mut world = World::new(seed, Shape { troubled_for: 0, ..SHAPES[2] });
        world.run_until(5_000).unwrap();
        let leader = world.leader().expect("a leader");
        world.cut_to_ring();
        world.run_until(world.now + 10_000).unwrap();
        let (before, epoch) = (world.checks.committed.len(), world.coordinator.record().epoch);
        world.run_until(world.now + 10_000).unwrap();
        assert!(world.checks.committed.len() > before + 50, "seed {seed}: it stands still");
        let record = world.coordinator.record();
        assert_eq!((world.leader(), record.epoch, record.in_sync.len()), (Some(leader), epoch, 3), "seed {seed}");

        world.reconnect();
        world.run_until(world.now + 10_000).unwrap();
        let before = world.checks.committed.len();
        assert_eq!(world.coordinator.record().in_sync.len(), 5, "seed {seed}");
        world.run_until(world.now + 2_000).unwrap();
        for broker in &world.brokers {
            let number = broker.number;
            assert_eq!(broker.disk.entries[..before], world.checks.committed[..before], "seed {seed}: broker {number}");
        }
    }
}

#[test]
fn a_leader_whose_disk_stalls_is_replaced_by_one_whose_disk_does_not() {
    let mut longest = 0;
    for seed in 0..100 {
        let (mut world, leader) = calm(seed);
        world.stall_disk(leader, 60_000);
        longest = longest.max(failover(&mut world, leader));
        world.run_until(world.now + 2_000).unwrap();
        assert_ne!(world.leader(), Some(leader), "seed {seed}");
    }
    println!("the longest takes {longest} ms of the world's time");
    assert!(longest < 7_000, "{longest}");
}

/// A world whose two replicas in sync are lost, one with its disk, and the broker that is left with less.
struct Lost {
    world: World,
    left: usize,
    blank: usize,
    away: usize,
}

impl Lost {
    fn new(seed: u64) -> Lost {
        let mut world = World::new(seed, Shape { troubled_for: 0, ..SHAPES[0] });
        world.run_until(5_000).unwrap();
        let leader = world.leader().expect("a leader");
        let (left, other) = ((leader + 1) % 3, (leader + 2) % 3);
        world.lose_machine(left);
        world.run_until(20_000).unwrap();
        assert_eq!(world.coordinator.record().in_sync.len(), 2, "seed {seed}");
        let (blank, away) = if seed.is_multiple_of(2) { (leader, other) } else { (other, leader) };
        world.lose_machine(blank);
        world.lose_machine(away);
        world.lose_disk(blank);
        world.start_broker(blank);
        world.start_broker(left);
        Lost { world, left, blank, away }
    }
}

fn lead_by(world: &mut World, broker: usize) {
    let began = world.now;
    while world.leader() != Some(broker) {
        world.run_until(world.now + 10).unwrap();
        assert!(world.now < began + 60_000, "it does not lead");
    }
}

#[test]
fn no_replica_leads_by_itself_that_may_lack_something() {
    for seed in 0..100 {
        let Lost { mut world, .. } = Lost::new(seed);
        world.run_until(world.now + 60_000).unwrap();
        assert_eq!(world.leader(), None, "seed {seed}");
    }
}

#[test]
fn a_recovered_shard_goes_on_and_a_replica_that_has_more_begins_anew() {
    let (mut lost_count, mut anew_count) = (0, 0);
    for seed in 0..200 {
        let Lost { mut world, left, blank, away } = Lost::new(seed);
        world.run_until(world.now + 5_000).unwrap();
        let lost = world.recover(left);
        lost_count += lost;

        lead_by(&mut world, left);
        world.run_until(world.now + 20_000).unwrap();
        let before = world.checks.committed.len();
        let disk = world.brokers[away].replica_id;
        world.start_broker(away);
        world.run_until(world.now + 30_000).unwrap();

        assert!(world.checks.committed.len() > before, "seed {seed}: nothing is committed any more");
        anew_count += usize::from(world.brokers[away].replica_id != disk);
        let record = world.coordinator.record();
        assert_eq!(record.in_sync.len(), 3, "seed {seed}: {record:?}");
        for broker in [left, blank, away] {
            let entries = &world.brokers[broker].disk.entries;
            assert_eq!(entries[..before], world.checks.committed[..before], "seed {seed}: broker {broker}");
        }
    }
    println!("{lost_count} entries were lost, and {anew_count} replicas began anew");
    assert!(lost_count > 1_000 && anew_count > 100, "{lost_count} {anew_count}");
}
