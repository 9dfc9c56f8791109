//! Numbers from their digits in JSON, so that none loses any on the way.

use std::str::FromStr;

/// The most digits of a decimal.
const DIGITS_MAX: i64 = 38;

/// A whole number from `least` to `most`; one with a fraction or an exponent is none.
pub(crate) fn whole(digits: &[u8], least: i64, most: i64) -> Option<i64> {
    let number: i64 = parsed(digits)?;
    (least..=most).contains(&number).then_some(number)
}

/// The nearest float; beyond the largest one it is infinite, as in Java.
pub(crate) fn float<T: FromStr>(digits: &[u8]) -> Option<T> {
    parsed(digits)
}

/// A float that JSON lacks, as text.
pub(crate) fn special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" | "+INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn parsed<T: FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The unscaled value of a decimal, rounded half up; `None` when it is no number or has too many digits.
pub(crate) fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (text.get(..at)?, exponent(text.get(at + 1..)?)?),
        None => (text, 0),
    };
    let (whole, fraction) = match mantissa.iter().position(|byte| *byte == b'.') {
        Some(at) => (mantissa.get(..at)?, mantissa.get(at + 1..).filter(|fraction| !fraction.is_empty())?),
        None => (mantissa, &[][..]),
    };
    let is_number = !whole.is_empty() && (whole.len() == 1 || !whole.starts_with(b"0"));
    if !is_number || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let shift = exponent.saturating_add(i64::from(scale)).saturating_sub(i64::try_from(fraction.len()).ok()?);
    let unscaled = rounded(whole.iter().chain(fraction), whole.len() + fraction.len(), shift)?;
    let limit = 10_i128.checked_pow(u32::from(precision))?;
    (unscaled < limit).then_some(if is_negative { -unscaled } else { unscaled })
}

/// The digits, of which there are `count`, times ten to the power of `shift`.
fn rounded<'a>(digits: impl Iterator<Item = &'a u8>, count: usize, shift: i64) -> Option<i128> {
    let mut digits = digits.map(|digit| digit - b'0').peekable();
    let mut left = i64::try_from(count).ok()?.saturating_add(shift);
    while digits.next_if_eq(&0).is_some() {
        left = left.saturating_sub(1);
    }
    if digits.peek().is_none() || left < 0 {
        return Some(0);
    }
    if left > DIGITS_MAX {
        return None;
    }
    let mut unscaled = 0_i128;
    for _ in 0..left {
        unscaled = unscaled * 10 + i128::from(digits.next().unwrap_or(0));
    }
    Some(unscaled + i128::from(digits.next().is_some_and(|next| next >= 5)))
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Beyond this it decides alone.
    let size: i64 =
        digits.iter().fold(0, |size: i64, digit| size.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(if is_negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::{decimal, whole};

    #[test]
    fn a_decimal_is_rounded_half_up_and_bounded_by_its_precision() {
        let parsed = |text: &str| decimal(text.as_bytes(), 5, 2);

        assert_eq!(parsed("1.5"), Some(150));
        assert_eq!(parsed("-1.005"), Some(-101));
        assert_eq!(parsed("1.0049999"), Some(100));
        assert_eq!(parsed("12e1"), Some(12000));
        assert_eq!(parsed("999.994"), Some(99999));
        assert_eq!(parsed("999.995"), None);
        assert_eq!(parsed("1000"), None);
        assert_eq!(parsed("0.004"), Some(0));
        assert_eq!(parsed("0.005"), Some(1));
        assert_eq!(parsed("0e99999999999999999999"), Some(0));
        assert_eq!(parsed("1e-99999999999999999999"), Some(0));
        assert_eq!(parsed("1e99999999999999999999"), None);
        assert_eq!(parsed("00000000000000000000000000000000000000000000001"), None);
        assert_eq!(decimal(b"99999999999999999999999999999999999999", 38, 0), Some(10_i128.pow(38) - 1));
        assert_eq!(decimal(b"99999999999999999999999999999999999999.5", 38, 0), None);
    }

    #[test]
    fn what_is_no_number_is_no_decimal() {
        for text in ["", "-", ".5", "1.", "1e", "1e+", "one", "+1", "01", "1 ", "NaN", "--1", "1.-5", "٣"] {
            assert_eq!(decimal(text.as_bytes(), 38, 2), None, "{text}");
        }
    }

    #[test]
    fn a_whole_number_has_neither_fraction_nor_exponent() {
        assert_eq!(whole(b"-128", -128, 127), Some(-128));
        assert_eq!(whole(b"128", -128, 127), None);
        assert_eq!(whole(b"1.0", -128, 127), None);
        assert_eq!(whole(b"1e1", -128, 127), None);
        assert_eq!(whole(b"9223372036854775808", i64::MIN, i64::MAX), None);
    }
}
