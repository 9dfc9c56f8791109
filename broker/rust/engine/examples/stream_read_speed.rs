//! Speed of reading a stream in process, from the page cache: `cargo run --release -p penstock-engine --example
//! stream_read_speed`, followed by the number of messages and the bytes of each if not 5,000,000 and 100.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{
    Engine, EngineOptions, Filled, Payload, Progress, Publication, QueueId, QueueLevels, QueueSettings, ReadFrom,
    ReadSettings, Shard, StreamSettings, Target,
};

const STREAM: QueueId = QueueId(1);
const BATCH: usize = 1000;
const ROUNDS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let count = numbers.next().transpose()?.unwrap_or(5_000_000);
    let size = numbers.next().transpose()?.unwrap_or(100);
    let directory = std::env::temp_dir().join(format!("penstock-stream-read-{}", std::process::id()));
    let options = EngineOptions {
        segment_bytes_min: 1 << 20,
        segment_bytes_max: 64 << 20,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let engine = Engine::new(options)?;
    let shard = engine.open_shard("/", &directory, false)?;
    let stream = Some(StreamSettings::default());
    shard.put_queues([QueueSettings {
        id: STREAM,
        name: "s",
        auto_delete: false,
        levels: QueueLevels::default(),
        stream,
    }])?;
    append(&shard, count, &vec![b'x'; size])?;
    for _ in 0..ROUNDS {
        read(&shard)?;
    }
    shard.close(true)?;
    engine.close()?;
    Ok(())
}

fn append(shard: &Arc<Shard>, count: usize, body: &[u8]) -> Result<()> {
    let started = Started::now()?;
    let mut fates = Vec::new();
    for _ in 0..count / BATCH {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let payload = Payload::new(b"", b"s", b"", body)?;
            let (exchange, key): (&[u8], &[u8]) = (b"", b"s");
            batch.push(Publication { payload, exchange, key, headers: None, persistent: false, mandatory: false });
        }
        fates.clear();
        shard.publish(&batch, None, 1, &mut fates)?;
    }
    started.tell("append", count)?;
    Ok(())
}

fn read(shard: &Arc<Shard>) -> Result<()> {
    let settings = ReadSettings { from: ReadFrom::First, end: None, group: None, single_active: false };
    let mut reader = shard.read(STREAM, settings)?;
    let started = Started::now()?;
    let (mut found, mut bytes, mut filled) = (0, 0, Vec::new());
    while reader.fill(4096, &mut filled)? == Progress::Found {
        for Filled { segment, picked } in filled.drain(..) {
            for one in picked {
                let target = Target { queue: STREAM, sequence: one.taken.sequence };
                bytes += segment.message_for(one.offset, target)?.body.len();
                found += 1;
            }
        }
    }
    started.tell(&format!("read {bytes} bytes"), found)?;
    Ok(())
}

/// A start time, by the clock and by this thread's processor time.
struct Started {
    at: Instant,
    processor: Duration,
}

impl Started {
    fn now() -> Result<Started> {
        Ok(Started { at: Instant::now(), processor: processor_time()? })
    }

    fn tell(self, what: &str, count: usize) -> Result<()> {
        let count = count as f64;
        let rate = count / self.at.elapsed().as_secs_f64() / 1e6;
        let each = (processor_time()? - self.processor).as_secs_f64() * 1e6 / count;
        println!("{what}: {rate:.1} M messages/s, {each:.4} us of processor each");
        Ok(())
    }
}

fn processor_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split_whitespace().next().ok_or("the kernel tells no processor time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}
