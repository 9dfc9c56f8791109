//! Expiry while the queues of a start become lanes.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use penstock_log::{Attributes, Payload};

use super::*;
use crate::engine::{Engine, EngineOptions};
use crate::publication::Publication;

const QUEUE: QueueId = QueueId(3);
const YEAR_3000: u64 = 32_503_680_000_000;

fn engine() -> Engine {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    Engine::new(options).unwrap()
}

/// A start finds a lane as a queue with a number of its own. Messages of it that were found over their time before it became a
/// lane were never expired.
#[test]
fn messages_expire_whose_queue_becomes_a_lane_after_they_were_found() {
    let directory = tempfile::tempdir().unwrap();
    {
        let engine = engine();
        let shard = engine.open_shard("/", directory.path(), false).unwrap();
        shard.prioritize_queues([(QUEUE, 9)]).unwrap();
        shard.put_queue(QUEUE, "s", false, None).unwrap();
        let attributes = Attributes { priority: Some(7), expires_at_ms: Some(YEAR_3000), ..Attributes::default() };
        let payload = Payload::new(b"", b"s", b"", b"body").unwrap().with_attributes(&attributes);
        let one = Publication { payload, exchange: b"", key: b"s", headers: None, persistent: false, mandatory: true };
        shard.publish(&[one; 2], None, 1, &mut Vec::new()).unwrap();
        engine.close().unwrap();
    }
    let engine = engine();
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    let found = [(Sequence(1), 4)];
    shard.prioritize_queues([(QUEUE, 9)]).unwrap();
    shard.put_queue(QUEUE, "s", false, None).unwrap();

    assert_eq!(shard.settle_expired(QUEUE.lane(7), &found).unwrap(), 1);

    let counts = shard.queue_counts(&[QUEUE]).unwrap()[0];
    assert_eq!((counts.ready_count, counts.ready_bytes), (1, 4));
    engine.close().unwrap();
}
