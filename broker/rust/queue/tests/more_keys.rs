//! Messages with further routing keys: each key counts, and each queue is reached once.
#![allow(clippy::unwrap_used)]

use penstock_queue::{Destination, ExchangeKind, Matched, QueueId, Routable, Routing};

fn table() -> Routing {
    let mut table = Routing::new();
    for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
        table.put_queue(name, QueueId(number));
    }
    table.put_exchange("direct", ExchangeKind::Direct, Some("fanout"));
    table.put_exchange("topic", ExchangeKind::Topic, None);
    table.put_exchange("fanout", ExchangeKind::Fanout, None);
    table.add_route("direct", "red", None, Destination::Queue("a")).unwrap();
    table.add_route("direct", "blue", None, Destination::Queue("b")).unwrap();
    table.add_route("topic", "x.*", None, Destination::Queue("b")).unwrap();
    table.add_route("topic", "#.y", None, Destination::Exchange("direct")).unwrap();
    table.add_route("fanout", "", None, Destination::Queue("c")).unwrap();
    table
}

fn reached(exchange: &str, keys: &[&str]) -> Vec<u64> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let (key, more_keys) = keys.split_first().unwrap();
    let mut matched = Matched::default();
    let message = Routable { key, more_keys, ..Routable::default() };
    table().route_message(exchange.as_bytes(), &message, &mut matched).unwrap();
    matched.queues.iter().map(|queue| queue.0).collect()
}

#[test]
fn every_key_counts_and_a_queue_is_reached_once() {
    assert_eq!(reached("", &["b", "a", "nobody", "b"]), [1, 2]);
    assert_eq!(reached("direct", &["red", "blue", "red"]), [1, 2]);
    assert_eq!(reached("topic", &["x.1", "x.2"]), [2]);
    assert_eq!(reached("fanout", &["x", "y"]), [3]);
}

#[test]
fn further_keys_go_along_from_exchange_to_exchange() {
    assert_eq!(reached("topic", &["y", "red", "x.1"]), [1, 2]);
}

#[test]
fn an_alternate_is_asked_when_no_key_matches() {
    assert_eq!(reached("direct", &["green", "red"]), [1]);
    assert_eq!(reached("direct", &["green", "grey"]), [3]);
}
