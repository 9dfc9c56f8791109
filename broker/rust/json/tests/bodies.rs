//! Whatever the bodies are, each costs its own row, and the good ones have the values that another parser reads.
#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field, Fields};
use penstock_json::{Decoder, IpcDecoder, SchemaFault};
use proptest::prelude::*;
use serde_json::{Value, json};

fn nullable(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

fn fields() -> Fields {
    let inner = Fields::from(vec![nullable("a", DataType::Int64)]);
    let items = DataType::List(nullable("element", DataType::Struct(inner)).into());
    Fields::from(vec![
        nullable("a", DataType::Int64),
        nullable("b", DataType::Utf8),
        nullable("c", DataType::Float64),
        nullable("d", items),
    ])
}

fn decoded(bodies: &[Vec<u8>]) -> (StructArray, Vec<usize>) {
    let found = Decoder::new(&fields()).unwrap().decode(bodies.iter().map(Vec::as_slice)).unwrap();
    found.batch.column(0).to_data().validate_full().unwrap();
    (found.batch.column(0).as_struct().clone(), found.bad.into_iter().map(|bad| bad.row).collect())
}

/// The row as JSON, without nulls.
fn row(rows: &StructArray, at: usize) -> Value {
    let mut found = serde_json::Map::new();
    let (a, b, c) = (rows.column(0).as_primitive::<Int64Type>(), rows.column(1).as_string::<i32>(), rows.column(2));
    if a.is_valid(at) {
        found.insert("a".into(), a.value(at).into());
    }
    if b.is_valid(at) {
        found.insert("b".into(), b.value(at).into());
    }
    if c.is_valid(at) {
        found.insert("c".into(), c.as_primitive::<Float64Type>().value(at).into());
    }
    let d = rows.column(3).as_list::<i32>();
    if d.is_valid(at) {
        let items = d.value(at);
        let items = items.as_struct();
        let inner = items.column(0).as_primitive::<Int64Type>();
        let item = |at: usize| match (items.is_valid(at), inner.is_valid(at)) {
            (false, _) => Value::Null,
            (true, false) => json!({}),
            (true, true) => json!({ "a": inner.value(at) }),
        };
        found.insert("d".into(), (0..items.len()).map(item).collect());
    }
    found.into()
}

fn objects() -> impl Strategy<Value = Value> {
    let item = prop_oneof![Just(Value::Null), Just(json!({})), any::<i64>().prop_map(|a| json!({ "a": a }))];
    let field = |strategy: BoxedStrategy<Value>| proptest::option::of(strategy);
    let fields = (
        field(any::<i64>().prop_map(Value::from).boxed()),
        field(".{0,6}".prop_map(Value::from).boxed()),
        field(any::<i32>().prop_map(|c| Value::from(f64::from(c) / 8.0)).boxed()),
        field(proptest::collection::vec(item, 0..4).prop_map(Value::from).boxed()),
    );
    fields.prop_map(|(a, b, c, d)| {
        let named = [("a", a), ("b", b), ("c", c), ("d", d)];
        named
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
}

#[derive(Clone, Debug)]
enum Body {
    Good(Value),
    Bad(Vec<u8>),
    Empty,
}

fn bodies() -> impl Strategy<Value = Vec<Body>> {
    let unfit = prop_oneof![
        Just(br#"{"a": 1.5}"#.to_vec()),
        Just(br#"{"b": "x", "d": [{"a": 1}, {"a": "x"}]}"#.to_vec()),
        Just(br#"{"a": 1, "c": 2, "b": "abc"#.to_vec()),
        proptest::collection::vec(any::<u8>(), 1..20)
            .prop_filter("an object", |bytes| { serde_json::from_slice::<Value>(bytes).is_err() }),
    ];
    let body = prop_oneof![4 => objects().prop_map(Body::Good), 1 => unfit.prop_map(Body::Bad), 1 => Just(Body::Empty)];
    proptest::collection::vec(body, 0..12)
}

proptest! {
    #[test]
    fn good_rows_keep_their_values_beside_bad_ones(bodies in bodies()) {
        let bytes: Vec<Vec<u8>> = bodies.iter().map(|body| match body {
            Body::Good(value) => value.to_string().into_bytes(),
            Body::Bad(bytes) => bytes.clone(),
            Body::Empty => Vec::new(),
        }).collect();

        let (rows, bad) = decoded(&bytes);

        prop_assert_eq!(rows.len(), bodies.len());
        for (at, body) in bodies.iter().enumerate() {
            prop_assert_eq!(bad.contains(&at), matches!(body, Body::Bad(_)));
            prop_assert_eq!(rows.is_valid(at), matches!(body, Body::Good(_)));
            if let Body::Good(value) = body {
                prop_assert_eq!(&row(&rows, at), value);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_row(bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6)) {
        prop_assert_eq!(decoded(&bodies).0.len(), bodies.len());
    }
}

#[test]
fn a_short_body_does_not_become_endless_values() {
    let inner: Vec<Field> = (0..1000).map(|number| nullable(&format!("f{number}"), DataType::Int64)).collect();
    let items = nullable("element", DataType::Struct(inner.into()));
    let fields = Fields::from(vec![nullable("d", DataType::List(items.into()))]);
    let body = format!(r#"{{"d": [{}null]}}"#, "null,".repeat(20_000));

    let found = Decoder::new(&fields).unwrap().decode([body.as_bytes(), br#"{"d": [null]}"#].into_iter()).unwrap();

    assert_eq!(found.bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [0]);
    assert!(found.bad[0].reason.contains("values in arrays and maps"), "{}", found.bad[0].reason);
}

#[test]
fn a_schema_without_a_form_in_json_is_refused() {
    let refused = |field: Field| Decoder::new(&Fields::from(vec![field])).unwrap_err();

    assert!(matches!(refused(nullable("a", DataType::UInt8)), SchemaFault::Unsupported { .. }));
    for (precision, scale) in [(0, 0), (39, 0), (5, 6)] {
        let kind = DataType::Decimal128(precision, scale);
        assert!(matches!(refused(nullable("a", kind)), SchemaFault::Unsupported { .. }));
    }
    assert!(matches!(refused(Field::new("a", DataType::Int8, false)), SchemaFault::NotNullable(_)));
    let twice = Fields::from(vec![nullable("a", DataType::Int8), nullable("a", DataType::Int8)]);
    assert!(matches!(Decoder::new(&twice), Err(SchemaFault::Twice(_))));
}

#[test]
fn what_is_no_schema_and_what_are_no_offsets_is_refused() {
    assert!(IpcDecoder::new(b"").is_err());
    assert!(IpcDecoder::new(&[0xff; 64]).is_err());
}
