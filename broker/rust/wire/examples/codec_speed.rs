//! Prints the cost of parsing and encoding per message: `cargo run --release -p penstock-wire --example codec_speed`.

use std::hint::black_box;
use std::time::Instant;

use penstock_wire::amqp::properties::PERSISTENT_ONLY;
use penstock_wire::grpc::{
    BatchEncoder, ConsumeEvent, DeliveriesEncoder, DeliveryRef, PublishFrame, parse_consume_response, parse_publish,
};

const BATCH: usize = 100;
const ROUNDS: usize = 20_000;

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
    }
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
