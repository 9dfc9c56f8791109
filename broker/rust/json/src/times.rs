//! Dates and times of ISO 8601 from text: `2026-01-31`, and with a time and perhaps a zone behind it.

use chrono::NaiveDate;

const SECONDS_OF_DAY: i64 = 86_400;
const MICROSECONDS: i64 = 1_000_000;

/// The days since 1970.
pub(crate) fn date(text: &str) -> Option<i32> {
    let (days, rest) = leading_date(text.as_bytes())?;
    rest.is_empty().then_some(days)
}

/// The microseconds since 1970. With `is_zoned` a zone is taken, and is UTC where it is missing; else there must be none.
/// Digits beyond microseconds are left out.
pub(crate) fn timestamp(text: &str, is_zoned: bool) -> Option<i64> {
    let (days, rest) = leading_date(text.as_bytes())?;
    let (in_day, rest) = match rest {
        [] => (0, rest),
        [b'T' | b' ', rest @ ..] => leading_time(rest)?,
        _ => return None,
    };
    let offset = match rest {
        [] => 0,
        _ if !is_zoned => return None,
        [b'Z'] => 0,
        [b'+', rest @ ..] => zone(rest)?,
        [b'-', rest @ ..] => -zone(rest)?,
        _ => return None,
    };
    Some((i64::from(days) * SECONDS_OF_DAY - offset) * MICROSECONDS + in_day)
}

fn leading_date(text: &[u8]) -> Option<(i32, &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    // The years of Spark's dates.
    let year = i32::try_from(year).ok().filter(|year| *year > 0)?;
    let date = NaiveDate::from_ymd_opt(year, month, day)?;
    Some((date.to_epoch_days(), rest))
}

/// The microseconds of a time of day: hours and minutes, perhaps seconds, perhaps a fraction of them.
fn leading_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    let (second, fraction, rest) = match rest {
        [b':', rest @ ..] => leading_second(rest)?,
        _ => (0, 0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
    Some((seconds * MICROSECONDS + fraction, rest))
}

fn leading_second(text: &[u8]) -> Option<(u32, i64, &[u8])> {
    let (second, rest) = digits(text, 2)?;
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => leading_fraction(rest)?,
        _ => (0, rest),
    };
    Some((second, fraction, rest))
}

fn leading_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(count)?;
    if !(1..=9).contains(&count) {
        return None;
    }
    let padded = digits.iter().chain([b'0'; 6].iter()).take(6);
    Some((padded.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')), rest))
}

/// The seconds of `02:00`, `0200` or `02`.
fn zone(text: &[u8]) -> Option<i64> {
    let (hours, rest) = digits(text, 2)?;
    let rest = rest.strip_prefix(b":").filter(|rest| !rest.is_empty()).unwrap_or(rest);
    let (minutes, rest) = if rest.is_empty() { (0, rest) } else { digits(rest, 2)? };
    // The most that Java takes.
    let is_zone = rest.is_empty() && minutes < 60 && hours * 60 + minutes <= 18 * 60;
    is_zone.then(|| i64::from(hours) * 3600 + i64::from(minutes) * 60)
}

fn digits(text: &[u8], count: usize) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(count)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')), rest))
}

#[cfg(test)]
mod tests {
    use super::{date, timestamp};

    #[test]
    fn a_time_has_a_date_and_perhaps_a_time_of_day_and_a_zone() {
        assert_eq!(timestamp("1970-01-02", true), Some(86_400_000_000));
        assert_eq!(timestamp("1970-01-01T00:00:01.5Z", true), Some(1_500_000));
        assert_eq!(timestamp("1970-01-01 02:00:00+02:00", true), Some(0));
        assert_eq!(timestamp("1969-12-31T22:30-0130", true), Some(0));
        assert_eq!(timestamp("1970-01-01T00:00:00.123456789", false), Some(123_456));
        assert_eq!(timestamp("0001-01-01T00:00:00Z", true), Some(-62_135_596_800_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "1970",
            "1970-1-1",
            "1970-02-30",
            "0000-01-01",
            "1970-01-01T",
            "1970-01-01T24:00",
            "1970-01-01T00:60",
            "1970-01-01T00:00.5",
            "1970-01-01T00:00:60",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00.1234567890",
            "1970-01-01Z",
            "1970-01-01T00:00+19:00",
            "1970-01-01T00:00+02:",
            "1970-01-01T00:00 Z",
            "1970-01-01t00:00",
            "1970-01-01T00:00Zz",
            "19700101",
        ] {
            assert_eq!(timestamp(text, true), None, "{text}");
        }
        assert_eq!(timestamp("1970-01-01T00:00:00Z", false), None);
        assert_eq!(date("1970-01-01T00:00:00"), None);
        assert_eq!(date("1970-01-03"), Some(2));
    }
}
