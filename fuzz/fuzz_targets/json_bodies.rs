//! JSON bodies and the columns that they become: first the columns, each a letter as below, then the bodies, a separator of
//! records (0x1e) before each. No bytes panic, memory is bounded by them, there is a row for each body, and one that does not
//! fit is null in all columns, is named with a reason, by which its text is found, and changes no other row.
#![no_main]

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, cast::AsArray};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use libfuzzer_sys::fuzz_target;
use penstock_json::{BadRow, Decoded, Decoder, IpcDecoder};

const SEPARATOR: u8 = 0x1e;
const COLUMNS_MAX: usize = 24;
const DEPTH_MAX: usize = 6;
/// Of a column, for a byte of the input: a decimal has 16, and a vector has room for twice its items.
const BYTES_MAX: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|byte| *byte == SEPARATOR);
    let mut columns_left = COLUMNS_MAX;
    let fields = fields_of(&mut parts.next().unwrap_or_default().iter().copied(), &mut columns_left, DEPTH_MAX);
    let Ok(decoder) = Decoder::new(&fields) else { return };
    let bodies: Vec<&[u8]> = parts.collect();
    let found = decoder.decode(bodies.iter().copied()).expect("a decoder takes any bodies");

    let column_count = COLUMNS_MAX - columns_left + 1;
    assert!(found.batch.get_array_memory_size() <= (bytes.len() + 64) * column_count * BYTES_MAX);
    found.batch.column(0).to_data().validate_full().expect("a sound column");
    check_rows(&found, &bodies);
    for (row, body) in bodies.iter().enumerate() {
        let alone = decoder.decode([*body].into_iter()).expect("a decoder takes any bodies");
        assert_eq!(alone.batch, found.batch.slice(row, 1));
    }
    check_ipc(&fields, &found, &bodies, bytes);
});

fn check_rows(found: &Decoded, bodies: &[&[u8]]) {
    let rows = found.batch.column(0).as_struct();
    assert_eq!(rows.len(), bodies.len());
    let mut bad = found.bad.iter().peekable();
    for (row, body) in bodies.iter().enumerate() {
        let told = bad.next_if(|bad| bad.row == row);
        assert!(told.is_none_or(|bad| !body.is_empty() && (1..=300).contains(&bad.reason.chars().count())));
        assert_eq!(rows.is_null(row), told.is_some() || body.is_empty());
        assert!(rows.is_valid(row) || rows.columns().iter().all(|column| column.is_null(row)));
    }
    assert_eq!(bad.next(), None);
}

/// The same rows by the format of Arrow, and no panic where any bytes are offsets.
fn check_ipc(fields: &Fields, found: &Decoded, bodies: &[&[u8]], bytes: &[u8]) {
    let schema = StreamWriter::try_new(Vec::new(), &Schema::new(fields.clone())).and_then(StreamWriter::into_inner);
    let decoder = IpcDecoder::new(&schema.expect("a schema is written")).expect("a schema is read");
    let mut offsets = vec![0_u8; 4];
    let mut end = 0_i32;
    for body in bodies {
        end += i32::try_from(body.len()).expect("inputs are short");
        offsets.extend(end.to_le_bytes());
    }
    let (batch, bad): (Vec<u8>, Vec<BadRow>) = decoder.decode(&offsets, &bodies.concat()).expect("sound offsets");
    let mut reader = StreamReader::try_new(batch.as_slice(), None).expect("a batch is written");
    let batch: RecordBatch = reader.next().expect("a batch").expect("a sound batch");
    assert_eq!((&batch, &bad), (&found.batch, &found.bad));
    let _ = decoder.decode(bytes, bytes);
}

/// Columns named `a`, `b` and so on, up to the first byte that is no type.
fn fields_of(types: &mut impl Iterator<Item = u8>, columns_left: &mut usize, depth: usize) -> Fields {
    let mut fields = Vec::new();
    for name in 'a'..='z' {
        let Some(kind) = kind_of(&mut *types, columns_left, depth) else { break };
        fields.push(Field::new(name, kind, true));
    }
    fields.into()
}

fn kind_of(types: &mut impl Iterator<Item = u8>, columns_left: &mut usize, depth: usize) -> Option<DataType> {
    *columns_left = columns_left.checked_sub(1)?;
    let inner = depth.checked_sub(1);
    Some(match types.next()? {
        b'b' => DataType::Boolean,
        b'1' => DataType::Int8,
        b'2' => DataType::Int16,
        b'4' => DataType::Int32,
        b'8' => DataType::Int64,
        b'f' => DataType::Float32,
        b'd' => DataType::Float64,
        // Precision and scale: `n92` has nine digits, two of them behind the point.
        b'n' => DataType::Decimal128(types.next()?.wrapping_sub(b'0'), types.next()?.wrapping_sub(b'0').cast_signed()),
        b's' => DataType::Utf8,
        b'x' => DataType::Binary,
        b'D' => DataType::Date32,
        b't' => DataType::Timestamp(TimeUnit::Microsecond, None),
        b'z' => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        b'[' => DataType::List(Arc::new(Field::new("element", kind_of(types, columns_left, inner?)?, true))),
        b'm' => {
            let value = Field::new("value", kind_of(types, columns_left, inner?)?, true);
            let pair = Fields::from(vec![Field::new("key", DataType::Utf8, false), value]);
            DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), false)
        }
        b'{' => DataType::Struct(fields_of(types, columns_left, inner?)),
        // One that has no form in JSON.
        b'u' => DataType::UInt8,
        _ => return None,
    })
}
