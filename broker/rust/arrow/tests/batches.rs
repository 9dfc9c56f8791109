//! Batches against their source rows, through Arrow's IPC form and back; and malformed bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use penstock_arrow::{ArrowFault, BatchBuilder, Encoder, IpcMessage, MessageRow, Projection, PutDecoder, PutRows};
use penstock_wire::amqp::properties::properties_to_amqp;
use proptest::prelude::*;

/// A message that owns its parts.
#[derive(Clone, Debug)]
struct Owned {
    offset: u64,
    stored_at_ms: u64,
    key: Option<Vec<u8>>,
    exchange: String,
    routing_key: String,
    body: Vec<u8>,
    message_id: String,
    priority: Option<u8>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Owned {
    /// A serialised `penstock.v1.Properties`.
    fn properties(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |field: u8, bytes: &[u8]| {
            out.extend_from_slice(&[field << 3 | 2, bytes.len() as u8]);
            out.extend_from_slice(bytes);
        };
        for (name, bytes) in &self.headers {
            let field = if std::str::from_utf8(bytes).is_ok() { 4 } else { 5 };
            let value = [&[field << 3 | 2, bytes.len() as u8], &bytes[..]].concat();
            let name = [&[1 << 3 | 2, name.len() as u8], name.as_bytes()].concat();
            put(3, &[&name[..], &[2 << 3 | 2, value.len() as u8], &value[..]].concat());
        }
        if !self.message_id.is_empty() {
            put(9, self.message_id.as_bytes());
        }
        if let Some(priority) = self.priority {
            out.extend_from_slice(&[5 << 3, priority]);
        }
        out
    }

    fn block(&self) -> Vec<u8> {
        let mut block = Vec::new();
        properties_to_amqp(Some(&self.properties()), &mut block).unwrap();
        block
    }
}

/// Text or bytes that are not UTF-8.
fn header_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[a-zö]{0,9}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..9)]
}

prop_compose! {
    fn message()(
        offset in 0..1_u64 << 62,
        stored_at_ms in 0..1_u64 << 48,
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        (exchange, routing_key) in ("[a-c]{0,2}", "[a-c]{0,2}"),
        body in prop::collection::vec(any::<u8>(), 0..60),
        message_id in "[a-z]{0,5}",
        priority in prop::option::of(0..=100_u8),
        headers in prop::collection::vec(("[a-c]{0,2}", header_value()), 0..4),
    ) -> Owned {
        Owned { offset, stored_at_ms, key, exchange, routing_key, body, message_id, priority, headers }
    }
}

fn batch_of(messages: &[Owned], projection: &Projection) -> RecordBatch {
    let mut rows = BatchBuilder::new(projection, "events-1", 16, 1 << 10);
    for message in messages {
        rows.push(&MessageRow {
            offset: message.offset,
            stored_at_ms: message.stored_at_ms,
            key: message.key.as_deref(),
            exchange: message.exchange.as_bytes(),
            routing_key: message.routing_key.as_bytes(),
            body: &message.body,
            properties: &message.block(),
        });
    }
    assert_eq!(rows.row_count(), messages.len());
    rows.finish().unwrap()
}

fn body_of(message: &IpcMessage) -> Bytes {
    let body = Bytes::from(message.body.concat());
    assert_eq!(body.len(), message.body_bytes);
    body
}

/// Through the IPC form and back.
fn sent(batch: &RecordBatch) -> RecordBatch {
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    let mut decoder = PutDecoder::default();
    let schema = encoder.schema().unwrap();
    assert!(decoder.read(&schema.header, body_of(&schema)).unwrap().is_none());
    assert!(encoder.schema().is_none());
    let message = encoder.batch(batch).unwrap();
    decoder.read(&message.header, body_of(&message)).unwrap().unwrap()
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    (0..column.len()).map(|row| column.value(row).to_owned()).collect()
}

proptest! {
    #[test]
    fn every_row_is_its_message(messages in prop::collection::vec(message(), 0..40)) {
        let batch = sent(&batch_of(&messages, &Projection::all()));

        prop_assert_eq!(batch.num_rows(), messages.len());
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let offsets: Vec<i64> = messages.iter().map(|message| message.offset as i64).collect();
        prop_assert_eq!(column("offset").as_primitive::<Int64Type>().values(), &offsets[..]);
        let times: Vec<i64> = messages.iter().map(|message| message.stored_at_ms as i64 * 1_000).collect();
        prop_assert_eq!(column("timestamp").as_primitive::<TimestampMicrosecondType>().values(), &times[..]);
        let names = |name: fn(&Owned) -> &String| messages.iter().map(|one| name(one).clone()).collect::<Vec<_>>();
        prop_assert_eq!(texts(&batch, "exchange"), names(|one| &one.exchange));
        prop_assert_eq!(texts(&batch, "routing_key"), names(|one| &one.routing_key));
        prop_assert_eq!(texts(&batch, "partition"), vec!["events-1"; messages.len()]);
        let (keys, bodies) = (column("key").as_binary::<i32>(), column("body").as_binary::<i32>());
        let (properties, headers) = (column("properties").as_struct(), column("headers").as_list::<i32>());
        let ids = properties.column_by_name("message_id").unwrap().as_string::<i32>();
        let priorities = properties.column_by_name("priority").unwrap().as_primitive::<Int32Type>();
        for (row, message) in messages.iter().enumerate() {
            prop_assert_eq!(bodies.value(row), &message.body[..]);
            prop_assert_eq!(keys.is_valid(row).then(|| keys.value(row)), message.key.as_deref());
            let id = Some(message.message_id.as_str()).filter(|id| !id.is_empty());
            prop_assert_eq!(ids.is_valid(row).then(|| ids.value(row)), id);
            let priority = message.priority.map(i32::from);
            prop_assert_eq!(priorities.is_valid(row).then(|| priorities.value(row)), priority);
            prop_assert_eq!(properties.is_valid(row), !message.properties().is_empty());
            let entries = headers.value(row);
            let entries = entries.as_struct();
            let names = entries.column_by_name("key").unwrap().as_string::<i32>();
            let values = entries.column_by_name("value").unwrap().as_binary::<i32>();
            let found: Vec<_> = names.iter().zip(values).map(|(name, value)| (name.unwrap(), value.unwrap())).collect();
            let sent: Vec<_> = message.headers.iter().map(|(name, value)| (name.as_str(), &value[..])).collect();
            prop_assert_eq!(found, sent, "every header, in order, with its bytes");
        }
    }

    #[test]
    fn some_columns_are_those_of_all(messages in prop::collection::vec(message(), 1..20)) {
        let all = batch_of(&messages, &Projection::all());
        let some = batch_of(&messages, &Projection::of(["headers", "key", "offset"]).unwrap());

        for column in ["headers", "key", "offset"] {
            prop_assert_eq!(some.column_by_name(column), all.column_by_name(column));
        }
        prop_assert_eq!(some.num_columns(), 3);
    }

    #[test]
    fn rows_are_published_as_they_were_read(messages in prop::collection::vec(message(), 1..20)) {
        let columns = ["body", "key", "routing_key", "properties", "headers"];
        let batch = sent(&batch_of(&messages, &Projection::of(columns).unwrap()));

        let rows = PutRows::of(&batch).unwrap();

        for (at, message) in messages.iter().enumerate() {
            let row = rows.row(at).unwrap();
            prop_assert_eq!((row.body, row.key), (&message.body[..], message.key.as_deref()));
            prop_assert_eq!(row.routing_key, Some(message.routing_key.as_bytes()));
            let (mut properties, mut block) = (Vec::new(), Vec::new());
            rows.put_properties(at, &mut properties).unwrap();
            properties_to_amqp(Some(&properties), &mut block).unwrap();
            prop_assert_eq!(&block, &message.block());
        }
    }

    #[test]
    fn a_header_that_is_cut_is_refused(cut in any::<prop::sample::Index>()) {
        let (schema, message) = empty();
        for whole in [&schema, &message] {
            let header = whole.header.slice(..cut.index(whole.header.len() / 2));
            let mut decoder = PutDecoder::default();
            decoder.read(&schema.header, Bytes::new()).unwrap();

            prop_assert!(matches!(decoder.read(&header, Bytes::new()), Err(ArrowFault::Malformed(_))));
        }
    }

    #[test]
    fn changed_bytes_are_refused_or_a_batch_that_is_whole(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        messages in prop::collection::vec(message(), 1..4),
    ) {
        let batch = batch_of(&messages, &Projection::all());
        let mut encoder = Encoder::new(&batch.schema()).unwrap();
        let schema = encoder.schema().unwrap();
        let message = encoder.batch(&batch).unwrap();
        let mut header = message.header.to_vec();
        changes.iter().for_each(|(at, byte)| *at.get_mut(&mut header) = *byte);
        let mut decoder = PutDecoder::default();
        decoder.read(&schema.header, Bytes::new()).unwrap();

        if let Ok(Some(found)) = decoder.read(&header.into(), body_of(&message)) {
            prop_assert!(found.columns().iter().all(|column| column.len() == found.num_rows()));
            prop_assert!(found.columns().iter().all(|column| column.to_data().validate_full().is_ok()));
        }
    }
}

/// The messages of a schema and of a batch without rows.
fn empty() -> (IpcMessage, IpcMessage) {
    let batch = batch_of(&[], &Projection::all());
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    (encoder.schema().unwrap(), encoder.batch(&batch).unwrap())
}

#[test]
fn rows_that_cannot_be_published_say_why() {
    let refused = |names: &[&str]| {
        let batch = batch_of(&[], &Projection::of(names.iter().copied()).unwrap());
        PutRows::of(&batch).err().map(|error| error.to_string()).unwrap_or_default()
    };

    assert!(refused(&["key"]).contains("no column 'body'"));
    assert!(refused(&["offset", "body"]).contains("'offset' cannot be published"));
    assert_eq!(refused(&["body", "key"]), "");
}

/// A batch of one row whose headers have these names and values.
fn with_headers(names: ArrayRef, values: ArrayRef) -> RecordBatch {
    let count = names.len();
    let entries = StructArray::try_from(vec![("key", names), ("value", values)]).unwrap();
    let item = Arc::new(Field::new("item", entries.data_type().clone(), true));
    let headers = ListArray::new(item, OffsetBuffer::from_lengths([count]), Arc::new(entries), None);
    let body: ArrayRef = Arc::new(StringArray::from(vec![""]));
    RecordBatch::try_from_iter([("body", body), ("headers", Arc::new(headers) as ArrayRef)]).unwrap()
}

#[test]
fn headers_are_names_with_bytes_or_text() {
    let names = || Arc::new(StringArray::from(vec![Some("a"), None])) as ArrayRef;
    let numbers = with_headers(names(), Arc::new(Int64Array::from(vec![1, 2])));
    let unnamed = with_headers(names(), Arc::new(StringArray::from(vec!["1", "2"])));

    let refused = PutRows::of(&numbers).err().unwrap().to_string();
    let rows = PutRows::of(&unnamed).unwrap();

    assert!(refused.contains("a list of structs of 'key' (utf8) and 'value'"), "{refused}");
    assert!(matches!(rows.put_properties(0, &mut Vec::new()), Err(ArrowFault::UnnamedHeader { row: 0 })));
}

#[test]
fn a_buffer_that_ends_in_the_middle_of_a_value_is_refused() {
    let body: ArrayRef = Arc::new(StringArray::from(vec!["one", "two"]));
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("body", body), ("priority", number)]).unwrap();
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    let schema = encoder.schema().unwrap();
    let message = encoder.batch(&batch).unwrap();
    let mut decoder = PutDecoder::default();
    decoder.read(&schema.header, Bytes::new()).unwrap();

    let mut read_cut = |buffer| decoder.read(&cut_by_one(&message.header, buffer), body_of(&message));

    // Null bits, offsets and bytes of a text; bits and values of a number.
    let (offsets, values) = (1, 4);
    for buffer in [offsets, values] {
        assert!(read_cut(buffer).unwrap_err().to_string().contains("in the middle of a value"));
    }
    assert!(read_cut(2).is_err(), "a text's bytes are fewer than its offsets say");
}

/// A batch's header with one buffer a byte too short.
fn cut_by_one(header: &Bytes, buffer: usize) -> Bytes {
    let batch = arrow_ipc::root_as_message(header).unwrap().header_as_record_batch().unwrap();
    let place = *batch.buffers().unwrap().get(buffer);
    let written = [place.offset().to_le_bytes(), place.length().to_le_bytes()].concat();
    let at = header.windows(written.len()).position(|window| window == written).unwrap();
    let mut cut = header.to_vec();
    cut[at + 8..at + 16].copy_from_slice(&(place.length() - 1).to_le_bytes());
    cut.into()
}

#[test]
fn columns_of_types_that_nothing_is_published_as_are_refused_with_their_schema() {
    let items = Arc::new(Field::new("item", DataType::Binary, true));
    let run_ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
    let values = Arc::new(Field::new("values", DataType::Utf8, true));
    for refused in
        [DataType::FixedSizeList(items, 2), DataType::RunEndEncoded(run_ends, values), DataType::FixedSizeBinary(3)]
    {
        let properties = DataType::Struct(vec![Field::new("app_id", refused, true)].into());
        let schema = Arc::new(Schema::new(vec![Field::new("properties", properties, true)]));
        let message = Encoder::new(&schema).unwrap().schema().unwrap();

        let error = PutDecoder::default().read(&message.header, Bytes::new()).unwrap_err();

        assert!(error.to_string().starts_with("column 'app_id' is "), "{error}");
    }
}
