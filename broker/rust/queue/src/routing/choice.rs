//! Routes of which each message takes one: by the hash of what the exchange hashes, or by chance.
//!
//! A route costs one entry, whatever its weight. The same content leads to the same route for as long as the routes stay
//! the same, on every broker and in every version: content and names are hashed by 64 bits of FNV-1a, and routes are in the
//! order of their weights and names. With `Ring` a route that comes or goes changes the way of no message between others;
//! finding a route takes some nanoseconds for each of them. With `Jump` it takes the logarithm of all weights, and the same
//! holds for a route at the end alone.

use std::cmp::Ordering;
use std::sync::Arc;

use super::targets::{Target, Targets};

/// How a message's route is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choosing {
    /// By weighted rendezvous hashing: the route whose hash with the content is the highest.
    Ring,
    /// By jump consistent hashing over as many places as the weights add up to.
    Jump,
    /// By the rest of a division by the number of routes.
    Modulus,
    /// By a number that is drawn.
    Random,
}

/// Invariant: `routes` ascend by weight and name; `ends` are the sums of the weights up to each of them.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    choosing: Choosing,
    routes: Vec<Weighted>,
    ends: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Weighted {
    weight: u32,
    /// The hash of the name.
    seed: u64,
    route: Arc<Named>,
}

#[derive(Debug)]
struct Named {
    name: Box<[u8]>,
    target: Target,
    targets: Targets,
}

impl Choice {
    pub(super) fn new(choosing: Choosing) -> Self {
        Choice { choosing, routes: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn choosing(&self) -> Choosing {
        self.choosing
    }

    /// Adds a route to a target of that name, with the weight that its key says.
    pub(super) fn add(&mut self, key: &[u8], name: &[u8], target: Target) {
        let weight = weight_of(key);
        if let Err(at) = self.find(weight, name, target) {
            let route = Arc::new(Named { name: name.into(), target, targets: Targets::of(target) });
            self.routes.insert(at, Weighted { weight, seed: hash(name), route });
            self.add_up();
        }
    }

    pub(super) fn remove(&mut self, key: &[u8], name: &[u8], target: Target) {
        if let Ok(at) = self.find(weight_of(key), name, target) {
            self.routes.remove(at);
            self.add_up();
        }
    }

    fn find(&self, weight: u32, name: &[u8], target: Target) -> Result<usize, usize> {
        self.routes.binary_search_by(|held| {
            let by_name = || held.route.name.as_ref().cmp(name).then_with(|| held.route.target.cmp(&target));
            held.weight.cmp(&weight).then_with(by_name)
        })
    }

    fn add_up(&mut self) {
        self.ends.clear();
        let mut sum = 0;
        self.ends.extend(self.routes.iter().map(|route| {
            sum += u64::from(route.weight);
            sum
        }));
    }

    /// The route of a message with this content to hash, or this number that was drawn; `None` without routes.
    pub(super) fn pick(&self, content: impl FnOnce() -> u64, draw: u64) -> Option<&Targets> {
        let count = self.routes.len() as u64;
        let at = match self.choosing {
            _ if count <= 1 => 0,
            Choosing::Ring => self.highest(content()),
            Choosing::Jump => {
                let place = jump(content(), *self.ends.last()?);
                self.ends.partition_point(|&end| end <= place)
            }
            Choosing::Modulus => content().checked_rem(count)? as usize,
            Choosing::Random => ((u128::from(mix(draw)) * u128::from(count)) >> 64) as usize,
        };
        self.routes.get(at).map(|weighted| &weighted.route.targets)
    }

    /// Of routes of one weight the one with the highest hash is compared with those of other weights, so that hardly ever
    /// more than one logarithm is needed.
    fn highest(&self, content: u64) -> usize {
        let (mut best, mut best_at, mut begin) = (f64::NEG_INFINITY, 0, 0);
        for alike in self.routes.chunk_by(|one, other| one.weight == other.weight) {
            let (mut highest, mut highest_at) = (0, begin);
            for (at, route) in (begin..).zip(alike) {
                let hash = mix(content ^ route.seed);
                if hash > highest {
                    (highest, highest_at) = (hash, at);
                }
            }
            let score = alike.first().map_or(best, |route| score(route.weight, highest));
            if score.total_cmp(&best) == Ordering::Greater {
                (best, best_at) = (score, highest_at);
            }
            begin += alike.len();
        }
        best_at
    }
}

/// Weights that are no positive number, which no binding has, count as 1.
fn weight_of(key: &[u8]) -> u32 {
    let weight = std::str::from_utf8(key).ok().and_then(|key| key.parse().ok());
    weight.filter(|&weight: &u32| weight > 0).unwrap_or(1)
}

/// -weight / ln(u), where `u` is the hash as a number between 0 and 1: the highest of several is that of each route as often
/// as its weight says.
fn score(weight: u32, hash: u64) -> f64 {
    let unit = ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -f64::from(weight) / unit.ln()
}

/// Jump consistent hashing, by Lamping and Veach. `places` is not 0.
fn jump(mut key: u64, places: u64) -> u64 {
    let (mut place, mut next) = (0, 0_u64);
    while next < places {
        place = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((place + 1) as f64 * ((1_u64 << 31) as f64 / ((key >> 33) + 1) as f64)) as u64;
    }
    place
}

/// FNV-1a of 64 bits, with its bits mixed.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let folded = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(folded)
}

/// The last steps of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Choice, Choosing, hash};
    use crate::ids::QueueId;
    use crate::routing::targets::Target;

    const CONTENTS: u64 = 20_000;

    fn queue(number: u64) -> (Vec<u8>, Target) {
        (format!("q{number}").into_bytes(), Target::Queue(QueueId(number)))
    }

    fn of(choosing: Choosing, weights: &[u32]) -> Choice {
        let mut choice = Choice::new(choosing);
        for (number, weight) in (0..).zip(weights) {
            let (name, target) = queue(number);
            choice.add(weight.to_string().as_bytes(), &name, target);
        }
        choice
    }

    /// The queue of each of many contents.
    fn picked(choice: &Choice) -> Vec<u64> {
        let content = |number: u64| hash(format!("key {number}").as_bytes());
        let one = |number| choice.pick(|| content(number), number).unwrap().queues().next().unwrap().0;
        (0..CONTENTS).map(one).collect()
    }

    fn counts(choice: &Choice) -> Vec<u64> {
        let mut counts = BTreeMap::new();
        picked(choice).into_iter().for_each(|queue| *counts.entry(queue).or_insert(0) += 1);
        counts.into_values().collect()
    }

    fn is_near(count: u64, share: u64) -> bool {
        count.abs_diff(share) < share / 10
    }

    #[test]
    fn messages_are_spread_by_the_weights_however_large_they_are() {
        for choosing in [Choosing::Ring, Choosing::Jump] {
            for unit in [1, 250_000_000] {
                let counts = counts(&of(choosing, &[unit, 4 * unit, 3 * unit, 2 * unit]));
                let shares = [1, 4, 3, 2].map(|weight| weight * CONTENTS / 10);
                assert!(
                    counts.iter().zip(shares).all(|(&count, share)| is_near(count, share)),
                    "{choosing:?} {counts:?}"
                );
            }
        }
        for choosing in [Choosing::Modulus, Choosing::Random] {
            let counts = counts(&of(choosing, &[1; 4]));
            assert!(counts.iter().all(|&count| is_near(count, CONTENTS / 4)), "{choosing:?} {counts:?}");
        }
    }

    #[test]
    fn a_route_of_a_ring_that_comes_or_goes_changes_the_way_of_no_message_between_others() {
        let before = of(Choosing::Ring, &[1, 3, 2, 1, 5]);
        let mut after = before.clone();
        let (name, target) = queue(5);
        after.add(b"2", &name, target);

        let moved: Vec<_> =
            picked(&before).into_iter().zip(picked(&after)).filter(|(one, other)| one != other).collect();

        assert!(moved.iter().all(|(_, queue)| *queue == 5));
        assert!(is_near(moved.len() as u64, CONTENTS * 2 / 14));
        after.remove(b"2", &name, target);
        assert_eq!(picked(&after), picked(&before));
    }

    #[test]
    fn a_last_route_of_a_jump_takes_messages_and_moves_no_others() {
        let before = of(Choosing::Jump, &[2, 2, 2]);
        let mut after = before.clone();
        let (name, target) = queue(3);
        after.add(b"2", &name, target);

        let moved: Vec<_> =
            picked(&before).into_iter().zip(picked(&after)).filter(|(one, other)| one != other).collect();

        assert!(moved.iter().all(|(_, queue)| *queue == 3));
        assert!(is_near(moved.len() as u64, CONTENTS / 4));
    }

    #[test]
    fn ten_thousand_routes_of_the_greatest_weight_take_an_entry_each() {
        let mut choice = Choice::new(Choosing::Ring);
        for number in 0..10_000 {
            let (name, target) = queue(number);
            choice.add(b"2147483647", &name, target);
        }
        assert_eq!((choice.routes.len(), choice.ends.len()), (10_000, 10_000));
        assert!(choice.pick(|| hash(b"key"), 0).is_some());
    }

    #[test]
    fn the_hashes_never_change() {
        assert_eq!(hash(b""), 0xf52a_15e9_a9b5_e89b);
        let ways: Vec<_> = [Choosing::Ring, Choosing::Jump, Choosing::Modulus]
            .map(|choosing| {
                let choice = of(choosing, &[1, 2, 3]);
                [&b"a"[..], b"hello", b"order.created", b""]
                    .map(|key| choice.pick(|| hash(key), 0).unwrap().queues().next().unwrap().0)
            })
            .into();
        assert_eq!(ways, [[1, 2, 1, 0], [1, 2, 2, 2], [1, 1, 0, 0]]);
    }

    #[test]
    fn without_routes_nothing_is_picked_and_with_one_always_that() {
        let mut choice = Choice::new(Choosing::Random);
        assert!(choice.pick(|| 0, 7).is_none());
        let (name, target) = queue(1);
        choice.add(b"", &name, target);
        assert!((0..10).all(|draw| choice.pick(|| draw, draw).is_some()));
        choice.remove(b"", &name, target);
        assert!(choice.pick(|| 0, 7).is_none());
    }
}
