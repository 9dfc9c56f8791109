//! Looks in the sources of this crate for places where a worker would wait for a shard's lock, with its thread.
//!
//! It goes by names: a new way of the engine's to take the lock has to be added to `TAKERS`.
#![allow(clippy::unwrap_used)]

use std::path::Path;

/// What takes a shard's lock: the engine's, and functions here that call it.
const TAKERS: &[&str] = &[
    "shard.subscribe(",
    "home.subscribe(",
    "shard.open_producer(",
    ".open_producer_while(",
    ".new_attempt(",
    ".publish_round(",
    ".publish_as(",
    ".publish_staged(",
    ".discard_staged(",
    "shard.stage(",
    ".refuse(",
    ".settle(&",
    ".settle(taken",
    ".put_back(&ranges",
    ".set_prefetch(",
    ".unacked_count(",
    ".take_now(",
    ".home_of(queue).read(",
    "home.read(",
    ".read_lease(",
    "subscription.fill(",
    "subscription.pass_on(",
    "subscription.close(",
    "reader.fill(",
    "reader.turn(",
    "reader.store(",
    "self.leave(",
    "consumer.leave(",
    "place.leave(",
    "recipient.sent(",
    "recipient.drop_corrupt(",
    ".settle_part(",
    ".release_empty(",
    "self.tell(recipient",
    "self.tell(&mut",
    "self.drop_corrupt(",
];
const DOORS: &[&str] = &["at", "when_free", "soon", "spawn_blocking", "in_turn"];
/// Functions that are takers themselves, or run on threads that may block.
const INSIDE: &[&str] = &["release_empty", "tell", "drop_corrupt", "leave", "take_here"];
/// The same by file: what is dropped there is kept in a `Later`, what fills there builds record batches.
const INSIDE_OF: &[(&str, &str)] =
    &[("consume.rs", "drop"), ("pull.rs", "drop"), ("live.rs", "fill"), ("streams.rs", "open_read")];

/// The names before the parentheses that are open at the end of a text.
fn open_calls(text: &str) -> Vec<&str> {
    let mut open = Vec::new();
    for (at, sign) in text.char_indices() {
        match sign {
            '(' => open.push(text[..at].rsplit(|sign: char| !sign.is_alphanumeric() && sign != '_').next().unwrap()),
            ')' => drop(open.pop()),
            _ => {}
        }
    }
    open
}

fn takes_the_lock_outside(file: &str, source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap().lines();
    let code: String =
        code.filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for (at, taker) in TAKERS.iter().flat_map(|taker| code.match_indices(taker)) {
        let before = &code[..at];
        let Some((_, function)) = before.rsplit_once("fn ") else { continue };
        let name = function.split(['(', '<']).next().unwrap();
        let is_inside = INSIDE.contains(&name) || INSIDE_OF.contains(&(file, name));
        if !function.contains('{') || is_inside || open_calls(function).iter().any(|call| DOORS.contains(call)) {
            continue;
        }
        found.push(format!("{file}: {name} calls {taker}"));
    }
    found
}

#[test]
fn workers_take_a_shards_lock_by_this_module_only() {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.file_name().unwrap().to_str().unwrap();
            found.extend(takes_the_lock_outside(file, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(found.is_empty(), "use `when_free`, `soon` or a `Later`: {found:#?}");
}
