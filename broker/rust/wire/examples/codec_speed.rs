//! Prints the cost of parsing and encoding per message: `cargo run --release -p penstock-wire --example codec_speed`.

use std::hint::black_box;
use std::time::Instant;

use penstock_wire::Name;
use penstock_wire::amqp::channel::Channel;
use penstock_wire::amqp::content::put_content;
use penstock_wire::amqp::delivery::{self, put_delivery};
use penstock_wire::amqp::frame::next_frame;
use penstock_wire::amqp::method::Method;
use penstock_wire::amqp::properties::PERSISTENT_ONLY;
use penstock_wire::grpc::{
    BatchEncoder, ConsumeEvent, DeliveriesEncoder, DeliveryRef, PublishFrame, parse_consume_response, parse_publish,
};

const BATCH: usize = 100;
const ROUNDS: usize = 20_000;
const FRAME_MAX: u32 = 131_072;

fn main() {
    for size in [16, 100, 1_024] {
        let body = vec![b'x'; size];
        let mut encoder = BatchEncoder::begin(Vec::new(), "", "perf-1", false);
        (0..BATCH).for_each(|_| encoder.push(&body, None));
        let request = encoder.finish();
        let mut deliveries = Vec::new();
        measure(size, "encode batch", || {
            let mut encoder = BatchEncoder::begin(Vec::with_capacity(request.len()), "", "perf-1", false);
            (0..BATCH).for_each(|_| encoder.push(black_box(&body), None));
            encoder.finish().len()
        });
        measure(size, "parse batch", || match parse_publish(black_box(&request)) {
            Ok(PublishFrame::Batch(batch)) => batch.messages().flatten().map(|message| message.body.len()).sum(),
            _ => 0,
        });
        measure(size, "encode deliveries", || {
            deliveries.clear();
            encode_deliveries(&mut deliveries, black_box(&body));
            deliveries.len()
        });
        measure(size, "parse deliveries", || match parse_consume_response(black_box(&deliveries)) {
            Ok(ConsumeEvent::Deliveries(view)) => view.flatten().map(|delivery| delivery.body.len()).sum(),
            _ => 0,
        });
        measure_amqp(size, &body);
    }
}

/// Publishes as frames of one read become messages of a channel; deliveries become frames.
fn measure_amqp(size: usize, body: &[u8]) {
    let (exchange, routing_key) = (Name::EMPTY, Name::cut("perf-1"));
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    for _ in 0..BATCH {
        Method::BasicPublish { exchange, routing_key, mandatory: false, immediate: false }.put(1, &mut frames);
        put_content(1, &PERSISTENT_ONLY, body, FRAME_MAX, &mut frames);
    }
    let mut channel = Channel::new(1, 1 << 20);
    Method::ChannelOpen {}.put(1, &mut out);
    if let Ok(Some((open, _))) = next_frame(&out, FRAME_MAX) {
        let _ = channel.take(open, &mut Vec::new());
    }
    measure(size, "take AMQP publishes", || {
        let mut rest = black_box(&frames[..]);
        while let Ok(Some((frame, length))) = next_frame(rest, FRAME_MAX) {
            let _ = channel.take(frame, &mut out);
            rest = rest.get(length..).unwrap_or_default();
        }
        channel.assembly_mut().advance(BATCH);
        frames.len()
    });
    measure(size, "take them together", || {
        let taken = channel.take_messages(black_box(&frames), FRAME_MAX, usize::MAX);
        channel.assembly_mut().advance(BATCH);
        taken.bytes
    });
    measure(size, "put AMQP deliveries", || {
        out.clear();
        for delivery_tag in 0..BATCH as u64 {
            let delivery = delivery::DeliveryRef {
                consumer_tag: b"ctag1.0",
                delivery_tag,
                redelivered: false,
                exchange: b"",
                routing_key: b"perf-1",
                properties: &PERSISTENT_ONLY,
                body: black_box(body),
            };
            put_delivery(1, &delivery, FRAME_MAX, &mut out);
        }
        out.len()
    });
}

fn encode_deliveries(out: &mut Vec<u8>, body: &[u8]) {
    let mut encoder = DeliveriesEncoder::begin(out);
    for sequence in 0..BATCH as u64 {
        let delivery = DeliveryRef {
            sequence: 1_000_000 + sequence,
            body,
            exchange: b"",
            routing_key: b"perf-1",
            properties_amqp: &PERSISTENT_ONLY,
            redelivered: false,
            delivery_count: 0,
            stored_at_ms: 1_700_000_000_000,
            key: None,
        };
        if encoder.push(&delivery).is_err() {
            return;
        }
    }
    encoder.finish();
}

fn measure(size: usize, what: &str, mut round: impl FnMut() -> usize) {
    let start = Instant::now();
    let mut total = 0;
    for _ in 0..ROUNDS {
        total += round();
    }
    let ns = start.elapsed().as_nanos() as f64 / (ROUNDS * BATCH) as f64;
    println!("{size:>5} B  {what:<18} {ns:>6.1} ns a message  ({} bytes a round)", total / ROUNDS);
}
