//! Findings of Jepsen about other brokers, each as a script for three replicas on real logs. `docs/cluster.md` lists all of them.
//!
//! Everywhere a publisher goes on meanwhile, and each world checks at each step that a committed record never changes; at the end all
//! replicas have the same records, among them everything that was confirmed. `JEPSEN_WORLDS` is how many worlds each script runs in.
#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use world::{BROKERS, Crash, Dice, Image, World};

const HEALS_WITHIN: u64 = 15_000;

/// The worlds of a script differ in times, sizes and what is left of unsynced writes.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("JEPSEN_WORLDS").map_or(3, |count| count.parse().unwrap())
}

fn heals(world: &mut World) {
    world.slow_disks(false);
    world.run_for(HEALS_WITHIN);
    let before = world.confirmed_count();
    world.run_for(2_000);
    assert!(world.confirmed_count() > before, "nothing is confirmed any more");
    world.check_healed();
}

/// NATS confirms a message before it is on any disk.
#[test]
fn all_machines_lose_their_power_at_once_and_nothing_that_was_confirmed_is_lost() {
    for seed in seeds() {
        let mut world = World::calm(seed);
        world.slow_disks(true);
        world.run_for(4_000);
        let crash = if seed % 2 == 0 { Crash::PowerKeepsNothing } else { Crash::PowerKeepsSome };
        (0..BROKERS).for_each(|node| world.crash(node, crash));
        (0..BROKERS).for_each(|node| world.restart(node));
        heals(&mut world);
    }
}

/// In NATS the broker that lost its unsynced writes, and one that had stood still, agreed on a log without confirmed messages.
#[test]
fn one_machine_loses_its_power_while_others_stand_still_in_turn_and_nothing_that_was_confirmed_is_lost() {
    for seed in seeds() {
        let mut world = World::calm(seed);
        let leader = world.leader();
        let (slow, failing) = world.followers();
        world.slow_disks(true);
        world.pause(slow);
        let before = world.confirmed_count();
        world.run_for(8_000);
        assert!(world.confirmed_count() > before && !world.in_sync().contains(&slow), "it goes on without {slow}");

        world.crash(failing, Crash::PowerKeepsNothing);
        world.pause(leader);
        world.go_on(slow);
        world.restart(failing);
        world.run_for(8_000);
        assert!(!world.leads(slow), "a broker leads that was not in sync");
        world.go_on(leader);
        heals(&mut world);
    }
}

/// In NATS and in RabbitMQ's mirrored queues both sides of a partition went on by themselves.
#[test]
fn a_leader_that_is_cut_off_confirms_nothing_and_the_others_lose_nothing() {
    for seed in seeds() {
        let mut world = World::calm(seed);
        let cut_off = world.leader();
        let before = world.unknown;
        world.isolate(cut_off);
        world.run_for(10_000);
        assert!((0..BROKERS).any(|node| node != cut_off && world.leads(node)), "the majority has no leader");
        world.reconnect();
        heals(&mut world);
        assert!(world.unknown > before, "its publishers heard nothing");
    }
}

/// Processes of NATS that were killed one after the other forgot the whole stream.
#[test]
fn all_processes_are_killed_again_and_again_and_nothing_that_was_confirmed_is_lost() {
    for seed in seeds() {
        let mut world = World::calm(seed);
        for _ in 0..8 {
            let leader = world.leader();
            for node in [leader, (leader + 1) % BROKERS] {
                world.crash(node, Crash::KillInWrite);
                world.run_for(200);
                world.restart(node);
                world.run_for(300);
            }
        }
        heals(&mut world);
    }
}

/// A file of the image, drawn among those that have bytes.
fn some_file<'a>(image: &'a mut Image, dice: &mut Dice) -> &'a mut Vec<u8> {
    let mut files: Vec<_> = image.files.values_mut().filter(|bytes| !bytes.is_empty()).collect();
    let at = dice.below(files.len());
    files.swap_remove(at)
}

/// Changes a file of one broker: in each world that of the leader or of another one.
fn with_damage(damage: fn(&mut Image, &mut Dice)) {
    let mut refused = 0;
    for seed in seeds() {
        let mut world = World::calm(seed);
        let leader = world.leader();
        let hit = (leader + seed as usize) % BROKERS;
        world.damage(hit, damage);
        world.run_for(3_000);
        world.restart(hit);
        heals(&mut world);
        for node in 0..BROKERS {
            let changed = world.changed_at(node);
            assert!(changed == 0 || node == hit, "broker {node} has {changed} messages that cannot be read");
        }
        refused += world.refused.len();
    }
    println!("{refused} of {} logs were refused", seeds().end);
}

/// NATS lost confirmed messages by a bit that flipped in a file of a minority of brokers.
#[test]
fn a_bit_flips_on_one_disk_and_the_others_lose_nothing() {
    with_damage(|image, dice| {
        let bytes = some_file(image, dice);
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
    });
}

/// The same, when it was cut short.
#[test]
fn a_file_is_cut_short_on_one_disk_and_the_others_lose_nothing() {
    with_damage(|image, dice| {
        let bytes = some_file(image, dice);
        bytes.truncate(dice.below(bytes.len()));
    });
}

/// A broker of NATS that could not read its snapshot took the stream for one that was not its own, and deleted it.
#[test]
fn a_file_is_gone_on_one_disk_and_the_others_lose_nothing() {
    with_damage(|image, dice| {
        let at = dice.below(image.files.len());
        image.files = std::mem::take(&mut image.files)
            .into_iter()
            .enumerate()
            .filter(|(n, _)| *n != at)
            .map(|(_, file)| file)
            .collect();
    });
}
