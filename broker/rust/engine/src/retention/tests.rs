//! Callers that expire the same part of a stream.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_log::Payload;

use super::*;
use crate::engine::{Engine, EngineOptions};
use crate::level::QueueLevels;
use crate::publication::Publication;
use crate::queue_entry::QueueSettings;
use crate::stream::StreamSettings;

const STREAM: QueueId = QueueId(1);
const BODY_BYTES: u64 = 500;

fn engine() -> Engine {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 1,
    };
    Engine::new(options).unwrap()
}

/// A stream of several segments.
fn filled(engine: &Engine, directory: &Path) -> Arc<Shard> {
    let shard = engine.open_shard("/", directory, false).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    shard.put_queues([QueueSettings { id: STREAM, name: "s", auto_delete: false, levels, stream }]).unwrap();
    let body = [b'x'; BODY_BYTES as usize];
    let payload = Payload::new(b"", b"s", b"", &body).unwrap();
    let one = || Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: false };
    for _ in 0..400 {
        shard.publish(&[one()], None, 1, &mut Vec::new()).unwrap();
    }
    shard
}

fn measured(shard: &Shard, portion: &Portion) -> Measured {
    let last = portion.runs.last().unwrap().0.last;
    let settled_count = shard.settled_count_below(STREAM, last).unwrap().unwrap();
    Measured { last, bytes: shard.bytes_of(STREAM, portion).unwrap(), settled_count }
}

fn check_bytes(shard: &Shard) -> u64 {
    let standing = shard.stream_states(&[STREAM]).unwrap()[0];
    assert_eq!(standing.bytes, standing.count * BODY_BYTES);
    standing.count
}

/// The bytes of the part were subtracted by both callers.
#[test]
fn a_part_that_another_caller_expired_takes_its_bytes_along_once() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine();
    let shard = filled(&engine, directory.path());
    let portion = shard.lowest(STREAM).unwrap().unwrap();
    let late = measured(&shard, &portion);
    let count = shard.expire(STREAM, &portion).unwrap().unwrap();
    assert!(count > 50);

    assert!(matches!(shard.settle_measured(STREAM, &late), Ok(Expired::Changed)));

    assert_eq!(check_bytes(&shard), 400 - count);
    assert_eq!(shard.expire(STREAM, &portion).unwrap(), Some(0), "there may be more above it");
}

/// A caller that had measured a part subtracted the bytes of messages that a purge had taken along.
#[test]
fn a_part_is_measured_again_when_some_of_it_was_settled() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine();
    let shard = filled(&engine, directory.path());
    let portion = shard.lowest(STREAM).unwrap().unwrap();
    let late = measured(&shard, &portion);
    let ten = SequenceRange { first: Sequence(1), last: Sequence(10) };
    shard.lock().unwrap().settle_runs(STREAM, &[(ten, 10 * BODY_BYTES)]);

    assert!(matches!(shard.settle_measured(STREAM, &late), Ok(Expired::Changed)));
    let count = shard.expire(STREAM, &portion).unwrap().unwrap();

    assert_eq!(check_bytes(&shard), 390 - count);
}
