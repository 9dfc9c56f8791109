//! The storage of a broker in a test: an engine with the virtual host `/` and the queue `jobs`, in a directory of its own.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Engine, EngineOptions, QueueId, Shard};

/// Opens it with segments of that many bytes, and of four times as many at most. It ends with the directory.
pub fn open(segment_bytes: u64, jobs: QueueId) -> (Arc<Engine>, Arc<Shard>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = EngineOptions {
        segment_bytes_min: segment_bytes,
        segment_bytes_max: 4 * segment_bytes,
        segment_idle: Duration::from_secs(120),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let engine = Arc::new(Engine::new(options).unwrap());
    let shard = engine.open_shard("/", directory.path(), false).unwrap();
    shard.put_queue(jobs, "jobs", false, None).unwrap();
    (engine, shard, directory)
}
