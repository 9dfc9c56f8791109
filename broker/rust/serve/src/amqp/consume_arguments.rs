//! The arguments of `basic.consume`: priority, the limit for acknowledgements, and where and how a stream is read.
//!
//! Arguments with other names are ignored, as in other brokers. A value of a wrong type is refused.

use std::time::{SystemTime, UNIX_EPOCH};

use penstock_engine::{MessageView, ReadFrom};
use penstock_wire::amqp::argument::FieldTable;
use penstock_wire::amqp::properties::headers_of;
use penstock_wire::amqp::table::{ValueRef, entries};

const PRIORITY: &str = "x-priority";
const TIMEOUT: &str = "x-consumer-timeout";
const OFFSET: &str = "x-stream-offset";
const FILTER: &str = "x-stream-filter";
const UNFILTERED: &str = "x-stream-match-unfiltered";
const TRACKING: &str = "x-stream-automatic-offset-tracking";
/// The publisher's header that filters look at.
const FILTER_VALUE: &str = "x-stream-filter-value";

/// A hundred years, as for the times of queues.
const TIMEOUT_MS_MAX: u64 = 3_155_760_000_000;

/// More values than this are refused: each message is compared with all of them.
const FILTER_VALUES_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ConsumeArguments {
    pub priority: i32,
    pub ack_timeout_ms: Option<u64>,
    /// `None` is after the last message.
    pub from: Option<ReadFrom>,
    pub filter: Option<Filter>,
    /// The name of an argument that streams do not have, if there is one.
    pub not_of_streams: Option<&'static str>,
}

/// Which messages of a stream a consumer gets: those with one of these values, and perhaps those without any.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    values: Vec<Vec<u8>>,
    matches_unfiltered: bool,
}

impl ConsumeArguments {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Which one has a value that it cannot have.
    pub fn read(arguments: FieldTable<'_>) -> Result<ConsumeArguments, String> {
        let mut read = ConsumeArguments::default();
        if let Some(value) = arguments.get(PRIORITY) {
            let priority = whole(value).and_then(|number| i32::try_from(number).ok());
            read.priority = priority.ok_or_else(|| invalid(PRIORITY, "a whole number of 32 bits"))?;
            read.not_of_streams = Some(PRIORITY);
        }
        if let Some(value) = arguments.get(TIMEOUT) {
            let limit = whole(value).and_then(|number| u64::try_from(number).ok());
            let limit = limit.filter(|limit| (1..=TIMEOUT_MS_MAX).contains(limit));
            read.ack_timeout_ms = Some(limit.ok_or_else(|| invalid(TIMEOUT, "a number of milliseconds, at least 1"))?);
        }
        if let Some(value) = arguments.get(OFFSET) {
            let wanted = "first, last, next, an offset, a timestamp, or a time ago such as '7D' or '1h'";
            read.from = Some(start(value).ok_or_else(|| invalid(OFFSET, wanted))?);
        }
        if let Some(value) = arguments.get(FILTER) {
            let values = filter_values(value).filter(|values| (1..=FILTER_VALUES_MAX).contains(&values.len()));
            let wanted = format!("a text, or an array of up to {FILTER_VALUES_MAX} texts");
            let matches_unfiltered = arguments.get(UNFILTERED) == Some(ValueRef::Bool(true));
            read.filter = Some(Filter { values: values.ok_or_else(|| invalid(FILTER, &wanted))?, matches_unfiltered });
        }
        if arguments.get(TRACKING) == Some(ValueRef::Bool(true)) {
            return Err(format!("'{TRACKING}' is not supported; keep the offset of the last message in the client"));
        }
        Ok(read)
    }
}

impl Filter {
    /// Whether the consumer gets a message.
    pub fn passes(&self, view: &MessageView<'_>) -> bool {
        match filter_value(view.properties) {
            Some(ValueRef::Text(value)) => {
                let is_wanted = |part: &[u8]| self.values.iter().any(|wanted| wanted == part);
                is_wanted(value) || value.split(|byte| *byte == b',').any(is_wanted)
            }
            _ => self.matches_unfiltered,
        }
    }
}

fn filter_value(properties: &[u8]) -> Option<ValueRef<'_>> {
    let headers = headers_of(properties).ok()??;
    let named = |(name, value): (&[u8], _)| (name == FILTER_VALUE.as_bytes()).then_some(value);
    entries(headers).find_map(|entry| entry.ok().and_then(named))
}

fn invalid(name: &str, wanted: &str) -> String {
    format!("invalid arg '{name}' of a consumer; send {wanted}")
}

fn whole(value: ValueRef<'_>) -> Option<i128> {
    Some(match value {
        ValueRef::I8(number) => number.into(),
        ValueRef::U8(number) => number.into(),
        ValueRef::I16(number) => number.into(),
        ValueRef::U16(number) => number.into(),
        ValueRef::I32(number) => number.into(),
        ValueRef::U32(number) => number.into(),
        ValueRef::I64(number) => number.into(),
        _ => return None,
    })
}

/// A negative offset is a number of messages before the end.
fn start(value: ValueRef<'_>) -> Option<ReadFrom> {
    match value {
        ValueRef::Text(b"first") => Some(ReadFrom::First),
        ValueRef::Text(b"last") => Some(ReadFrom::Last),
        ValueRef::Text(b"next") => Some(ReadFrom::Next),
        ValueRef::Text(ago) => Some(ReadFrom::Timestamp(now_ms().saturating_sub(interval_ms(ago)?))),
        ValueRef::Timestamp(seconds) => Some(ReadFrom::Timestamp(seconds.saturating_mul(1000))),
        other => {
            let number = whole(other)?;
            let count = u64::try_from(number.unsigned_abs()).ok()?;
            Some(if number < 0 { ReadFrom::LastCount(count) } else { ReadFrom::Offset(count) })
        }
    }
}

/// A number and a unit, as `x-max-age` has.
fn interval_ms(text: &[u8]) -> Option<u64> {
    let (unit, digits) = text.split_last()?;
    let seconds = match unit {
        b'Y' => 365 * 86_400,
        b'M' => 30 * 86_400,
        b'D' => 86_400,
        b'h' => 3_600,
        b'm' => 60,
        b's' => 1,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    number.checked_mul(seconds)?.checked_mul(1000)
}

fn filter_values(value: ValueRef<'_>) -> Option<Vec<Vec<u8>>> {
    let text = |value| match value {
        ValueRef::Text(text) => Some(text.to_vec()),
        _ => None,
    };
    match value {
        ValueRef::Array(array) => array.values().map(|value| text(value.ok()?)).collect(),
        value => text(value).map(|text| vec![text]),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_engine::ReadFrom;
    use penstock_wire::amqp::argument::FieldTable;
    use penstock_wire::amqp::table::ValueRef;

    use super::{ConsumeArguments, interval_ms, start};

    #[test]
    fn a_stream_is_read_from_where_the_offset_says() {
        for (value, from) in [
            (ValueRef::Text(b"first"), Some(ReadFrom::First)),
            (ValueRef::Text(b"last"), Some(ReadFrom::Last)),
            (ValueRef::Text(b"next"), Some(ReadFrom::Next)),
            (ValueRef::I32(7), Some(ReadFrom::Offset(7))),
            (ValueRef::I64(-3), Some(ReadFrom::LastCount(3))),
            (ValueRef::Timestamp(2), Some(ReadFrom::Timestamp(2000))),
            (ValueRef::Text(b"yesterday"), None),
            (ValueRef::Bool(true), None),
        ] {
            assert_eq!(start(value), from, "{value:?}");
        }
        assert!(matches!(start(ValueRef::Text(b"1h")), Some(ReadFrom::Timestamp(1_000..))));
    }

    #[test]
    fn intervals_have_a_number_and_a_unit() {
        assert_eq!(interval_ms(b"2m"), Some(120_000));
        assert_eq!(interval_ms(b"1Y"), Some(31_536_000_000));
        for bad in [&b""[..], b"h", b"+1h", b"1w", b"99999999999999999999s", b"9999999999999999Y"] {
            assert_eq!(interval_ms(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_value_of_a_wrong_type_is_refused_by_name() {
        let table = [&[10][..], b"x-priority", b"S", &[0, 0, 0, 1], b"5"].concat();
        let refused = ConsumeArguments::read(FieldTable::check(&table).unwrap()).unwrap_err();
        assert!(refused.contains("'x-priority'"), "{refused}");

        let table = [&[10][..], b"x-priority", b"b", &[0xfb]].concat();
        assert_eq!(ConsumeArguments::read(FieldTable::check(&table).unwrap()).unwrap().priority, -5);
    }
}
