//! Patterns that users supply: their meaning, their refusals, and the cost of the worst of them.
#![allow(clippy::expect_used)]

use penstock_pattern::{Extent, Pattern, Refusal};

fn refusal(source: &str) -> Refusal {
    Pattern::new(source, Extent::Whole).expect_err(source)
}

fn matches(source: &str, extent: Extent, text: &str) -> bool {
    Pattern::new(source, extent).expect(source).is_match(text)
}

#[test]
fn a_whole_match_covers_the_text_whatever_the_source_holds() {
    for source in ["a|ab", "a??b??", "(?x)a b #c", "(?i)AB", "^ab$", "(?m)^ab$"] {
        assert!(matches(source, Extent::Whole, "ab"), "{source}");
        assert!(!matches(source, Extent::Whole, "ab\ncd"), "{source}");
        assert!(!matches(source, Extent::Whole, "xab"), "{source}");
    }
}

#[test]
fn an_empty_pattern_matches_the_empty_text_or_any_part() {
    for source in ["", "^$"] {
        assert!(matches(source, Extent::Whole, ""));
        assert!(!matches(source, Extent::Whole, "a"));
    }
    assert!(matches("", Extent::Part, "a"));
    assert!(!matches("^$", Extent::Part, "a"));
}

#[test]
fn classes_are_those_of_unicode() {
    assert!(matches(r"\w\d\s", Extent::Whole, "é٣\u{a0}"));
    assert!(matches("(?i)straße.", Extent::Whole, "STRAßE😀"));
}

#[test]
fn a_construct_that_is_not_supported_is_named() {
    for (source, construct) in [
        ("(?=a)b", "look-around `(?=`"),
        ("(?!a)b", "look-around `(?!`"),
        ("(?<=a)b", "look-around `(?<=`"),
        ("(?<!a)b", "look-around `(?<!`"),
        (r"(a)\1", r"back-reference `\1`"),
        ("(?P<n>a)(?P=n)", "back-reference `(?P=`"),
        (r"(?<n>a)\k<n>", r"back-reference `\k`"),
        ("()?(?(1)(a+)+$|x)", "conditional `(?(`"),
        ("(?>a+)", "atomic group `(?>`"),
        ("a++", "possessive or double repetition `++`"),
        ("a{2}{3}", "possessive or double repetition `{2}{3}`"),
        ("(?R)", "recursion `(?R`"),
        ("(?1)", "recursion `(?1`"),
        ("(?#note)a", "comment `(?#`"),
        (r"a\Z", r"escape `\Z`"),
        (r"\<a", r"escape `\<`"),
        ("[a&&b]", "set operation `a&&b`"),
        ("[a[b]]", "class within a class `[b]`"),
    ] {
        let found = refusal(source);
        assert!(found.rule.contains(construct), "{source}: {found}");
        assert!(!found.way_out.is_empty());
    }
}

#[test]
fn a_text_that_is_no_pattern_is_refused_with_its_place() {
    for (source, place) in [("(", 1), ("ä[", 2), ("ab)", 3), ("(?P<a>x)(?P<a>y)", 13), ("é{x}", 3)] {
        let found = refusal(source).rule;
        assert!(found.starts_with("is not a regular expression"), "{source}: {found}");
        assert!(found.ends_with(&format!("at character {place}")), "{source}: {found}");
    }
    assert!(refusal(&format!("{}{}", "(".repeat(500), ")".repeat(500))).rule.contains("nest"));
}

#[test]
fn repetitions_count_as_often_as_they_are_written_out() {
    let longest = "é".repeat(1_024);
    assert!(matches(&longest, Extent::Whole, &longest));
    for (source, is_taken) in
        [("(abé){341}", true), ("(abé){342}", false), ("(a{3,}|b?){256}", true), ("(a{3,}|b?){257}", false)]
    {
        assert_eq!(Pattern::new(source, Extent::Whole).is_ok(), is_taken, "{source}");
    }
}

#[test]
fn a_pattern_that_compiles_to_too_much_is_refused() {
    for source in ["a{99999999}", r"(?:\w{0,16}){64}", "(((a{100}){100}){100}){100}"] {
        let found = refusal(source).rule;
        assert!(found.contains("too large") || found.contains("repetition"), "{source}: {found}");
    }
}

#[test]
fn patterns_that_make_others_backtrack_are_matched_to_the_end() {
    let text = format!("{}!", "a".repeat(10_000));
    for source in
        ["(a+)+$", "(aa|a)+$", "(.*)*x", &format!("{}{}x", "a?".repeat(30), "a".repeat(30)), "[ab]*[ab]*[ab]*[ab]*c"]
    {
        assert!(!matches(source, Extent::Whole, &text), "{source}");
        assert!(!matches(source, Extent::Part, &text), "{source}");
    }
}
