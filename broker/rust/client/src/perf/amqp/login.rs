//! What a connection says before and after its messages: log-in, its one channel, queues, and the end.

use std::time::{Duration, Instant};

use penstock_wire::Name;
use penstock_wire::amqp::argument::{FieldTable, LongText};
use penstock_wire::amqp::frame::{FrameKind, PROTOCOL_HEADER};
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::table_writer::TableWriter;

use super::link::{FRAME_BYTES_MAX, Link};
use super::options::Options;

/// The channel of every connection.
pub(super) const CHANNEL: u16 = 1;
/// How long the broker may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects, logs in and opens the channel.
pub(super) fn open(options: &Options) -> Result<Link, String> {
    let mut link = Link::connect(&options.host, options.port)?;
    link.out.extend_from_slice(&PROTOCOL_HEADER);
    answer(&mut link, |method| matches!(method, Method::ConnectionStart { .. }).then_some(()))?;

    let properties = TableWriter::entries(|table| {
        table.table("capabilities", |inner| {
            ["authentication_failure_close", "consumer_cancel_notify", "publisher_confirms", "basic.nack"]
                .iter()
                .for_each(|name| inner.bool(name, true));
        });
        table.text("product", "penstock perf");
    });
    let client_properties = FieldTable::check(&properties).unwrap_or_default();
    let response = format!("\0{}\0{}", options.user, options.password);
    let (mechanism, response, locale) = (Name::cut("PLAIN"), LongText(response.as_bytes()), Name::cut("en_US"));
    Method::ConnectionStartOk { client_properties, mechanism, response, locale }.put(0, &mut link.out);
    let (channel_max, frame_max) = answer(&mut link, |method| match *method {
        Method::ConnectionTune { channel_max, frame_max, .. } => Some((channel_max, frame_max)),
        _ => None,
    })
    .map_err(|error| format!("{error}; check user and password"))?;

    // 0 is no limit.
    link.frame_bytes_max = if frame_max == 0 { FRAME_BYTES_MAX } else { frame_max.min(FRAME_BYTES_MAX) };
    // A connection that does nothing but wait needs no heartbeats here.
    Method::ConnectionTuneOk { channel_max, frame_max: link.frame_bytes_max, heartbeat: 0 }.put(0, &mut link.out);
    let virtual_host = Name::new("a vhost", options.vhost.as_bytes()).map_err(|error| error.to_string())?;
    Method::ConnectionOpen { virtual_host }.put(0, &mut link.out);
    Method::ChannelOpen {}.put(CHANNEL, &mut link.out);
    answer(&mut link, |method| matches!(method, Method::ChannelOpenOk { .. }).then_some(()))?;
    Ok(link)
}

/// Declares a durable queue, and a quorum queue if it is to be one.
pub(super) fn declare(link: &mut Link, queue: &str, is_quorum: bool) -> Result<(), String> {
    let entries = TableWriter::entries(|table| {
        if is_quorum {
            table.text("x-queue-type", "quorum");
        }
    });
    let (queue, arguments) = (Name::cut(queue), FieldTable::check(&entries).unwrap_or_default());
    let (passive, durable, exclusive, auto_delete, nowait) = (false, true, false, false, false);
    Method::QueueDeclare { queue, passive, durable, exclusive, auto_delete, nowait, arguments }
        .put(CHANNEL, &mut link.out);
    answer(link, |method| matches!(method, Method::QueueDeclareOk { .. }).then_some(()))
}

pub(super) fn delete(link: &mut Link, queue: &str) -> Result<(), String> {
    let (if_unused, if_empty, nowait) = (false, false, false);
    Method::QueueDelete { queue: Name::cut(queue), if_unused, if_empty, nowait }.put(CHANNEL, &mut link.out);
    answer(link, |method| matches!(method, Method::QueueDeleteOk { .. }).then_some(()))
}

/// Asks for confirms of all messages.
pub(super) fn select_confirms(link: &mut Link) -> Result<(), String> {
    Method::ConfirmSelect { nowait: false }.put(CHANNEL, &mut link.out);
    answer(link, |method| matches!(method, Method::ConfirmSelectOk {}).then_some(()))
}

/// Opens the consumer.
pub(super) fn consume(link: &mut Link, options: &Options, queue: &str) -> Result<(), String> {
    let (prefetch_size, prefetch_count, global) = (0, options.prefetch, false);
    Method::BasicQos { prefetch_size, prefetch_count, global }.put(CHANNEL, &mut link.out);
    let (queue, consumer_tag, no_ack) = (Name::cut(queue), Name::cut("perf"), options.auto_ack);
    let (no_local, exclusive, nowait, arguments) = (false, false, false, FieldTable::default());
    Method::BasicConsume { queue, consumer_tag, no_local, no_ack, exclusive, nowait, arguments }
        .put(CHANNEL, &mut link.out);
    answer(link, |method| matches!(method, Method::BasicConsumeOk { .. }).then_some(()))
}

/// Ends the connection after everything that was sent before: when the broker confirms it, all of that was done.
pub(super) fn close(link: &mut Link) -> Result<(), String> {
    let reply_text = Name::cut("done");
    Method::ConnectionClose { reply_code: 200, reply_text, class: 0, method: 0 }.put(0, &mut link.out);
    answer(link, |method| matches!(method, Method::ConnectionCloseOk {}).then_some(()))
}

/// Waits for the method that `wanted` recognises, and returns what it makes of it. Anything else but an end is passed over.
fn answer<T>(link: &mut Link, mut wanted: impl FnMut(&Method<'_>) -> Option<T>) -> Result<T, String> {
    let begun = Instant::now();
    let mut found = None;
    loop {
        link.write()?;
        link.frames(|frame, _| {
            if frame.kind == FrameKind::Method {
                let method = Method::read(frame.payload).map_err(|error| error.to_string())?;
                refuse_end(&method)?;
                found = wanted(&method);
            }
            Ok(found.is_none())
        })?;
        if let Some(found) = found {
            return Ok(found);
        }
        let left = ANSWER_TIMEOUT.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(format!("the broker has not answered within {} s", ANSWER_TIMEOUT.as_secs()));
        }
        link.wait(left);
        link.read()?;
    }
}

/// Returns an error for a method by which the broker ends the connection, the channel or the consumer.
pub(super) fn refuse_end(method: &Method<'_>) -> Result<(), String> {
    match method {
        Method::ConnectionClose { reply_code, reply_text, .. }
        | Method::ChannelClose { reply_code, reply_text, .. } => {
            Err(format!("the broker refused with {reply_code}: {}", reply_text.to_text()))
        }
        Method::BasicCancel { .. } => Err("the broker has ended the consumer".to_owned()),
        _ => Ok(()),
    }
}
