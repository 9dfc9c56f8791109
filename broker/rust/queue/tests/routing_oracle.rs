//! The routing tables against a router that reads every binding for every message, and by examples.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};

use penstock_queue::{Destination, ExchangeKind, Matched, NoSuchExchange, QueueId, Routing, RoutingError};
use proptest::prelude::*;

const QUEUES: [&str; 4] = ["q0", "q1", "a", "b.c"];
const EXCHANGES: [&str; 4] = ["e0", "e1", "e2", "e3"];
const KINDS: [ExchangeKind; 5] =
    [ExchangeKind::Direct, ExchangeKind::Fanout, ExchangeKind::Topic, ExchangeKind::Headers, ExchangeKind::Partitions];

/// A value in the tests' own form; `bytes` writes it as AMQP does.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Void,
    Bool(bool),
    Short(i16),
    Long(i64),
    Text(&'static str),
    Bytes(&'static str),
    Float(f32),
    Double(f64),
    List(Vec<Value>),
    Table(Vec<(&'static str, Value)>),
}

impl Value {
    fn bytes(&self) -> Vec<u8> {
        fn long(tag: u8, bytes: &[u8]) -> Vec<u8> {
            [&[tag], &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
        }
        match self {
            Value::Void => b"V".to_vec(),
            Value::Bool(value) => vec![b't', u8::from(*value)],
            Value::Short(value) => [b"s", &value.to_be_bytes()[..]].concat(),
            Value::Long(value) => [b"l", &value.to_be_bytes()[..]].concat(),
            Value::Text(text) => long(b'S', text.as_bytes()),
            Value::Bytes(text) => long(b'x', text.as_bytes()),
            Value::Float(value) => [b"f", &value.to_be_bytes()[..]].concat(),
            Value::Double(value) => [b"d", &value.to_be_bytes()[..]].concat(),
            Value::List(values) => long(b'A', &values.iter().flat_map(Value::bytes).collect::<Vec<_>>()),
            Value::Table(entries) => long(b'F', &table(entries)),
        }
    }

    /// Whether two are the same argument: widths of numbers do not matter, everything else does.
    fn is_same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Short(short), Value::Long(long)) | (Value::Long(long), Value::Short(short)) => {
                i64::from(*short) == *long
            }
            (Value::Float(float), Value::Double(double)) | (Value::Double(double), Value::Float(float)) => {
                f64::from(*float) == *double
            }
            (Value::List(one), Value::List(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same(other))
            }
            (Value::Table(one), Value::Table(other)) => {
                let (one, other): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    (one.iter().cloned().collect(), other.iter().cloned().collect());
                one.len() == other.len()
                    && one.iter().zip(&other).all(|(one, other)| one.0 == other.0 && one.1.is_same(other.1))
            }
            _ => self == other,
        }
    }
}

type Table = Vec<(&'static str, Value)>;

fn table(entries: &[(&'static str, Value)]) -> Vec<u8> {
    let entry = |(name, value): &(&'static str, Value)| {
        [&[u8::try_from(name.len()).unwrap()], name.as_bytes(), &value.bytes()].concat()
    };
    entries.iter().flat_map(entry).collect()
}

/// The whole topology, as lists.
#[derive(Clone, Debug, Default)]
struct Naive {
    queues: BTreeMap<&'static str, u64>,
    exchanges: BTreeMap<&'static str, (ExchangeKind, Option<&'static str>)>,
    routes: Vec<Route>,
}

#[derive(Clone, Debug, PartialEq)]
struct Route {
    source: &'static str,
    key: String,
    arguments: Table,
    to: Destination<'static>,
}

impl Naive {
    fn route(&self, exchange: &str, key: &str, headers: &Table) -> Option<BTreeSet<u64>> {
        if !exchange.is_empty() && !self.exchanges.contains_key(exchange) {
            return None;
        }
        let mut reached = BTreeSet::new();
        self.visit(exchange, key, headers, &mut BTreeSet::new(), &mut reached);
        Some(reached)
    }

    fn visit(
        &self,
        exchange: &str,
        key: &str,
        headers: &Table,
        visited: &mut BTreeSet<String>,
        reached: &mut BTreeSet<u64>,
    ) {
        if !visited.insert(exchange.to_owned()) {
            return;
        }
        if exchange.is_empty() {
            reached.extend(self.queues.get(key));
            return;
        }
        let Some(&(kind, alternate)) = self.exchanges.get(exchange) else { return };
        let own: Vec<&Route> = self.routes.iter().filter(|route| route.source == exchange).collect();
        let picked = partition_of(&own, key);
        let matching: Vec<_> = own
            .into_iter()
            .filter(|route| match kind {
                ExchangeKind::Partitions => Some(&route.key) == picked.as_ref(),
                _ => is_match(kind, &route.key, &route.arguments, key, headers),
            })
            .collect();
        for route in &matching {
            match route.to {
                Destination::Queue(name) => reached.extend(self.queues.get(name)),
                Destination::Exchange(name) => self.visit(name, key, headers, visited, reached),
            }
        }
        if let Some(alternate) = alternate.filter(|_| matching.is_empty()) {
            self.visit(alternate, key, headers, visited, reached);
        }
    }
}

fn is_match(kind: ExchangeKind, pattern: &str, arguments: &Table, key: &str, headers: &Table) -> bool {
    let words = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<_>>();
    match kind {
        ExchangeKind::Direct => pattern == key,
        ExchangeKind::Fanout => true,
        ExchangeKind::Topic => is_topic_match(&words(pattern), &words(key)),
        ExchangeKind::Headers => is_headers_match(arguments, headers),
        ExchangeKind::Partitions | ExchangeKind::Choice(_) => false,
    }
}

/// The binding key of the partition that a key belongs to.
fn partition_of(routes: &[&Route], key: &str) -> Option<String> {
    let mut keys: Vec<&String> = routes.iter().map(|route| &route.key).collect();
    keys.sort_by_key(|key| (key.parse().unwrap_or(u64::MAX), (*key).clone()));
    keys.dedup();
    let at = murmur3(key.as_bytes()) as usize;
    keys.get(at.checked_rem(keys.len())?).map(|key| (*key).clone())
}

/// The author's reference, byte by byte.
fn murmur3(bytes: &[u8]) -> u32 {
    let scramble = |word: u32| word.wrapping_mul(0xcc9e2d51).rotate_left(15).wrapping_mul(0x1b873593);
    let mut hash = 0u32;
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        hash ^= scramble(u32::from_le_bytes(word));
        if chunk.len() == 4 {
            hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe6546b64);
        }
    }
    hash ^= bytes.len() as u32;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85ebca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2ae35);
    hash ^ (hash >> 16)
}

fn is_topic_match(pattern: &[String], words: &[String]) -> bool {
    let Some((part, pattern_rest)) = pattern.split_first() else { return words.is_empty() };
    if part == "#" {
        return (0..=words.len()).any(|skipped| is_topic_match(pattern_rest, &words[skipped..]));
    }
    words.split_first().is_some_and(|(word, rest)| (part == "*" || part == word) && is_topic_match(pattern_rest, rest))
}

fn is_headers_match(arguments: &Table, headers: &Table) -> bool {
    let how = arguments.iter().find_map(|(name, value)| match value {
        Value::Text(how) if *name == "x-match" => Some(*how),
        _ => None,
    });
    let how = how.unwrap_or("all");
    let headers: BTreeMap<_, _> = headers.iter().cloned().collect();
    let mut met = arguments
        .iter()
        .filter(|(name, _)| *name != "x-match" && (how.ends_with("-with-x") || !name.starts_with("x-")))
        .map(|(name, wanted)| headers.get(name).is_some_and(|found| *wanted == Value::Void || wanted.is_same(found)));
    if how.starts_with("any") { met.any(|is_met| is_met) } else { met.all(|is_met| is_met) }
}

#[derive(Clone, Debug)]
enum Step {
    PutExchange(usize, usize, Option<usize>),
    RemoveExchange(usize),
    RemoveQueue(usize),
    Bind(Route),
    /// Removes an existing route, or this one, which may be missing.
    Unbind(usize, Route),
    Publish(String, String, Table),
    /// Keeps a copy, in which all later messages are routed, too.
    Copy,
}

fn keys() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec!["a", "b", "c", "", "*", "#", "q0", "1", "10"]);
    prop::collection::vec(word, 1..5).prop_map(|words| words.join("."))
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Void),
        any::<bool>().prop_map(Value::Bool),
        (0i16..3).prop_map(Value::Short),
        (0i64..3).prop_map(Value::Long),
        prop::sample::select(vec!["a", "b"]).prop_map(Value::Text),
        prop::sample::select(vec!["a", "b"]).prop_map(Value::Bytes),
        prop::sample::select(vec![0.5f32, 1.0]).prop_map(Value::Float),
        prop::sample::select(vec![0.5f64, 1.0]).prop_map(Value::Double),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            tables(inner).prop_map(Value::Table),
        ]
    })
}

/// Names come once; their order is any.
fn tables(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Table> {
    let names = Just(vec!["k", "l", "x-k"]).prop_shuffle();
    (names, prop::collection::vec(value, 0..3)).prop_map(|(names, values)| names.into_iter().zip(values).collect())
}

fn routes() -> impl Strategy<Value = Route> {
    let how = prop::option::of(prop::sample::select(vec!["all", "any", "all-with-x", "any-with-x"]));
    let to = prop_oneof![
        3 => prop::sample::select(QUEUES.to_vec()).prop_map(Destination::Queue),
        1 => prop::sample::select(EXCHANGES.to_vec()).prop_map(Destination::Exchange),
    ];
    let source = prop::sample::select(EXCHANGES.to_vec());
    (source, keys(), how, tables(values()), to).prop_map(|(source, key, how, mut arguments, to)| {
        arguments.extend(how.map(|how| ("x-match", Value::Text(how))));
        Route { source, key, arguments, to }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let exchange = || 0..EXCHANGES.len();
    let published = prop::sample::select([&EXCHANGES[..], &[""]].concat());
    let step = prop_oneof![
        3 => (exchange(), 0..KINDS.len(), prop::option::of(0..EXCHANGES.len() + 1))
            .prop_map(|(name, kind, alternate)| Step::PutExchange(name, kind, alternate)),
        1 => exchange().prop_map(Step::RemoveExchange),
        1 => (0..QUEUES.len()).prop_map(Step::RemoveQueue),
        12 => routes().prop_map(Step::Bind),
        3 => (any::<usize>(), routes()).prop_map(|(place, route)| Step::Unbind(place, route)),
        12 => (published, keys(), tables(values()))
            .prop_map(|(exchange, key, headers)| Step::Publish(exchange.to_owned(), key, headers)),
        1 => Just(Step::Copy),
    ];
    prop::collection::vec(step, 1..80)
}

struct Pair {
    routing: Routing,
    naive: Naive,
    copies: Vec<(Routing, Naive)>,
    matched: Matched,
    last_queue: u64,
}

impl Pair {
    fn new() -> Self {
        let (routing, naive) = (Routing::new(), Naive::default());
        let mut pair = Pair { routing, naive, copies: Vec::new(), matched: Matched::default(), last_queue: 0 };
        QUEUES.iter().for_each(|name| pair.put_queue(name));
        EXCHANGES.iter().zip(KINDS).for_each(|(name, kind)| pair.put_exchange(name, kind, None));
        pair
    }

    fn put_queue(&mut self, name: &'static str) {
        self.last_queue += 1;
        self.routing.put_queue(name, QueueId(self.last_queue));
        self.naive.queues.insert(name, self.last_queue);
    }

    fn put_exchange(&mut self, name: &'static str, kind: ExchangeKind, alternate: Option<&'static str>) {
        if self.naive.exchanges.get(name).is_some_and(|&(old, _)| old != kind) {
            self.remove_routes(|route| route.source == name || route.to == Destination::Exchange(name));
        }
        self.routing.put_exchange(name, kind, alternate);
        self.naive.exchanges.insert(name, (kind, alternate));
    }

    fn remove_routes(&mut self, is_gone: impl Fn(&Route) -> bool) {
        for route in self.naive.routes.extract_if(.., |route| is_gone(route)) {
            self.routing.remove_route(route.source, &route.key, Some(&table(&route.arguments)), route.to).unwrap();
        }
    }

    fn bind(&mut self, route: Route) {
        let added = self.routing.add_route(route.source, &route.key, Some(&table(&route.arguments)), route.to);
        let is_there = |name| self.naive.exchanges.contains_key(name);
        let missing = [Some(route.source), as_exchange(route.to)].into_iter().flatten().any(|name| !is_there(name));
        assert_eq!(added.is_err(), missing);
        let route = self.identity(route);
        if !missing && !self.naive.routes.contains(&route) {
            self.naive.routes.push(route);
        }
    }

    /// The identity of a route: its arguments only count in a headers exchange.
    fn identity(&self, route: Route) -> Route {
        match self.naive.exchanges.get(route.source) {
            Some((ExchangeKind::Headers, _)) => route,
            _ => Route { arguments: Vec::new(), ..route },
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::PutExchange(name, kind, alternate) => {
                let alternate = alternate.map(|place| EXCHANGES.get(place).copied().unwrap_or(""));
                self.put_exchange(EXCHANGES[name], KINDS[kind], alternate);
            }
            Step::RemoveExchange(name) => {
                let name = EXCHANGES[name];
                self.remove_routes(|route| route.source == name || route.to == Destination::Exchange(name));
                self.routing.remove_exchange(name);
                self.naive.exchanges.remove(name);
            }
            Step::RemoveQueue(name) => {
                let name = QUEUES[name];
                self.remove_routes(|route| route.to == Destination::Queue(name));
                self.routing.remove_queue(name);
                self.put_queue(name);
            }
            Step::Bind(route) => self.bind(route),
            Step::Unbind(place, route) => {
                let there =
                    place.checked_rem(self.naive.routes.len() * 2).and_then(|place| self.naive.routes.get(place));
                let route = there.cloned().unwrap_or(route);
                self.routing.remove_route(route.source, &route.key, Some(&table(&route.arguments)), route.to).unwrap();
                let gone = self.identity(route);
                self.naive.routes.retain(|other| *other != gone);
            }
            Step::Publish(exchange, key, headers) => self.publish(&exchange, &key, &headers),
            Step::Copy => self.copies.push((self.routing.clone(), self.naive.clone())),
        }
    }

    fn publish(&mut self, exchange: &str, key: &str, headers: &Table) {
        let bytes = table(headers);
        let copies = self.copies.iter().map(|(routing, naive)| (routing, naive));
        for (routing, naive) in copies.chain([(&self.routing, &self.naive)]) {
            let routed = routing.route(exchange.as_bytes(), key.as_bytes(), Some(&bytes), &mut self.matched);
            let reached = routed.map(|()| self.matched.queues.clone());
            let expected = naive.route(exchange, key, headers).ok_or(NoSuchExchange);
            assert_eq!(reached, expected.map(|ids| ids.into_iter().map(QueueId).collect()), "{exchange} {key}");
        }
    }
}

fn as_exchange(destination: Destination<'static>) -> Option<&'static str> {
    match destination {
        Destination::Exchange(name) => Some(name),
        Destination::Queue(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn messages_reach_the_queues_that_reading_every_binding_finds(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
    }

    #[test]
    fn a_topic_pattern_matches_as_word_by_word_recursion_does(
        patterns in prop::collection::vec(keys(), 1..8), key in keys(),
    ) {
        let mut routing = Routing::new();
        routing.put_exchange("t", ExchangeKind::Topic, None);
        for (id, pattern) in (0..).zip(&patterns) {
            routing.put_queue(&id.to_string(), QueueId(id));
            routing.add_route("t", pattern, None, Destination::Queue(&id.to_string())).unwrap();
        }

        let mut matched = Matched::default();
        routing.route(b"t", key.as_bytes(), None, &mut matched).unwrap();

        let fits = |pattern: &str| is_match(ExchangeKind::Topic, pattern, &Vec::new(), &key, &Vec::new());
        let expected: Vec<_> = (0..).zip(&patterns).filter(|(_, pattern)| fits(pattern)).map(|(id, _)| QueueId(id)).collect();
        prop_assert_eq!(matched.queues, expected);
    }

    #[test]
    fn any_bytes_as_arguments_or_headers_are_read_or_refused(matching: Vec<u8>, headers: Vec<u8>) {
        let mut routing = Routing::new();
        routing.put_exchange("h", ExchangeKind::Headers, None);
        routing.put_queue("q", QueueId(1));
        let mut wanted = table(&[("k", Value::Long(1))]);
        routing.add_route("h", "", Some(&wanted), Destination::Queue("q")).unwrap();
        wanted.extend(matching);
        let _refused = routing.add_route("h", "", Some(&wanted), Destination::Queue("q"));

        prop_assert_eq!(routing.route(b"h", b"", Some(&headers), &mut Matched::default()), Ok(()));
    }
}

/// A routing with these queues, and the exchanges by kind.
fn routing_with(exchanges: &[(&str, ExchangeKind, Option<&str>)], queues: u64) -> Routing {
    let mut routing = Routing::new();
    for &(name, kind, alternate) in exchanges {
        routing.put_exchange(name, kind, alternate);
    }
    for id in 0..queues {
        routing.put_queue(&format!("q{id}"), QueueId(id));
    }
    routing
}

fn reached(routing: &Routing, exchange: &str, key: &str) -> Vec<u64> {
    let mut matched = Matched::default();
    routing.route(exchange.as_bytes(), key.as_bytes(), None, &mut matched).unwrap();
    matched.queues.iter().map(|id| id.0).collect()
}

#[test]
fn the_default_exchange_leads_to_the_queue_that_the_key_names() {
    let mut routing = routing_with(&[], 2);

    assert_eq!(reached(&routing, "", "q1"), [1]);
    assert_eq!(reached(&routing, "", "elsewhere"), []);
    assert_eq!(routing.add_route("", "k", None, Destination::Queue("q0")), Err(RoutingError::DefaultExchange));
}

#[test]
fn a_route_that_was_added_twice_is_gone_when_removed_once() {
    let mut routing = routing_with(&[("d", ExchangeKind::Direct, None)], 1);
    routing.add_route("d", "k", None, Destination::Queue("q0")).unwrap();
    routing.add_route("d", "k", None, Destination::Queue("q0")).unwrap();

    routing.remove_route("d", "k", None, Destination::Queue("q0")).unwrap();

    assert_eq!(reached(&routing, "d", "k"), []);
}

#[test]
fn a_fanout_route_stays_until_the_last_of_its_keys_is_unbound() {
    let mut routing = routing_with(&[("f", ExchangeKind::Fanout, None)], 1);
    routing.add_route("f", "one", None, Destination::Queue("q0")).unwrap();
    routing.add_route("f", "two", None, Destination::Queue("q0")).unwrap();

    routing.remove_route("f", "one", None, Destination::Queue("q0")).unwrap();
    assert_eq!(reached(&routing, "f", ""), [0]);

    routing.remove_route("f", "two", None, Destination::Queue("q0")).unwrap();
    assert_eq!(reached(&routing, "f", ""), []);
}

#[test]
fn alternates_that_lead_in_a_circle_end() {
    let routing = routing_with(&[("a", ExchangeKind::Direct, Some("b")), ("b", ExchangeKind::Direct, Some("a"))], 0);

    assert_eq!(reached(&routing, "a", "k"), []);
}

#[test]
fn an_exchange_that_matched_another_exchange_does_not_ask_its_alternate() {
    let exchanges =
        [("a", ExchangeKind::Fanout, Some("f")), ("b", ExchangeKind::Direct, None), ("f", ExchangeKind::Fanout, None)];
    let mut routing = routing_with(&exchanges, 1);
    routing.add_route("a", "", None, Destination::Exchange("b")).unwrap();
    routing.add_route("f", "", None, Destination::Queue("q0")).unwrap();

    assert_eq!(reached(&routing, "a", "k"), []);
}

#[test]
fn a_chain_of_ten_thousand_exchanges_is_followed_to_its_end() {
    let mut routing = routing_with(&[("e0", ExchangeKind::Fanout, None)], 1);
    for number in 1..10_000 {
        routing.put_exchange(&format!("e{number}"), ExchangeKind::Fanout, None);
        let to = format!("e{number}");
        routing.add_route(&format!("e{}", number - 1), "", None, Destination::Exchange(&to)).unwrap();
    }
    routing.add_route("e9999", "", None, Destination::Queue("q0")).unwrap();

    assert_eq!(reached(&routing, "e0", ""), [0]);
}

#[test]
fn a_pattern_of_many_hashes_takes_no_longer_than_words_times_nodes() {
    let mut routing = routing_with(&[("t", ExchangeKind::Topic, None)], 1);
    let pattern = "#.a.".repeat(60) + "#.b";
    routing.add_route("t", &pattern, None, Destination::Queue("q0")).unwrap();

    // Backtracking would take practically for ever.
    assert_eq!(reached(&routing, "t", &vec!["a"; 120].join(".")), []);
    assert_eq!(reached(&routing, "t", &(vec!["a"; 120].join(".") + ".b")), [0]);
}

#[test]
fn only_a_removed_queue_counts_as_a_removal() {
    let mut routing = routing_with(&[("e", ExchangeKind::Direct, None)], 2);
    routing.add_route("e", "k", None, Destination::Queue("q0")).unwrap();
    routing.remove_route("e", "k", None, Destination::Queue("q0")).unwrap();
    routing.remove_exchange("e");
    assert_eq!(routing.removals(), 0);

    routing.remove_queue("q0");

    assert_eq!(routing.removals(), 1);
}

#[test]
fn an_unknown_match_rule_is_refused_by_its_name() {
    let mut routing = routing_with(&[("h", ExchangeKind::Headers, None)], 1);
    let matching = table(&[("x-match", Value::Text("some"))]);

    let refused = routing.add_route("h", "", Some(&matching), Destination::Queue("q0"));

    assert_eq!(refused, Err(RoutingError::UnknownMatch("some".to_owned())));
}

#[test]
fn a_queue_that_every_route_leads_to_is_reached_once() {
    let mut routing = routing_with(&[("t", ExchangeKind::Topic, None)], 2);
    for (pattern, queue) in [("#", "q1"), ("a.#", "q0"), ("*", "q1"), ("a", "q0")] {
        routing.add_route("t", pattern, None, Destination::Queue(queue)).unwrap();
    }

    assert_eq!(reached(&routing, "t", "a"), [0, 1]);
}
