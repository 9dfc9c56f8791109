//! An engine with one stream, and operations of tests on it.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{
    Engine, EngineError, EngineOptions, Fate, Filled, Payload, Producer, ProducerSession, Progress, Publication,
    QueueId, QueueLevels, QueueSettings, ReadFrom, ReadSettings, Shard, StreamReader, StreamSettings,
};
use penstock_log::{Begun, Disk, Log, LogOptions, RealDisk};

const PRODUCERS_OF_USER_MAX: usize = 4096;
pub const STREAM: QueueId = QueueId(1);

pub struct House {
    pub engine: Engine,
    pub shard: Arc<Shard>,
}

impl House {
    pub fn close(self) {
        self.engine.close().unwrap();
    }
}

/// The log alone, as an engine that died has left it.
pub fn open_log(directory: &Path) -> Log {
    let mut opened = Log::open(directory, LogOptions::default()).unwrap();
    opened.begin_epoch(Begun::default()).unwrap();
    opened.log
}

/// A message as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say {
    pub offset: u64,
    pub body: String,
    pub key: Option<Vec<u8>>,
    pub stored_at_ms: u64,
}

pub fn open(directory: &Path) -> House {
    open_with(directory, StreamSettings::default())
}

pub fn open_with(directory: &Path, stream: StreamSettings) -> House {
    open_as(directory, Some(stream), Arc::new(RealDisk))
}

/// An engine whose queue is no stream.
pub fn open_queue(directory: &Path) -> House {
    open_as(directory, None, Arc::new(RealDisk))
}

pub fn open_queue_on(directory: &Path, disk: Arc<dyn Disk>) -> House {
    open_as(directory, None, disk)
}

pub fn open_on(directory: &Path, disk: Arc<dyn Disk>) -> House {
    open_as(directory, Some(StreamSettings::default()), disk)
}

/// An engine that removes unused names of producers.
pub fn open_forgetting(directory: &Path, producer_memory: Duration) -> House {
    open_for(
        directory,
        Some(StreamSettings::default()),
        (Arc::new(RealDisk), false),
        (producer_memory, PRODUCERS_OF_USER_MAX),
    )
}

/// One in which a user may own so many names of producers.
pub fn open_with_few_names(directory: &Path, of_user_max: usize) -> House {
    open_for(directory, Some(StreamSettings::default()), (Arc::new(RealDisk), false), (Duration::ZERO, of_user_max))
}

/// One in which a new name of a user replaces the only one.
pub fn open_with_one_name(directory: &Path) -> House {
    open_for(
        directory,
        Some(StreamSettings::default()),
        (Arc::new(RealDisk), false),
        (Duration::from_secs(7 * 86_400), 1),
    )
}

/// One whose start skips sequences, as after a power failure.
pub fn open_raised(directory: &Path) -> House {
    let names = (Duration::ZERO, PRODUCERS_OF_USER_MAX);
    open_for(directory, Some(StreamSettings::default()), (Arc::new(RealDisk), true), names)
}

fn open_as(directory: &Path, stream: Option<StreamSettings>, disk: Arc<dyn Disk>) -> House {
    open_for(directory, stream, (disk, false), (Duration::ZERO, PRODUCERS_OF_USER_MAX))
}

fn open_for(
    directory: &Path,
    stream: Option<StreamSettings>,
    (disk, raise): (Arc<dyn Disk>, bool),
    (producer_memory, producers_of_user_max): (Duration, usize),
) -> House {
    let engine = engine_for(disk, (producer_memory, producers_of_user_max));
    let shard = engine.open_shard("/", directory, raise).unwrap();
    let settings = QueueSettings { id: STREAM, name: "s", auto_delete: false, levels: QueueLevels::default(), stream };
    shard.put_queues([settings]).unwrap();
    House { engine, shard }
}

/// An engine whose queue is no stream, with what is declared before the definitions count as complete.
pub fn open_declared(directory: &Path, disk: Arc<dyn Disk>, declare: impl FnOnce(&Shard)) -> House {
    let engine = engine_for(disk, (Duration::ZERO, PRODUCERS_OF_USER_MAX));
    let shard = engine.open_incomplete("/", directory, false).unwrap();
    shard.put_queue(STREAM, "s", false, None).unwrap();
    declare(&shard);
    shard.complete();
    House { engine, shard }
}

/// An engine without a vhost.
pub fn engine() -> Engine {
    engine_for(Arc::new(RealDisk), (Duration::ZERO, PRODUCERS_OF_USER_MAX))
}

/// The same on a disk.
pub fn engine_on(disk: Arc<dyn Disk>) -> Engine {
    engine_for(disk, (Duration::ZERO, PRODUCERS_OF_USER_MAX))
}

fn engine_for(disk: Arc<dyn Disk>, (producer_memory, producers_of_user_max): (Duration, usize)) -> Engine {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 256 << 10,
        segment_idle: Duration::from_secs(60),
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 64 << 20,
        producer_memory,
        producers_of_user_max,
    };
    Engine::on_disk(options, disk).unwrap()
}

type Sent<'a> = (&'a str, Option<&'a [u8]>, Option<Producer>);

pub fn publish(house: &House, bodies: &[&str]) {
    publish_at(house, 1, bodies);
}

pub fn publish_at(house: &House, now_ms: u64, bodies: &[&str]) {
    publish_all(house, None, bodies.iter().map(|body| (*body, None, None)), now_ms).unwrap();
}

pub fn publish_all<'a>(
    house: &House,
    session: Option<&ProducerSession>,
    sent: impl IntoIterator<Item = Sent<'a>>,
    now_ms: u64,
) -> Result<Vec<Fate>, EngineError> {
    let batch: Vec<_> = sent.into_iter().map(|sent| publication("", "s", sent)).collect();
    let mut fates = Vec::new();
    house.shard.publish_as(session, &batch, None, now_ms, &mut fates).map(|_| fates)
}

pub fn publish_to<'a>(
    house: &House,
    exchange: &'a str,
    sent: impl IntoIterator<Item = Sent<'a>>,
) -> Result<Vec<Fate>, EngineError> {
    let batch: Vec<_> = sent.into_iter().map(|sent| publication(exchange, "", sent)).collect();
    let mut fates = Vec::new();
    house.shard.publish(&batch, None, 1, &mut fates).map(|_| fates)
}

fn publication<'a>(exchange: &'a str, routing_key: &'a str, (body, key, producer): Sent<'a>) -> Publication<'a> {
    let (exchange, routing_key) = (exchange.as_bytes(), routing_key.as_bytes());
    let mut payload = Payload::new(exchange, routing_key, b"", body.as_bytes()).unwrap();
    if let Some(key) = key {
        payload = payload.with_key(key).unwrap();
    }
    if let Some(producer) = producer {
        payload = payload.with_producer(producer);
    }
    Publication { payload, exchange, key: routing_key, headers: None, persistent: false, mandatory: false }
}

pub fn settings(from: ReadFrom, group: Option<&str>) -> ReadSettings<'_> {
    ReadSettings { from, end: None, group, single_active: false }
}

pub fn reader(house: &House, from: ReadFrom) -> StreamReader {
    house.shard.read(STREAM, settings(from, None)).unwrap()
}

pub fn reader_until(house: &House, from: ReadFrom, end: u64) -> StreamReader {
    house.shard.read(STREAM, ReadSettings { end: Some(end), ..settings(from, None) }).unwrap()
}

/// The messages that a reader finds before it has to wait or ends.
pub fn read_all(reader: &mut StreamReader) -> Vec<Say> {
    let mut found = Vec::new();
    loop {
        let mut filled = Vec::new();
        if reader.fill(7, &mut filled).unwrap() != Progress::Found {
            return found;
        }
        found.extend(filled.iter().flat_map(said));
    }
}

pub fn said(filled: &Filled) -> Vec<Say> {
    let read = filled.picked.iter().map(|one| {
        let view = filled.segment.message(one.offset).unwrap();
        Say {
            offset: one.taken.sequence.0,
            body: String::from_utf8(view.body.to_vec()).unwrap(),
            key: view.key.map(<[u8]>::to_vec),
            stored_at_ms: view.stored_at_ms,
        }
    });
    read.collect()
}
