//! Speed of the queue machine and the routing tables: `cargo run --release -p penstock-queue --example queue_speed`.
//!
//! Each figure is the minimum, median and maximum of a few runs, in nanoseconds. It uses no log and no socket.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use penstock_queue::{
    AckSet, Destination, ExchangeKind, Matched, Queue, QueueId, Routing, Sequence, SequenceRange, Settle,
    SubscriptionSettings,
};

const RUNS: usize = 7;
const BATCH: u32 = 100;
const MESSAGES: u32 = 2_000_000;
const MANY: u32 = 10_000;
const CHANGES: u32 = 2 * MANY;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    report("publish, take 100, size 100, settle one range, a message", MESSAGES, || pass(1_000, settle_range))?;
    report("publish, take 100, size 100, settle one by one, a message", MESSAGES, || pass(1_000, settle_each))?;
    report("the same with 65,000 held", MESSAGES, || pass(65_000, settle_range))?;
    report("publish alone, a message", MESSAGES, publish)?;
    report("ack in order, an ack", MESSAGES, || ack(|place| place))?;
    report("ack in order but the first, an ack", MESSAGES, || ack(|place| place + 1))?;
    report("ack every second before the one below it, an ack", MESSAGES, || ack(|place| place ^ 1))?;
    report("ack hundreds of two consumers in turns, an ack", MESSAGES, || ack(in_turns))?;
    report("ack 500,000 of a million at random, an ack", 500_000, || ack_scattered(500_000))?;
    report("ack a million at random, an ack", 1_000_000, || ack_scattered(1_000_000))?;
    report("wake, take 1, settle 1 with 10,000 subscriptions, a message", MESSAGES / 10, many_subscriptions)?;
    report("requeue 100 and take them again, a message", MESSAGES / 10, requeue)?;
    routing()
}

fn report(what: &str, count: u32, mut run: impl FnMut() -> Outcome) -> Outcome {
    let mut figures = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        figures.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(count));
    }
    figures.sort_by(f64::total_cmp);
    let mut line = String::new();
    for figure in [figures.first(), figures.get(RUNS / 2), figures.last()].into_iter().flatten() {
        write!(line, "{figure:10.1}")?;
    }
    println!("{line}  ns  {what}");
    Ok(())
}

const fn settings(prefetch: u32) -> SubscriptionSettings {
    SubscriptionSettings { prefetch, auto_ack: false, exclusive: false }
}

/// One consumer that holds up to `held` messages and settles the oldest hundred whenever it has taken the next.
fn pass(held: u32, settle: fn(&mut Queue, penstock_queue::SubscriptionId, SequenceRange)) -> Outcome {
    let mut queue = Queue::new();
    let id = queue.subscribe(settings(held + BATCH))?;
    let (mut taken, mut sizes) = (Vec::new(), Vec::new());
    let mut oldest = Sequence::FIRST;
    for _ in 0..MESSAGES / BATCH {
        for _ in 0..BATCH {
            black_box(queue.publish(16));
        }
        taken.clear();
        queue.take(id, BATCH, &mut taken);
        sizes.clear();
        sizes.extend(taken.iter().map(|message| (message.sequence, 16)));
        queue.sized(id, &sizes);
        if queue.unacked_count() >= u64::from(held) {
            let range = SequenceRange { first: oldest, last: Sequence(oldest.0 + u64::from(BATCH) - 1) };
            settle(&mut queue, id, range);
            oldest = range.last.next();
        }
    }
    Ok(())
}

fn settle_range(queue: &mut Queue, id: penstock_queue::SubscriptionId, range: SequenceRange) {
    black_box(queue.settle(id, &[range], Settle::Ack));
}

fn settle_each(queue: &mut Queue, id: penstock_queue::SubscriptionId, range: SequenceRange) {
    for number in range.first.0..=range.last.0 {
        let one = SequenceRange { first: Sequence(number), last: Sequence(number) };
        black_box(queue.settle(id, &[one], Settle::Ack));
    }
}

fn publish() -> Outcome {
    let mut queue = Queue::new();
    for _ in 0..MESSAGES {
        black_box(black_box(&mut queue).publish(16));
    }
    Ok(())
}

/// Acks each message once, in the order that `place` has them.
fn ack(place: fn(u64) -> u64) -> Outcome {
    let mut settled = AckSet::default();
    for number in 0..u64::from(MESSAGES) {
        let sequence = Sequence(Sequence::FIRST.0 + place(number));
        black_box(&mut settled).insert(SequenceRange { first: sequence, last: sequence });
    }
    Ok(())
}

/// The second hundred of two before the first.
fn in_turns(number: u64) -> u64 {
    let batch = u64::from(BATCH);
    number / (2 * batch) * (2 * batch) + (number + batch) % (2 * batch)
}

/// Acks so many of about a million messages, each at a place that has nothing to do with the last.
fn ack_scattered(count: u64) -> Outcome {
    let mut settled = AckSet::default();
    for number in 0..count {
        let sequence = Sequence(Sequence::FIRST.0 + (number * 0x9_e375) % (1 << 20));
        black_box(&mut settled).insert(SequenceRange { first: sequence, last: sequence });
    }
    black_box(settled.next_unsettled(Sequence::FIRST));
    Ok(())
}

fn many_subscriptions() -> Outcome {
    let mut queue = Queue::new();
    for _ in 0..MANY {
        let id = queue.subscribe(settings(1))?;
        queue.wait(id);
    }
    let mut taken = Vec::new();
    for _ in 0..MESSAGES / 10 {
        queue.publish(16);
        let Some(id) = queue.next_to_wake() else { continue };
        taken.clear();
        queue.take(id, BATCH, &mut taken);
        for message in &taken {
            queue.sized(id, &[(message.sequence, 16)]);
            let range = SequenceRange { first: message.sequence, last: message.sequence };
            black_box(queue.settle(id, &[range], Settle::Ack));
        }
        queue.wait(id);
    }
    Ok(())
}

fn requeue() -> Outcome {
    let mut queue = Queue::new();
    let id = queue.subscribe(settings(BATCH))?;
    for _ in 0..BATCH {
        queue.publish(16);
    }
    let everything = SequenceRange { first: Sequence::FIRST, last: Sequence(u64::MAX) };
    let mut taken = Vec::new();
    for _ in 0..MESSAGES / 10 / BATCH {
        taken.clear();
        queue.take(id, BATCH, &mut taken);
        black_box(queue.settle(id, &[everything], Settle::Requeue));
    }
    Ok(())
}

fn routing() -> Outcome {
    let mut routing = Routing::new();
    routing.put_exchange("direct", ExchangeKind::Direct, None);
    routing.put_exchange("topic", ExchangeKind::Topic, None);
    routing.put_exchange("fanout", ExchangeKind::Fanout, None);
    for number in 0..MANY {
        let queue = format!("queue-{number}");
        routing.put_queue(&queue, QueueId(number.into()));
        routing.add_route("direct", &queue, None, Destination::Queue(&queue))?;
        routing.add_route("topic", &format!("site.{number}.*.#"), None, Destination::Queue(&queue))?;
        routing.add_route("fanout", "", None, Destination::Queue(&queue))?;
    }
    for (exchange, key, count) in [
        ("", "queue-77", MESSAGES),
        ("direct", "queue-77", MESSAGES),
        ("topic", "site.77.pump.pressure", MESSAGES / 10),
        ("fanout", "", 100),
    ] {
        let what = format!("route through exchange '{exchange}' with 10,000 bindings");
        report(&what, count, || route(&routing, exchange, key, count))?;
    }
    [MANY, 10 * MANY].into_iter().try_for_each(bind)
}

/// Binds and unbinds one more queue beside so many bindings of each exchange.
fn bind(count: u32) -> Outcome {
    let mut routing = Routing::new();
    let exchanges =
        [("direct", ExchangeKind::Direct), ("topic", ExchangeKind::Topic), ("fanout", ExchangeKind::Fanout)];
    exchanges.iter().for_each(|&(name, kind)| routing.put_exchange(name, kind, None));
    for number in 0..count {
        let queue = format!("queue-{number}");
        routing.put_queue(&queue, QueueId(number.into()));
        routing.add_route("direct", &queue, None, Destination::Queue(&queue))?;
        routing.add_route("topic", &format!("site.{number}.*.#"), None, Destination::Queue(&queue))?;
        routing.add_route("fanout", "", None, Destination::Queue(&queue))?;
    }
    for (exchange, _) in exchanges {
        let what = format!("bind and unbind beside {count} bindings of a {exchange} exchange");
        report(&what, CHANGES, || (0..CHANGES).try_for_each(|number| change(&mut routing, exchange, number, count)))?;
        let what = format!("{what} while a copy is in use");
        report(&what, CHANGES, || {
            for number in 0..CHANGES {
                let copy = black_box(routing.clone());
                change(&mut routing, exchange, number, count)?;
                drop(copy);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn change(routing: &mut Routing, exchange: &str, number: u32, count: u32) -> Outcome {
    let (key, queue) = (format!("site.{number}.new"), format!("queue-{}", number % count));
    routing.add_route(exchange, &key, None, Destination::Queue(&queue))?;
    Ok(routing.remove_route(exchange, &key, None, Destination::Queue(&queue))?)
}

fn route(routing: &Routing, exchange: &str, key: &str, count: u32) -> Outcome {
    let mut matched = Matched::default();
    for _ in 0..count {
        routing.route(black_box(exchange.as_bytes()), key.as_bytes(), None, &mut matched)?;
        black_box(&matched.queues);
    }
    Ok(())
}
