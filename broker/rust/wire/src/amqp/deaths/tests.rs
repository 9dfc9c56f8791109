//! Against a plain model of RabbitMQ's rules, on lists of deaths instead of bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::unreachable)]

use proptest::prelude::*;

use super::*;

const TIME_MS: u64 = 7_000;

fn death<'a>(queue: &'a str, reason: Reason) -> Death<'a> {
    Death { queue: queue.as_bytes(), reason, exchange: b"first", routing_key: b"k", at_ms: TIME_MS, has_new_key: false }
}

fn header<'a>(properties: &'a [u8], wanted: &str) -> Option<ValueRef<'a>> {
    let mut entries = table::entries(headers_of(properties).unwrap()?).map(Result::unwrap);
    entries.find_map(|(name, value)| (name == wanted.as_bytes()).then_some(value))
}

/// Queue, reason and count of each death.
fn deaths(properties: &[u8]) -> Vec<(String, String, i64)> {
    let headers = headers_of(properties).unwrap().unwrap_or_default();
    let text = |entry: &Entry<'_>, name| String::from_utf8(entry.text(name).unwrap().to_vec()).unwrap();
    entries_of(headers).map(|entry| (text(&entry, "queue"), text(&entry, "reason"), entry.count())).collect()
}

/// Content type, headers with `CC` and `BCC`, delivery mode, expiration, message id.
fn full() -> Vec<u8> {
    let mut block =
        (block::CONTENT_TYPE | block::HEADERS | block::DELIVERY_MODE | block::EXPIRATION | block::MESSAGE_ID)
            .to_be_bytes()
            .to_vec();
    put_name(&mut block, b"text/plain");
    let start = begin_long(&mut block);
    for (name, key) in [("CC", "other"), ("BCC", "hidden")] {
        put_name(&mut block, name.as_bytes());
        block.push(b'A');
        let keys = begin_long(&mut block);
        put_long_bytes(&mut block, b'S', key.as_bytes());
        end_long(&mut block, keys);
    }
    put_name(&mut block, b"own");
    put_tagged(&mut block, b'B', &[9]);
    end_long(&mut block, start);
    block.push(2);
    put_name(&mut block, b"1000");
    put_name(&mut block, b"id-1");
    block
}

#[test]
fn a_first_death_is_noted_and_the_rest_stays() {
    let letter = of_dead_letter(&full(), &death("jobs", Reason::Expired)).unwrap();

    assert_eq!(deaths(&letter), [("jobs".into(), "expired".into(), 1)]);
    for (name, value) in [("reason", "expired"), ("queue", "jobs"), ("exchange", "first")] {
        for when in ["first", "last"] {
            let found = header(&letter, &format!("x-{when}-death-{name}"));
            assert_eq!(found, Some(ValueRef::Text(value.as_bytes())));
        }
    }
    assert_eq!(header(&letter, "own"), Some(ValueRef::U8(9)));
    assert!(header(&letter, "CC").is_some() && header(&letter, "BCC").is_none());
    let fields: Vec<_> = block::fields(&letter).unwrap().map(Result::unwrap).map(|(flag, _)| flag).collect();
    assert_eq!(fields, [block::CONTENT_TYPE, block::HEADERS, block::DELIVERY_MODE, block::MESSAGE_ID]);
    let entry = entries_of(headers_of(&letter).unwrap().unwrap()).next().unwrap();
    assert_eq!(entry.value("time"), Some(ValueRef::Timestamp(7)));
    assert_eq!(entry.text("exchange"), Some(&b"first"[..]));
    assert_eq!(entry.text("original-expiration"), Some(&b"1000"[..]));
    let Some(ValueRef::Array(keys)) = entry.value("routing-keys") else { unreachable!() };
    let keys: Vec<_> = keys.values().map(Result::unwrap).collect();
    assert_eq!(keys, [ValueRef::Text(b"k"), ValueRef::Text(b"other")], "hidden keys stay hidden");
}

#[test]
fn a_new_key_replaces_those_in_the_headers() {
    assert_eq!(further_keys(&full()), [&b"other"[..], b"hidden"]);

    let letter = of_dead_letter(&full(), &Death { has_new_key: true, ..death("jobs", Reason::Rejected) }).unwrap();

    assert!(header(&letter, "CC").is_none());
    assert!(further_keys(&letter).is_empty());
}

#[test]
fn a_message_without_properties_stays_persistent() {
    let letter = of_dead_letter(&[], &death("jobs", Reason::Rejected)).unwrap();

    assert_eq!(super::super::properties::delivery_mode_of(&letter), Ok(2));
}

#[test]
fn a_delivery_count_is_added_once_and_the_rest_stays() {
    let once = with_delivery_count(&full(), 1).unwrap();
    let twice = with_delivery_count(&once, 2).unwrap();

    assert_eq!(header(&twice, "x-delivery-count"), Some(ValueRef::I64(2)));
    assert_eq!(twice.len(), once.len());
    let names = |block: &[u8]| -> Vec<Vec<u8>> {
        table::entries(headers_of(block).unwrap().unwrap()).map(|entry| entry.unwrap().0.to_vec()).collect()
    };
    assert_eq!(names(&twice)[..3], names(&full())[..]);
    assert_eq!(super::super::properties::expiration_of(&twice), Ok(Some(&b"1000"[..])));
}

#[test]
fn an_x_death_of_another_type_is_replaced() {
    let mut block = block::HEADERS.to_be_bytes().to_vec();
    let start = begin_long(&mut block);
    put_name(&mut block, X_DEATH);
    put_long_bytes(&mut block, b'S', b"no list");
    end_long(&mut block, start);

    let letter = of_dead_letter(&block, &death("jobs", Reason::Rejected)).unwrap();

    assert_eq!(deaths(&letter), [("jobs".into(), "rejected".into(), 1)]);
}

#[test]
fn the_oldest_deaths_go_where_properties_would_be_too_long() {
    let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let mut letter = with_keys(200);
    for name in &names {
        letter = of_dead_letter(&letter, &death(name, Reason::Expired)).unwrap();
    }

    let found = deaths(&letter);
    assert!(letter.len() <= PROPERTIES_BYTES_MAX && (5..40).contains(&found.len()));
    assert_eq!(found[0].0, names[39]);
}

/// Properties with so many further keys of 250 bytes.
fn with_keys(count: usize) -> Vec<u8> {
    let mut block = block::HEADERS.to_be_bytes().to_vec();
    let start = begin_long(&mut block);
    put_name(&mut block, CC);
    block.push(b'A');
    let keys = begin_long(&mut block);
    (0..count).for_each(|_| put_long_bytes(&mut block, b'S', &[b'k'; 250]));
    end_long(&mut block, keys);
    end_long(&mut block, start);
    block
}

#[test]
fn keys_are_left_out_of_the_history_where_they_do_not_fit() {
    let letter = of_dead_letter(&with_keys(3000), &death("jobs", Reason::Expired)).unwrap();
    assert!(letter.len() <= PROPERTIES_BYTES_MAX);
    assert_eq!(deaths(&letter), [("jobs".into(), "expired".into(), 1)]);

    let error = of_dead_letter(&with_keys(4127), &death("jobs", Reason::Expired));
    assert!(matches!(error, Err(WireError::TooLong { .. })), "there is no space for more");
}

fn reasons() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec![Reason::Rejected, Reason::Expired, Reason::MaxLength, Reason::DeliveryLimit])
}

proptest! {
    #[test]
    fn deaths_are_listed_as_the_rules_say(steps in prop::collection::vec(("[abc]", reasons()), 0..20)) {
        let mut letter = full();
        let mut expected: Vec<(String, String, i64)> = Vec::new();
        for (queue, reason) in &steps {
            letter = of_dead_letter(&letter, &death(queue, *reason)).unwrap();
            let is_it = |one: &(String, String, i64)| one.0 == *queue && one.1 == reason.name();
            let at = expected.iter().position(is_it);
            let count = at.map_or(0, |at| expected.remove(at).2) + 1;
            expected.insert(0, (queue.clone(), reason.name().into(), count));
        }
        prop_assert_eq!(deaths(&letter), expected.clone());
        prop_assert!(table::check(headers_of(&letter).unwrap().unwrap()).is_ok());
        if let Some((queue, reason)) = steps.first() {
            prop_assert_eq!(header(&letter, "x-first-death-queue"), Some(ValueRef::Text(queue.as_bytes())));
            prop_assert_eq!(header(&letter, "x-first-death-reason"), Some(ValueRef::Text(reason.name().as_bytes())));
        }
        // RabbitMQ's own words: up to the last death in that queue, none was by a rejection.
        for queue in ["a", "b", "c"] {
            let at = expected.iter().position(|one| one.0 == queue);
            let is_cycle = at.is_some_and(|at| expected[..=at].iter().all(|one| one.1 != "rejected"));
            prop_assert_eq!(left_without_rejection(&letter).contains(&queue.as_bytes()), is_cycle);
        }
    }

    #[test]
    fn any_bytes_are_rewritten_or_refused(block: Vec<u8>) {
        if let Ok(letter) = of_dead_letter(&block, &death("jobs", Reason::Rejected)) {
            prop_assert!(!deaths(&letter).is_empty());
        }
        let _never_panics = (further_keys(&block), left_without_rejection(&block));
    }
}
