//! Tests of the table of names by itself.
#![allow(clippy::unwrap_used)]

use super::*;

const DAY: u64 = 86_400_000;
const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn named(name: &str, used_at_ms: u64) -> Producers {
    let mut producers = Producers::default();
    producers.ids.insert(name.to_owned(), NonZeroU64::MIN);
    let standing = Standing { used_at_ms, noted_at_ms: used_at_ms, ..Standing::default() };
    producers.standing.insert(NonZeroU64::MIN, standing);
    producers
}

fn forgotten(producers: &mut Producers, now_ms: u64) -> bool {
    !producers.look(now_ms, WEEK, 10).forgotten.is_empty()
}

#[test]
fn a_name_is_forgotten_after_its_time_and_never_before() {
    let mut producers = named("p", 10 * DAY);

    // A week, and the possible delay of the record: an eighth of the week, at most a day.
    let last = 10 * DAY + 7 * DAY + 7 * DAY / 8;
    assert!(!forgotten(&mut producers, last));
    assert!(forgotten(&mut producers, last + 1));
}

#[test]
fn a_name_that_somebody_holds_or_that_a_stage_has_is_kept() {
    let mut producers = named("p", DAY);
    let session = producers.open("p", NonZeroU64::MIN, DAY);
    assert!(!forgotten(&mut producers, 100 * DAY));

    drop(session);

    // It was used until then.
    assert!(!forgotten(&mut producers, 101 * DAY));
    assert!(forgotten(&mut producers, 120 * DAY));
    assert!(!forgotten(&mut named("amq.stage/7", DAY), 120 * DAY));
}

#[test]
fn a_name_is_in_use_until_an_hour_after_its_last_use() {
    let producers = named("p", DAY);

    assert!(producers.is_in_use("p", DAY + IDLE_MS_MIN - 1, WEEK));
    assert!(!producers.is_in_use("p", DAY + IDLE_MS_MIN, WEEK));
    assert!(!producers.is_in_use("q", DAY, WEEK));
}

#[test]
fn a_name_that_is_kept_for_less_than_an_hour_is_in_use_for_that_long() {
    let producers = named("p", DAY);
    let memory = Duration::from_secs(2);

    assert!(producers.is_in_use("p", DAY + 1999, memory));
    assert!(!producers.is_in_use("p", DAY + 2000, memory));
}

#[test]
fn the_last_use_of_a_name_is_now_while_a_session_has_it() {
    let mut producers = named("p", DAY);
    assert_eq!([producers.last_use_ms("p", 3 * DAY), producers.last_use_ms("q", 3 * DAY)], [Some(DAY), None]);

    let _session = producers.open("p", NonZeroU64::MIN, DAY);

    assert_eq!(producers.last_use_ms("p", 3 * DAY), Some(3 * DAY));
}

#[test]
fn the_time_of_a_name_is_noted_when_it_is_much_later_than_what_is_written() {
    let mut producers = named("p", 10 * DAY);
    let producer = Producer { id: NonZeroU64::MIN, sequence: 1 };

    producers.stored(producer, 10 * DAY + DAY / 2);
    assert_eq!(producers.look(11 * DAY, WEEK, 10), Changes::default());
    producers.stored(producer, 11 * DAY);

    assert_eq!(producers.look(11 * DAY, WEEK, 10).noted, ["p"]);
}

#[test]
fn a_name_without_a_time_counts_from_the_first_look() {
    let mut producers = named("p", 0);

    assert_eq!(producers.look(100 * DAY, WEEK, 10).noted, ["p"]);
    assert!(!forgotten(&mut producers, 107 * DAY));
    assert!(forgotten(&mut producers, 108 * DAY));
}

#[test]
fn one_search_of_a_full_table_serves_many_new_names_and_spares_those_used_since() {
    let mut producers = Producers::default();
    for number in 1..=2_000 {
        let id = NonZeroU64::new(number).unwrap();
        producers.ids.insert(number.to_string(), id);
        producers.stored(Producer { id, sequence: 1 }, number);
    }
    let now = DAY;
    let mut given_up = Vec::new();
    for _ in 0..300 {
        let name = producers.longest_idle(None, now).unwrap();
        producers.forget(&name);
        given_up.push(name);
        // It is used before its turn comes.
        producers.used("10", now);
    }

    let expected: Vec<String> = (1..=301).filter(|number| *number != 10).map(|number| number.to_string()).collect();
    assert_eq!(given_up, expected);
}

#[test]
fn a_full_table_gives_up_the_longest_idle_and_nobody_who_was_just_there() {
    let mut producers = named("old", DAY);
    let young = NonZeroU64::MIN.saturating_add(1);
    producers.ids.insert("young".to_owned(), young);
    producers.stored(Producer { id: young, sequence: 1 }, 2 * DAY);

    assert_eq!(producers.longest_idle(None, 3 * DAY), Some("old".to_owned()));
    producers.forget("old");
    assert_eq!(producers.longest_idle(None, 2 * DAY + 1), None);
    assert_eq!(producers.longest_idle(None, 2 * DAY + IDLE_MS_MIN), Some("young".to_owned()));
}
