//! Measures the cost of appending: messages of some body size, written in batches, into a directory given as the first
//! argument (a temporary one by default). `cargo run --release -p penstock-log --example append_speed -- DIR BODY
//! COUNT`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::time::Instant;

use penstock_log::{Log, LogOptions, Payload, Target};
use penstock_queue::{QueueId, Sequence};

const BATCH: u64 = 100;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("penstock-append-speed"), PathBuf::from);
    let body = vec![7; arguments.next().map_or(16, |bytes| bytes.parse().expect("a number of bytes"))];
    let count: u64 = arguments.next().map_or(5_000_000, |count| count.parse().expect("a number of messages"));
    std::fs::remove_dir_all(&directory).ok();
    let mut log = Log::open(&directory, LogOptions::default()).unwrap().log;

    let (mut payloads, mut appends, mut writes) = (0, 0, 0);
    let started = Instant::now();
    let mut sequence = 1;
    while sequence <= count {
        let at = Instant::now();
        let batch: Vec<_> = (0..BATCH).map(|_| Payload::new(b"", b"queue1", b"abc", &body).unwrap()).collect();
        payloads += at.elapsed().as_nanos() as u64;
        let at = Instant::now();
        for payload in &batch {
            let target = Target { queue: QueueId(1), sequence: Sequence(sequence) };
            log.append_message(payload, 1_700_000_000_000, &[target]).unwrap();
            sequence += 1;
        }
        appends += at.elapsed().as_nanos() as u64;
        let at = Instant::now();
        if sequence % (10 * BATCH) == 1 || sequence > count {
            log.write().unwrap();
        }
        writes += at.elapsed().as_nanos() as u64;
    }
    let all = started.elapsed().as_nanos() as u64;
    println!("per message of {} B, {count} messages, in ns:", body.len());
    println!("  payload checksum {:6.1}", payloads as f64 / count as f64);
    println!("  append and roll  {:6.1}", appends as f64 / count as f64);
    println!("  write            {:6.1}", writes as f64 / count as f64);
    println!("  all              {:6.1}", all as f64 / count as f64);

    let at = Instant::now();
    let mut folds = 0;
    while let Some(ticket) = log.begin_fold() {
        log.finish_fold(ticket.perform().unwrap()).perform().unwrap();
        folds += 1;
    }
    println!("  {folds} folds with syncs and directories {:6.1}", at.elapsed().as_nanos() as f64 / count as f64);
    let at = Instant::now();
    let (mut next, mut bytes) = (1, 0);
    while let Some(located) = log.locate(QueueId(1), Sequence(next), 100).unwrap() {
        for &offset in &located.offsets {
            bytes += located.segment.message(offset).unwrap().body.len();
        }
        next += located.offsets.len() as u64;
    }
    println!(
        "  locate and read  {:6.1} ({} of them)",
        at.elapsed().as_nanos() as f64 / count as f64,
        bytes / body.len()
    );
    drop(log);
    let at = Instant::now();
    let opened = Log::open(&directory, LogOptions::default()).unwrap();
    println!("  open again: {:?}, {:?}", at.elapsed(), opened.recovery);
    std::fs::remove_dir_all(&directory).ok();
}
