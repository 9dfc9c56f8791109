//! Lists of one segment at a time, by which replicas compare their records: together they are the list of all committed records, whatever was
//! rewritten. Proptest prints the case that fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_log::{Log, Position, RealDisk};
use proptest::prelude::*;
use support::replicas::{Replica, Step, directory, sizes, steps};

/// A few by default; more with `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

/// All records from a position on, by lists that end before another one.
fn listed(log: &Log, mut from: Position, until: Position, count_max: usize) -> BTreeMap<Position, u32> {
    let mut records = BTreeMap::new();
    loop {
        let found = log.begin_listing(from..until).unwrap().perform(count_max).unwrap();
        assert!(found.records.len() <= count_max);
        assert!(found.records.iter().all(|&(position, _)| from <= position && position < found.until));
        records.extend(found.records);
        if found.until == from {
            return records;
        }
        assert!(from < found.until && found.until <= until.min(log.bound()));
        from = found.until;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn lists_together_have_each_committed_record_once(
        parts in prop::collection::vec((steps(1..60), 0..3_u8), 1..4), sizes in sizes(), count_max in 1..20_usize,
        [first, second] in any::<[prop::sample::Index; 2]>(),
    ) {
        let place = directory();
        let mut replica = Replica::open(place.path(), sizes, Arc::new(RealDisk));
        replica.append_all(&[Step::Epoch]);
        for (steps, then) in &parts {
            replica.append_all(steps);
            match then {
                0 => replica.log.set_bound(replica.log.end()).unwrap(),
                1 => replica.compact(),
                _ => {}
            }
        }
        let committed = |records: BTreeMap<Position, u32>| -> BTreeMap<Position, u32> {
            records.into_iter().filter(|&(position, _)| position < replica.log.bound()).collect()
        };
        let all = committed(replica.list());

        let whole = listed(&replica.log, Position(0), Position(u64::MAX), count_max);
        prop_assert_eq!(&whole, &all);

        // Any two positions, as another broker may ask for.
        let end = replica.log.end().0 + 10;
        let [one, other] = [first, second].map(|index| Position(index.index(end as usize) as u64));
        let (from, until) = (one.min(other), one.max(other));
        let part = listed(&replica.log, from, until, count_max);
        let expected: BTreeMap<Position, u32> = all.range(from..until).map(|(&at, &checksum)| (at, checksum)).collect();
        prop_assert_eq!(part, expected);
    }
}
