//! Methods and contents of AMQP 0-9-1 against bytes that pika wrote, and against a reader and a writer by the table alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, Kind, LongText};
use penstock_wire::amqp::checked::Properties;
use penstock_wire::amqp::content::{ContentHeader, put_content};
use penstock_wire::amqp::frame::{FrameKind, PROTOCOL_HEADER, next_frame, put_heartbeat};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::table_writer::TableWriter;
use penstock_wire::amqp::view::PropertiesView;
use proptest::prelude::*;

/// Written by `tests/golden/make_amqp_frames.py`.
const GOLDEN: &str = include_str!("../../../../tests/golden/amqp-frames.txt");
const CHANNEL: u16 = 7;
const MAX: u32 = 131_072;

fn golden() -> BTreeMap<&'static str, Vec<u8>> {
    let line = |line: &'static str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let octets = hex.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        (name, octets.map(|two| u8::from_str_radix(two, 16).unwrap()).collect::<Vec<_>>())
    };
    GOLDEN.lines().map(line).collect()
}

/// The payload of bytes that are one frame.
fn payload(bytes: &[u8], kind: FrameKind, channel: u16) -> &[u8] {
    let (frame, length) = next_frame(bytes, MAX).unwrap().unwrap();
    assert_eq!((frame.kind, frame.channel, length), (kind, channel, bytes.len()));
    frame.payload
}

/// The value that the golden bytes have for a text: its argument's name.
fn text(name: &str) -> Name<'_> {
    Name::cut(name)
}

/// The methods as pika wrote them: a number is the length of its argument's name, and a bit whether that is even.
fn expected(name: &str) -> Method<'static> {
    of_connection(name)
        .or_else(|| of_topology(name))
        .or_else(|| of_messages(name))
        .unwrap_or_else(|| panic!("pika has a method {name}"))
}

fn of_connection(name: &str) -> Option<Method<'static>> {
    use Method as M;
    let (reply_code, reply_text, class, method) = (10, text("reply_text"), 8, 9);
    Some(match name {
        "Connection.Start" => M::ConnectionStart {
            version_major: 13,
            version_minor: 13,
            server_properties: FieldTable::check(b"\x11server_propertiest\x01").unwrap(),
            mechanisms: LongText(b"mechanisms"),
            locales: LongText(b"locales"),
        },
        "Connection.StartOk" => M::ConnectionStartOk {
            client_properties: FieldTable::check(b"\x11client_propertiest\x01").unwrap(),
            mechanism: text("mechanism"),
            response: LongText(b"response"),
            locale: text("locale"),
        },
        "Connection.Secure" => M::ConnectionSecure { challenge: LongText(b"challenge") },
        "Connection.SecureOk" => M::ConnectionSecureOk { response: LongText(b"response") },
        "Connection.Tune" => M::ConnectionTune { channel_max: 11, frame_max: 9, heartbeat: 9 },
        "Connection.TuneOk" => M::ConnectionTuneOk { channel_max: 11, frame_max: 9, heartbeat: 9 },
        "Connection.Open" => M::ConnectionOpen { virtual_host: text("virtual_host") },
        "Connection.OpenOk" => M::ConnectionOpenOk {},
        "Connection.Close" => M::ConnectionClose { reply_code, reply_text, class, method },
        "Connection.CloseOk" => M::ConnectionCloseOk {},
        "Connection.Blocked" => M::ConnectionBlocked { reason: text("reason") },
        "Connection.Unblocked" => M::ConnectionUnblocked {},
        "Connection.UpdateSecret" => {
            M::ConnectionUpdateSecret { new_secret: LongText(b"new_secret"), reason: text("reason") }
        }
        "Connection.UpdateSecretOk" => M::ConnectionUpdateSecretOk {},
        "Channel.Open" => M::ChannelOpen {},
        "Channel.OpenOk" => M::ChannelOpenOk {},
        "Channel.Flow" => M::ChannelFlow { active: true },
        "Channel.FlowOk" => M::ChannelFlowOk { active: true },
        "Channel.Close" => M::ChannelClose { reply_code, reply_text, class, method },
        "Channel.CloseOk" => M::ChannelCloseOk {},
        _ => return None,
    })
}

fn of_topology(name: &str) -> Option<Method<'static>> {
    use Method as M;
    let arguments = FieldTable::check(b"\x09argumentst\x01").unwrap();
    let (destination, source) = (text("destination"), text("source"));
    let (queue, exchange, routing_key) = (text("queue"), text("exchange"), text("routing_key"));
    let (nowait, passive, durable, auto_delete, internal) = (true, false, false, false, true);
    let (exclusive, message_count) = (false, 13);
    Some(match name {
        "Exchange.Declare" => {
            let kind = text("type");
            M::ExchangeDeclare { exchange, kind, passive, durable, auto_delete, internal, nowait, arguments }
        }
        "Exchange.DeclareOk" => M::ExchangeDeclareOk {},
        "Exchange.Delete" => M::ExchangeDelete { exchange, if_unused: false, nowait },
        "Exchange.DeleteOk" => M::ExchangeDeleteOk {},
        "Exchange.Bind" => M::ExchangeBind { destination, source, routing_key, nowait, arguments },
        "Exchange.BindOk" => M::ExchangeBindOk {},
        "Exchange.Unbind" => M::ExchangeUnbind { destination, source, routing_key, nowait, arguments },
        "Exchange.UnbindOk" => M::ExchangeUnbindOk {},
        "Queue.Declare" => M::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments },
        "Queue.DeclareOk" => M::QueueDeclareOk { queue, message_count, consumer_count: 14 },
        "Queue.Bind" => M::QueueBind { queue, exchange, routing_key, nowait, arguments },
        "Queue.BindOk" => M::QueueBindOk {},
        "Queue.Purge" => M::QueuePurge { queue, nowait },
        "Queue.PurgeOk" => M::QueuePurgeOk { message_count },
        "Queue.Delete" => M::QueueDelete { queue, if_unused: false, if_empty: true, nowait },
        "Queue.DeleteOk" => M::QueueDeleteOk { message_count },
        "Queue.Unbind" => M::QueueUnbind { queue, exchange, routing_key, arguments },
        "Queue.UnbindOk" => M::QueueUnbindOk {},
        _ => return None,
    })
}

fn of_messages(name: &str) -> Option<Method<'static>> {
    use Method as M;
    let arguments = FieldTable::check(b"\x09argumentst\x01").unwrap();
    let (queue, exchange, routing_key, consumer_tag) =
        (text("queue"), text("exchange"), text("routing_key"), text("consumer_tag"));
    let (delivery_tag, message_count, redelivered, multiple, requeue, no_ack, exclusive, nowait) =
        (12, 13, false, true, false, true, false, true);
    let (reply_code, reply_text) = (10, text("reply_text"));
    Some(match name {
        "Basic.Qos" => M::BasicQos { prefetch_size: 13, prefetch_count: 14, global: true },
        "Basic.QosOk" => M::BasicQosOk {},
        "Basic.Consume" => {
            M::BasicConsume { queue, consumer_tag, no_local: true, no_ack, exclusive, nowait, arguments }
        }
        "Basic.ConsumeOk" => M::BasicConsumeOk { consumer_tag },
        "Basic.Cancel" => M::BasicCancel { consumer_tag, nowait },
        "Basic.CancelOk" => M::BasicCancelOk { consumer_tag },
        "Basic.Publish" => M::BasicPublish { exchange, routing_key, mandatory: false, immediate: false },
        "Basic.Return" => M::BasicReturn { reply_code, reply_text, exchange, routing_key },
        "Basic.Deliver" => M::BasicDeliver { consumer_tag, delivery_tag, redelivered, exchange, routing_key },
        "Basic.Get" => M::BasicGet { queue, no_ack },
        "Basic.GetOk" => M::BasicGetOk { delivery_tag, redelivered, exchange, routing_key, message_count },
        "Basic.GetEmpty" => M::BasicGetEmpty {},
        "Basic.Ack" => M::BasicAck { delivery_tag, multiple },
        "Basic.Reject" => M::BasicReject { delivery_tag, requeue },
        "Basic.RecoverAsync" => M::BasicRecoverAsync { requeue },
        "Basic.Recover" => M::BasicRecover { requeue },
        "Basic.RecoverOk" => M::BasicRecoverOk {},
        "Basic.Nack" => M::BasicNack { delivery_tag, multiple, requeue },
        "Confirm.Select" => M::ConfirmSelect { nowait },
        "Confirm.SelectOk" => M::ConfirmSelectOk {},
        "Tx.Select" => M::TxSelect {},
        "Tx.SelectOk" => M::TxSelectOk {},
        "Tx.Commit" => M::TxCommit {},
        "Tx.CommitOk" => M::TxCommitOk {},
        "Tx.Rollback" => M::TxRollback {},
        "Tx.RollbackOk" => M::TxRollbackOk {},
        _ => return None,
    })
}

#[test]
fn methods_have_the_bytes_that_pika_writes() {
    let golden = golden();
    let methods: Vec<_> = golden.iter().filter(|(name, _)| name.starts_with(char::is_uppercase)).collect();
    assert_eq!(methods.len(), Method::ALL.len());
    for (name, bytes) in methods {
        let method = expected(name);
        assert_eq!(Method::read(payload(bytes, FrameKind::Method, CHANNEL)), Ok(method), "{name}");
        let mut written = Vec::new();
        method.put(CHANNEL, &mut written);
        assert_eq!(&written, bytes, "{name}");
        assert_eq!(method.name().replace(['.', '_'], ""), name.to_lowercase().replace('.', ""));
    }
}

#[test]
fn contents_have_the_bytes_that_pika_writes() {
    let golden = golden();
    let header = ContentHeader::read(payload(&golden["header.full"], FrameKind::Header, CHANNEL)).unwrap();
    assert_eq!((header.class, header.weight, header.body_bytes), (60, 0, 5));
    assert!(Properties::check(header.properties).is_ok());
    let view = PropertiesView::of(header.properties);
    let headers = FieldTable::check(view.headers.unwrap()).unwrap();
    assert!(headers.has_flag("table", "yes") && headers.get("none").is_some());
    let others = PropertiesView {
        content_type: Some(b"text/plain"),
        content_encoding: Some(b"gzip"),
        delivery_mode: Some(2),
        priority: Some(9),
        correlation_id: Some(b"correlation"),
        reply_to: Some(b"reply"),
        expiration: Some(b"1000"),
        message_id: Some(b"message"),
        timestamp: Some(1_700_000_000),
        message_type: Some(b"type"),
        user_id: Some(b"user"),
        app_id: Some(b"app"),
        headers: view.headers,
    };
    assert_eq!(view, others);

    let mut written = Vec::new();
    put_content(CHANNEL, header.properties, b"hello", MAX, &mut written);
    assert_eq!(written, [&golden["header.full"][..], &golden["body"]].concat());
    written.clear();
    put_content(CHANNEL, &[0, 0], b"", MAX, &mut written);
    assert_eq!(written, golden["header.empty"]);
    written.clear();
    put_heartbeat(&mut written);
    assert_eq!(written, golden["heartbeat"]);
    assert_eq!(golden["protocol"], PROTOCOL_HEADER);
}

/// An argument of a kind: its bytes as the specification has them. Bits are merged by the writer of the method.
fn argument(kind: Kind) -> BoxedStrategy<Vec<u8>> {
    let number = |bytes: usize| prop::collection::vec(any::<u8>(), bytes).boxed();
    match kind {
        Kind::Bit => any::<bool>().prop_map(|bit| vec![u8::from(bit)]).boxed(),
        Kind::Octet => number(1),
        Kind::Short => number(2),
        Kind::Long => number(4),
        Kind::LongLong => number(8),
        Kind::ShortText => "[a-zé.*# ]{0,40}".prop_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).boxed(),
        Kind::LongText => {
            prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| [&long(&bytes), &bytes[..]].concat()).boxed()
        }
        Kind::Table => ("[a-z]{0,9}", any::<bool>(), "[a-z]{0,9}")
            .prop_map(|(name, bit, text)| {
                let table = TableWriter::entries(|table| {
                    table.bool(&name, bit);
                    table.table(&text, |inner| inner.text(&name, &text));
                });
                [&long(&table), &table[..]].concat()
            })
            .boxed(),
    }
}

fn long(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}

/// The payload of any method of the table, with the kinds of its arguments. Only the lowest eight bits of a run are distinct: no
/// method has more.
fn payloads() -> impl Strategy<Value = (usize, Vec<u8>)> {
    (0..Method::ALL.len()).prop_flat_map(|place| {
        let row = Method::ALL[place];
        let arguments: Vec<_> = row.kinds.iter().map(|kind| argument(*kind)).collect();
        arguments.prop_map(move |arguments| {
            let mut payload = [row.id.class.to_be_bytes(), row.id.method.to_be_bytes()].concat();
            let mut bits = 0;
            for (kind, bytes) in row.kinds.iter().zip(arguments) {
                if *kind != Kind::Bit {
                    bits = 0;
                    payload.extend(bytes);
                    continue;
                }
                if bits == 0 {
                    payload.push(0);
                }
                *payload.last_mut().unwrap() |= bytes[0] << bits;
                bits += 1;
            }
            (place, payload)
        })
    })
}

/// Whether a method has arguments that are read and forgotten.
fn has_reserved(place: usize) -> bool {
    let name = Method::ALL[place].name;
    let with_ticket = ["exchange.", "queue.", "basic."].iter().any(|class| name.starts_with(class));
    with_ticket || ["connection.open", "connection.open_ok", "channel.open", "channel.open_ok"].contains(&name)
}

proptest! {
    #[test]
    fn each_method_is_read_and_written_again((place, payload) in payloads()) {
        let method = Method::read(&payload).unwrap();
        prop_assert_eq!((method.id(), method.name()), (Method::ALL[place].id, Method::ALL[place].name));

        let mut frame = Vec::new();
        method.put(CHANNEL, &mut frame);
        let (frame, _) = next_frame(&frame, MAX).unwrap().unwrap();
        prop_assert_eq!(Method::read(frame.payload), Ok(method));
        if !has_reserved(place) {
            prop_assert_eq!(frame.payload, &payload[..]);
        }
    }

    #[test]
    fn a_method_that_is_cut_off_or_too_long_is_refused((_, payload) in payloads(), byte: u8) {
        for end in 0..payload.len() {
            prop_assert!(Method::read(&payload[..end]).is_err(), "{} bytes", end);
        }
        prop_assert!(Method::read(&[&payload[..], &[byte]].concat()).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), place in 0..Method::ALL.len()) {
        let _ = Method::read(&bytes);
        let id = Method::ALL[place].id;
        let payload = [&id.class.to_be_bytes()[..], &id.method.to_be_bytes(), &bytes].concat();
        if let Ok(method) = Method::read(&payload) {
            let mut frame = Vec::new();
            method.put(CHANNEL, &mut frame);
            let (frame, _) = next_frame(&frame, MAX).unwrap().unwrap();
            prop_assert_eq!(Method::read(frame.payload), Ok(method));
        }
    }

    #[test]
    fn a_corrupt_method_is_read_or_refused((_, mut payload) in payloads(), at in any::<prop::sample::Index>(), byte: u8) {
        let at = at.index(payload.len());
        payload[at] = byte;
        let _ = Method::read(&payload);
    }
}
