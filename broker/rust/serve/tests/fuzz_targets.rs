//! The targets of `fuzz/`, which a nightly compiler builds and runs: each compiles with the crates as they are now, and takes its
//! seeds.
#![cfg(feature = "fuzz")]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(unused_attributes, reason = "`no_main` is about the program that a target is elsewhere")]

use std::collections::BTreeSet;
use std::path::Path;

// The targets take `fuzz_target` from here.
extern crate self as libfuzzer_sys;

macro_rules! targets {
    ($($name:ident in $path:literal,)*) => {
        $(#[path = $path] mod $name;)*
        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::take)),*];
    };
}

targets! {
    amqp_connection in "../../../../fuzz/fuzz_targets/amqp_connection.rs",
    amqp_frames in "../../../../fuzz/fuzz_targets/amqp_frames.rs",
    amqp_method in "../../../../fuzz/fuzz_targets/amqp_method.rs",
    amqp_table in "../../../../fuzz/fuzz_targets/amqp_table.rs",
    consume_request in "../../../../fuzz/fuzz_targets/consume_request.rs",
    flight_ask in "../../../../fuzz/fuzz_targets/flight_ask.rs",
    flight_put in "../../../../fuzz/fuzz_targets/flight_put.rs",
    json_bodies in "../../../../fuzz/fuzz_targets/json_bodies.rs",
    log_checkpoint in "../../../../fuzz/fuzz_targets/log_checkpoint.rs",
    log_headers in "../../../../fuzz/fuzz_targets/log_headers.rs",
    log_index in "../../../../fuzz/fuzz_targets/log_index.rs",
    log_record in "../../../../fuzz/fuzz_targets/log_record.rs",
    log_record_2 in "../../../../fuzz/fuzz_targets/log_record_2.rs",
    properties in "../../../../fuzz/fuzz_targets/properties.rs",
    publish_batch in "../../../../fuzz/fuzz_targets/publish_batch.rs",
    read_request in "../../../../fuzz/fuzz_targets/read_request.rs",
    replication_frame in "../../../../fuzz/fuzz_targets/replication_frame.rs",
    websocket in "../../../../fuzz/fuzz_targets/websocket.rs",
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_target_takes_its_seeds() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz");
    let here: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names_in(&fuzz.join("fuzz_targets")), here);

    for (name, take) in TARGETS {
        let seeds = std::fs::read_dir(fuzz.join("seeds").join(name)).unwrap();
        let seeds: Vec<Vec<u8>> = seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap()).collect();
        assert!(!seeds.is_empty(), "{name} has no seed");
        seeds.iter().for_each(|seed| take(seed));
    }
}

/// The work of a target on its bytes, below the targets, which name it by its path.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub fn take($bytes: &[u8]) $body
    };
}
