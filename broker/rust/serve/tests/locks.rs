//! Looks in the sources of this crate for places where a worker would wait for a shard's lock, with its thread.
//!
//! It goes by names: those of the engine's functions that take the lock are in `TAKERS`, or in `NOT_HERE`.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What takes a shard's lock: the engine's, and functions here that call it.
const TAKERS: &[&str] = &[
    "shard.subscribe(",
    "home.subscribe(",
    ".subscribe_with(",
    ".subscribe_as(",
    "subscription.retire(",
    "subscription.held_in(",
    "shard.is_stream(",
    "shard.peek(",
    "shard.commit(",
    ".open_producer(",
    ".open_producer_while(",
    ".new_attempt(",
    ".sequence_in_family(",
    ".begin_batch(",
    ".reaches_queue(",
    ".publish_round(",
    ".publish_as(",
    ".publish_with_sequences(",
    ".publish_staged(",
    ".end_producers(",
    ".discard_staged(",
    "shard.stage(",
    ".refuse(",
    "subscription.settle(&",
    ".settle(taken",
    ".put_back(&ranges",
    "subscription.set_prefetch(",
    "subscription.pause()",
    "subscription.resume()",
    "subscription.retire()",
    "consumer.retire(",
    "subscription.unacked_count(",
    ".take_now(",
    ".home_of(queue).read(",
    "home.read(",
    ".read_with(",
    ".read_lease(",
    ".stream_outlook(",
    ".watch_stream(",
    "subscription.fill(",
    "subscription.pass_on(",
    "subscription.close(",
    "reader.fill(",
    "reader.first(",
    "reader.turn(",
    "reader.store(",
    "self.leave(",
    "consumer.leave(",
    "place.leave(",
    "recipient.sent(",
    "recipient.drop_corrupt(",
    "recipient.expire(",
    "recipient.put_aside(",
    "subscription.expire(",
    "subscription.put_aside(",
    ".settle_part(",
    ".release_empty(",
    "self.tell(recipient",
    "self.tell(&mut",
    "self.drop_corrupt(",
    "self.drop_unsent(",
];
/// Other methods of the engine that take it or wait for the disk, on threads of Python or of the engine.
const NOT_HERE: &[&str] = &[
    "ack_leases",
    "add_route",
    "add_routes",
    "all",
    "at_once",
    "begin_backup",
    "carry_on_staged",
    "carry_on_staged_apart",
    "committed",
    "complete",
    "corruptions",
    "count_failures",
    "count_shards",
    "dedicate",
    "dedicated_count",
    "deduplicate_exchange",
    "deduplicate_queues",
    "deduplicated_at_exchange",
    "delete_exchange",
    "delete_group",
    "delete_producer",
    "delete_producers_of",
    "delete_queue",
    "delivered",
    "disk",
    "end",
    "end_session",
    "end_term",
    "expire_due",
    "expire_queues",
    "forget_producers",
    "grow",
    "hold_back",
    "home",
    "is_unused",
    "lay_out_queues",
    "lead_further",
    "leases",
    "limit_ages",
    "limit_deliveries",
    "limit_lengths",
    "log",
    "log_stats",
    "look",
    "note_complete",
    "offset_at",
    "only_home",
    "open",
    "open_incomplete",
    "open_noted",
    "open_shard",
    "place_queues",
    "prioritize_queues",
    "producer_owner",
    "producer_sequence",
    "producers",
    "producers_of_family",
    "publish",
    "purge_queue",
    "put_keeping_exchange",
    "put_queue",
    "put_queues",
    "queue_counts",
    "reaches_history_alone",
    "release_leases",
    "remove_route",
    "reopen_queue",
    "reserve_lease",
    "retain",
    "retain_queues",
    "retain_with_lanes",
    "round",
    "route",
    "route_dead_letters",
    "rule_consumers",
    "schedule_retries",
    "sequences_in_family",
    "set_delivers",
    "shard_count",
    "shut_empty_queue",
    "shut_queue",
    "stage_states",
    "store_offset",
    "stream_extents",
    "stream_groups",
    "stream_states",
    "sync_to",
    "take_log",
    "take_turns",
    "totals",
    "totals_seen",
    "trim",
    "use_queue",
    "with_log",
];
const DOORS: &[&str] = &["at", "when_free", "when_free_of", "soon", "spawn_blocking", "in_turn", "looking"];
/// Functions that are takers themselves, or run on threads that may block.
const INSIDE: &[&str] = &["release_empty", "tell", "drop_corrupt", "drop_unsent", "leave", "retire", "take_here"];
/// The same by file: what is dropped there is kept in a `Later`, what fills there builds record batches.
const INSIDE_OF: &[(&str, &str)] =
    &[("consuming.rs", "drop"), ("pull.rs", "drop"), ("live.rs", "fill"), ("streams.rs", "open_read")];

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

/// Source files with their names, without their tests and comments.
fn sources(folder: PathBuf) -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap().lines();
            let code = code.filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n"));
            found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), code.collect()));
        }
    }
    found
}

fn takes_the_lock_outside(file: &str, code: &str) -> Vec<String> {
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
    let on_a_shard = |name: &str| ["shard", "home", "shard()", ")?"].map(|of| format!("{of}.{name}("));
    let elsewhere = NOT_HERE.iter().flat_map(|name| on_a_shard(name)).filter(|call| code.contains(call.as_str()));
    found.extend(elsewhere.map(|call| format!("{file} calls {call}")));
    found
}

/// The engine's methods, each with its text, and whether some of them are public.
fn methods_of_the_engine() -> BTreeMap<String, (bool, String)> {
    let mut methods: BTreeMap<String, (bool, String)> = BTreeMap::new();
    for (_, code) in sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src")) {
        let mut rest = code.as_str();
        while let Some(at) = rest.find("    fn ").into_iter().chain(rest.find("    pub")).min() {
            let text = &rest[at..];
            let end = text.find("\n    }\n").unwrap_or(text.len());
            let next = text.find('\n').unwrap_or(text.len());
            let (line, body) = (&text[..next], &text[..end]);
            let name = line.split_once("fn ").map(|(_, rest)| rest.split(['(', '<']).next().unwrap());
            if let Some(name) = name {
                let method = methods.entry(name.to_owned()).or_default();
                method.0 |= line.starts_with("    pub fn") || line.starts_with("    pub async fn");
                method.1.push_str(body);
            }
            rest = &text[next..];
        }
    }
    methods
}

/// The names of the engine's public methods that take a shard's lock, by themselves or by others of these.
fn takers_of_the_engine() -> BTreeSet<String> {
    const RECEIVERS: [&str; 6] = ["self", "shard", "home", "own", "one", "vhost"];
    let methods = methods_of_the_engine();
    let mut takers = BTreeSet::from(["lock".to_owned(), "glance".to_owned()]);
    loop {
        let calls: Vec<String> =
            takers.iter().flat_map(|name| RECEIVERS.map(|receiver| format!("{receiver}.{name}("))).collect();
        let count = takers.len();
        let found = methods.iter().filter(|(_, (_, text))| calls.iter().any(|call| text.contains(call.as_str())));
        takers.extend(found.map(|(name, _)| name.clone()));
        if takers.len() == count {
            break;
        }
    }
    takers.into_iter().filter(|name| methods.get(name).is_some_and(|(is_public, _)| *is_public)).collect()
}

#[test]
fn every_way_of_the_engine_to_take_the_lock_is_looked_for() {
    let is_known = |name: &str| {
        let call = format!(".{name}(");
        NOT_HERE.contains(&name) || TAKERS.iter().any(|taker| taker.contains(&call))
    };
    let takers = takers_of_the_engine();
    assert!(takers.contains("open_producer_while") && takers.contains("publish_as"), "{takers:?}");

    let unknown: Vec<_> = takers.iter().filter(|name| !is_known(name)).collect();

    assert!(unknown.is_empty(), "add them to `TAKERS` or to `NOT_HERE`: {unknown:?}");
}

#[test]
fn workers_take_a_shards_lock_by_this_module_only() {
    let sources = sources(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found: Vec<_> = sources.iter().flat_map(|(file, code)| takes_the_lock_outside(file, code)).collect();
    assert!(found.is_empty(), "use `when_free`, `soon` or a `Later`: {found:#?}");
}
