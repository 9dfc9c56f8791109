//! A plain model of a log's queues, and a disk that loses unsynced data. They know nothing of a log's implementation.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod crashed;
pub mod dice;
pub mod load;
pub mod opening;
pub mod past;
pub mod producers;
pub mod recorder;
pub mod replicas;
pub mod vanished;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use penstock_log::{
    BATCHES_MAX, Batches, Disk, FoldState, Format, Log, LogError, Operation, Outcome, Payload, Position, Producer,
    RAISE, RealDisk, Retired, Segment, Settlement, StoredBatch, Target, batch_and_row, marks,
};
use penstock_queue::{QueueId, Sequence, SequenceRange};

#[allow(unused_imports)]
pub use self::opening::{open, open_with, small_segments};

/// Size of a message's record besides its targets and its payload: 24 bytes of header, 10 of head.
const FIXED_BYTES: u64 = 24 + 10;
const TARGET_BYTES: u64 = 12;
/// Size of a producer in it.
fn producer_bytes(format: Format) -> u64 {
    if format == Format::One { 20 } else { 22 }
}

/// A start appends one epoch record: 24 bytes of header; epoch and raises, in format 2 also time and leader.
pub fn epoch_record_bytes(format: Format) -> u64 {
    24 + if format == Format::One { 9 } else { 31 }
}

/// A stored message as its publisher knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub stored_at_ms: u64,
    pub exchange: Vec<u8>,
    pub routing_key: Vec<u8>,
    pub properties: Vec<u8>,
    pub body: Vec<u8>,
}

impl Stored {
    fn record_bytes(&self, targets: usize) -> u64 {
        let Stored { exchange, routing_key, properties, body, .. } = self;
        let payload = exchange.len() + routing_key.len() + properties.len() + body.len();
        FIXED_BYTES + targets as u64 * TARGET_BYTES + payload as u64
    }
}

#[derive(Clone, Debug, Default)]
pub struct ModelQueue {
    pub next: u64,
    /// How many messages it ever got.
    pub received: u64,
    pub messages: BTreeMap<u64, Arc<Stored>>,
    pub delivery_counts: BTreeMap<u64, u32>,
    /// How often each message of a named producer was stored here, by the producer's id and sequence.
    pub copies: BTreeMap<(u64, u64), u32>,
}

/// All queues, as a client would remember them, with marks and named producers. Queues are shared between the models of
/// a load, one per record.
#[derive(Clone, Debug)]
pub struct Model {
    pub queues: BTreeMap<u64, Arc<ModelQueue>>,
    pub deleted: BTreeSet<u64>,
    pub first: u64,
    pub highest: u64,
    /// Values by owner and key.
    pub marks: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
    /// The highest sequence of each producer that was stored for all its queues.
    pub producers: BTreeMap<u64, u64>,
    /// The last row of each batch that was stored so, by producer and batch.
    pub batches: BTreeMap<u64, BTreeMap<u32, u32>>,
    pub forgotten: BTreeSet<u64>,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            queues: BTreeMap::new(),
            deleted: BTreeSet::new(),
            first: 1,
            highest: 0,
            marks: BTreeMap::new(),
            producers: BTreeMap::new(),
            batches: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        }
    }
}

impl Model {
    pub fn publish(&mut self, log: &mut Log, queues: &[u64], stored: Stored) -> Result<(), LogError> {
        self.publish_as(log, queues, &Arc::new(stored), None).map(|_| ())
    }

    /// Publishes a message, of a named producer or not. Returns where its records end, except for the last, with the
    /// content of a log that ends there.
    pub fn publish_as(
        &mut self,
        log: &mut Log,
        queues: &[u64],
        stored: &Arc<Stored>,
        producer: Option<Producer>,
    ) -> Result<Vec<(Position, Model)>, LogError> {
        let mut payload = Payload::new(&stored.exchange, &stored.routing_key, &stored.properties, &stored.body)?;
        if let Some(producer) = producer {
            payload = payload.with_producer(producer);
            if let Some((batch, row)) = batch_and_row(producer.sequence) {
                payload = payload.with_batch_digest(producers::digest_of(batch, row));
            }
        }
        let next = |queue: &u64| self.queues.get(queue).map_or(self.first, |queue| queue.next);
        let target = |queue: &u64| Target { queue: QueueId(*queue), sequence: Sequence(next(queue)) };
        let targets: Vec<Target> = queues.iter().map(target).collect();
        let mut end = log.end();
        log.append_message(&payload, stored.stored_at_ms, &targets)?;
        let mut before = Vec::new();
        let mut records = targets.chunks(log.format().targets_max()).peekable();
        while let Some(targets) = records.next() {
            targets.iter().for_each(|target| self.store(*target, stored, producer));
            end.0 += stored.record_bytes(targets.len());
            if records.peek().is_some() {
                before.push((end, self.clone()));
            }
        }
        if let Some(Producer { id, sequence }) = producer {
            end.0 += producer_bytes(log.format());
            self.producers.insert(id.get(), sequence);
            if let Some((batch, row)) = batch_and_row(sequence) {
                self.batches.entry(id.get()).or_default().insert(batch, row);
            }
        }
        assert_eq!(end, log.end(), "only the last record names the producer");
        Ok(before)
    }

    fn store(&mut self, target: Target, stored: &Arc<Stored>, producer: Option<Producer>) {
        let queue = Arc::make_mut(self.queues.entry(target.queue.0).or_default());
        queue.messages.insert(target.sequence.0, Arc::clone(stored));
        queue.next = target.sequence.0 + 1;
        queue.received += 1;
        if let Some(Producer { id, sequence }) = producer {
            *queue.copies.entry((id.get(), sequence)).or_insert(0) += 1;
        }
        self.highest = self.highest.max(target.queue.0);
    }

    /// Puts a mark; an empty value removes it.
    pub fn put_mark(&mut self, log: &mut Log, owner: &[u8], key: &[u8], value: &[u8]) -> Result<(), LogError> {
        log.append_mark(owner, key, value)?;
        if value.is_empty() {
            self.marks.remove(&(owner.to_vec(), key.to_vec()));
        } else {
            self.marks.insert((owner.to_vec(), key.to_vec()), value.to_vec());
        }
        Ok(())
    }

    /// Settles the messages of a queue with an index in `picks` (modulo their number).
    pub fn settle(&mut self, log: &mut Log, id: u64, outcome: Outcome, picks: &[usize]) {
        self.try_settle(log, id, outcome, picks).unwrap();
    }

    /// The same; a refusal of the log changes nothing.
    pub fn try_settle(&mut self, log: &mut Log, id: u64, outcome: Outcome, picks: &[usize]) -> Result<(), LogError> {
        let Some(queue) = self.queues.get_mut(&id).filter(|queue| !queue.messages.is_empty()) else { return Ok(()) };
        let queue = Arc::make_mut(queue);
        let numbers: Vec<u64> = queue.messages.keys().copied().collect();
        let picked: BTreeSet<u64> = picks.iter().map(|pick| numbers[pick % numbers.len()]).collect();
        let bytes = picked.iter().map(|number| queue.messages[number].body.len() as u64).sum();
        let ranges: Vec<_> =
            picked.iter().map(|&number| SequenceRange::new(Sequence(number), Sequence(number)).unwrap()).collect();
        log.append_settle(QueueId(id), outcome, picked.len() as u64, bytes, &ranges)?;
        for number in picked {
            if outcome == Outcome::Requeue {
                *queue.delivery_counts.entry(number).or_insert(0) += 1;
            } else {
                queue.messages.remove(&number);
                queue.delivery_counts.remove(&number);
            }
        }
        Ok(())
    }

    /// Drops a message of a queue and stores it in another one, in one step.
    pub fn try_move(&mut self, log: &mut Log, from: u64, to: u64, pick: usize) -> Result<(), LogError> {
        let Some(queue) = self.queues.get(&from).filter(|queue| !queue.messages.is_empty()) else { return Ok(()) };
        let (&number, stored) = queue.messages.iter().nth(pick % queue.messages.len()).unwrap();
        let stored = Arc::clone(stored);
        let target =
            Target { queue: QueueId(to), sequence: Sequence(self.queues.get(&to).map_or(self.first, |to| to.next)) };
        let (count, bytes) = (1, stored.body.len() as u64);
        let settlement = Settlement { queue: QueueId(from), outcome: Outcome::Drop, count, bytes, due_at_ms: None };
        let ranges = [SequenceRange::new(Sequence(number), Sequence(number)).unwrap()];
        let payload = Payload::new(&stored.exchange, &stored.routing_key, &stored.properties, &stored.body)?;
        log.append_envelope(&[
            Operation::Settle { settlement, ranges: &ranges },
            Operation::Message { payload, stored_at_ms: stored.stored_at_ms, targets: &[target] },
        ])?;
        let queue = Arc::make_mut(self.queues.get_mut(&from).unwrap());
        queue.messages.remove(&number);
        queue.delivery_counts.remove(&number);
        self.store(target, &stored, None);
        Ok(())
    }

    /// Drops all messages of a queue with one range, sequences settled before included.
    pub fn purge(&mut self, log: &mut Log, id: u64) {
        self.try_purge(log, id).unwrap();
    }

    pub fn try_purge(&mut self, log: &mut Log, id: u64) -> Result<(), LogError> {
        let Some(queue) = self.queues.get_mut(&id).map(Arc::make_mut) else { return Ok(()) };
        let (count, bytes) =
            (queue.messages.len() as u64, queue.messages.values().map(|stored| stored.body.len() as u64).sum());
        let range = SequenceRange::new(Sequence(1), Sequence(queue.next - 1)).unwrap();
        log.append_settle(QueueId(id), Outcome::Drop, count, bytes, &[range])?;
        queue.messages.clear();
        queue.delivery_counts.clear();
        Ok(())
    }

    pub fn delete(&mut self, log: &mut Log, id: u64) {
        self.try_delete(log, id).unwrap();
    }

    pub fn try_delete(&mut self, log: &mut Log, id: u64) -> Result<(), LogError> {
        log.append_delete(QueueId(id))?;
        self.queues.remove(&id);
        self.deleted.insert(id);
        self.highest = self.highest.max(id);
        // A queue with an own log is noted until the note is removed.
        let numbered = marks::owner_of_groups(QueueId(id));
        let goes = |owner: &[u8]| b"dgls".iter().any(|kind| owner.split_first() == Some((kind, &numbered[1..])));
        self.marks.retain(|(owner, _), _| !goes(owner));
        Ok(())
    }

    pub fn raise(&mut self) {
        self.first += RAISE;
        for queue in self.queues.values_mut().map(Arc::make_mut) {
            queue.next += RAISE;
        }
    }

    pub fn check_state(&self, state: &FoldState) {
        let mut found: Vec<u64> = state.queues.keys().map(|id| id.0).collect();
        found.sort_unstable();
        assert_eq!(found, self.queues.keys().copied().collect::<Vec<_>>());
        assert_eq!(state.highest_queue_id.0, self.highest);
        assert_eq!(state.first_sequence.0, self.first);
        assert_eq!(state.marks, self.marks);
        let producers: BTreeMap<u64, u64> = state.producers.iter().map(|(&id, &sequence)| (id, sequence)).collect();
        assert_eq!(producers, self.producers, "what counts as stored of each producer");
        for id in producers.keys() {
            let of_it = self.batches.get(id).cloned().unwrap_or_default();
            let known = state.batches.get(*id);
            assert_eq!(known.and_then(Batches::newest), of_it.keys().next_back().copied(), "newest batch of {id}");
            for (batch, row) in of_it.into_iter().rev().take(BATCHES_MAX) {
                let digest = producers::digest_of(batch, row).get();
                assert_eq!(known.unwrap().get(batch), Some(StoredBatch { batch, row, digest }), "of producer {id}");
            }
        }
        for (id, queue) in &self.queues {
            let folded = &state.queues[&QueueId(*id)];
            assert_eq!(folded.next.0, queue.next, "next of {id}");
            assert_eq!(folded.received(), queue.received, "received by {id}");
            assert_eq!(folded.count, queue.messages.len() as u64, "count of {id}");
            assert_eq!(folded.bytes, queue.messages.values().map(|stored| stored.body.len() as u64).sum::<u64>());
            let counts: BTreeMap<u64, u32> =
                folded.delivery_counts.iter().map(|(sequence, &count)| (sequence.0, count)).collect();
            assert_eq!(counts, queue.delivery_counts);
            let mut unsettled = Vec::new();
            let mut sequence = folded.settled.next_unsettled(Sequence(0));
            while sequence < folded.next {
                unsettled.push(sequence.0);
                sequence = folded.settled.next_unsettled(sequence.next());
            }
            assert_eq!(unsettled, queue.messages.keys().copied().collect::<Vec<_>>(), "unsettled of {id}");
        }
    }

    /// Checks that every message can be read and is as published; runs are the model's without a gap.
    pub fn check_messages(&self, log: &Log) {
        self.check_messages_of(log, |_| true);
    }

    /// The same of some queues.
    pub fn check_messages_of(&self, log: &Log, is_checked: impl Fn(u64) -> bool) {
        let mut records = HashMap::new();
        for (id, queue) in self.queues.iter().filter(|(id, _)| is_checked(**id)) {
            for (&number, stored) in &queue.messages {
                let located =
                    log.locate(QueueId(*id), Sequence(number), 5).unwrap().expect("a stored message is found");
                assert_eq!(located.first.0, number);
                assert!(!located.offsets.is_empty() && located.offsets.len() <= 5);
                for (place, (&offset, sequence)) in located.offsets.iter().zip(number..).enumerate() {
                    // A record is read once, however many queues it is for.
                    let record = records
                        .entry((Arc::as_ptr(&located.segment), offset))
                        .or_insert_with(|| ReadRecord::at(&located.segment, offset));
                    assert!(record.targets.binary_search(&(*id, sequence)).is_ok());
                    if place == 0 {
                        record.check_is(stored);
                    }
                }
            }
        }
    }
}

/// A record with correct checksums.
struct ReadRecord {
    segment: Arc<Segment>,
    offset: u32,
    targets: Vec<(u64, u64)>,
    /// Its message.
    stored: Option<Arc<Stored>>,
}

impl ReadRecord {
    fn at(segment: &Arc<Segment>, offset: u32) -> ReadRecord {
        segment.populate(offset, offset).unwrap();
        let view = segment.message(offset).unwrap();
        view.verify().unwrap();
        let mut targets: Vec<_> = view.targets().map(|target| (target.queue.0, target.sequence.0)).collect();
        targets.sort_unstable();
        ReadRecord { segment: Arc::clone(segment), offset, targets, stored: None }
    }

    fn check_is(&mut self, stored: &Arc<Stored>) {
        if self.stored.as_ref().is_some_and(|known| Arc::ptr_eq(known, stored)) {
            return;
        }
        let view = self.segment.message(self.offset).unwrap();
        assert_eq!(view.body, stored.body);
        assert_eq!(view.routing_key, stored.routing_key);
        assert_eq!(view.exchange, stored.exchange);
        assert_eq!(view.properties, stored.properties);
        assert_eq!(view.stored_at_ms, stored.stored_at_ms);
        self.stored = Some(Arc::clone(stored));
    }
}

pub fn message(body_bytes: usize, seed: u8) -> Stored {
    Stored {
        stored_at_ms: 0x0123_4567_89ab + u64::from(seed),
        exchange: vec![b'x'; usize::from(seed % 3)],
        routing_key: vec![b'k'; usize::from(seed % 7)],
        properties: vec![seed; usize::from(seed % 5)],
        body: (0..body_bytes).map(|at| seed.wrapping_add(at as u8)).collect(),
    }
}

/// A whole sync; the caller checks its result.
pub fn sync(log: &mut Log) {
    if let Some(ticket) = log.begin_sync() {
        let position = ticket.perform().unwrap();
        log.finish_sync(position);
    }
}

/// A whole fold, and the files that are no longer needed.
pub fn fold(log: &mut Log) -> Option<Retired> {
    let folded = log.begin_fold()?.perform().unwrap();
    Some(log.finish_fold(folded))
}

/// A slice of compaction; returns whether there is more to do.
pub fn compact(log: &mut Log, bytes_max: u64) -> Result<bool, LogError> {
    let Some(ticket) = log.begin_compaction() else { return Ok(false) };
    let mut compacted = ticket.perform(bytes_max)?;
    let (more, given_up) = (compacted.more, compacted.given_up.take());
    let removed = log.finish_compaction(compacted).perform();
    match given_up {
        Some(error) => Err(error),
        None => removed.map(|()| more),
    }
}

/// All slices of compaction; returns how many.
pub fn compact_all(log: &mut Log) -> usize {
    let mut slices = 1;
    while compact(log, 700).unwrap() {
        slices += 1;
        assert!(slices < 10_000, "compaction does not come to an end");
    }
    slices
}

/// A disk whose power can fail. Unsynced data is then lost, and so is the name of a file whose directory was not
/// synced; a removed or replaced file whose directory was not synced since is back. Without known names, files are by
/// inode.
#[derive(Debug, Default)]
pub struct ForgetfulDisk {
    synced: Mutex<HashMap<u64, Vec<u8>>>,
    names: Mutex<BTreeMap<PathBuf, u64>>,
    /// Files removed since the directory was synced, with their content on the disk.
    removed: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
    /// Names made by a rename since the directory was synced.
    renamed: Mutex<BTreeSet<PathBuf>>,
    /// Unsynced sectors of files at a failed sync: their pages count as clean, so that no sync brings them to the disk
    /// until they are written again.
    lost: Mutex<BTreeSet<(u64, usize)>>,
    pub sync_fails: AtomicBool,
    /// How many more steps succeed.
    steps: Mutex<Option<usize>>,
    /// Whether a power failure keeps renames that were not synced; both may happen.
    pub keeps_renames: AtomicBool,
}

fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().ino()
}

impl ForgetfulDisk {
    /// After so many more steps every one fails, until the power is back.
    pub fn fail_after(&self, steps: usize) {
        *self.steps.lock().unwrap() = Some(steps);
    }

    fn step(&self) -> io::Result<()> {
        match &mut *self.steps.lock().unwrap() {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(steps) => {
                *steps -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Remembers the disk's content under a name that is about to go.
    fn forget(&self, path: &Path) {
        let Ok(metadata) = std::fs::metadata(path) else { return };
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        if self.names.lock().unwrap().get(path) == Some(&inode) {
            let mut content = self.synced.lock().unwrap().get(&inode).cloned().unwrap_or_default();
            content.resize(metadata.len() as usize, 0);
            self.removed.lock().unwrap().entry(path.to_owned()).or_insert(content);
        }
    }

    /// Leaves the directory as a power failure now would.
    pub fn fail_power(&self, directory: &Path) {
        *self.steps.lock().unwrap() = None;
        let synced = self.synced.lock().unwrap();
        let names = self.names.lock().unwrap();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let inode = inode(&path);
            let is_kept = self.keeps_renames.load(Ordering::SeqCst) && self.renamed.lock().unwrap().contains(&path);
            if names.get(&path) != Some(&inode) && !is_kept {
                std::fs::remove_file(&path).unwrap();
                continue;
            }
            let bytes = std::fs::metadata(&path).unwrap().len() as usize;
            let mut content = synced.get(&inode).cloned().unwrap_or_default();
            content.resize(bytes, 0);
            std::fs::write(&path, content).unwrap();
        }
        for (path, content) in std::mem::take(&mut *self.removed.lock().unwrap()) {
            if !path.exists() {
                std::fs::write(&path, content).unwrap();
            }
        }
        drop((synced, names));
        self.remember(directory).unwrap();
    }

    /// Notes that the directory's names and bytes are on the disk.
    fn remember(&self, directory: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            self.synced.lock().unwrap().insert(inode(&path), std::fs::read(&path)?);
        }
        self.note_names(directory)
    }

    fn note_names(&self, directory: &Path) -> io::Result<()> {
        let mut names = self.names.lock().unwrap();
        names.clear();
        self.removed.lock().unwrap().clear();
        self.renamed.lock().unwrap().clear();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            names.insert(path.clone(), inode(&path));
        }
        Ok(())
    }
}

impl Disk for ForgetfulDisk {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        self.step()?;
        let file = RealDisk.create(path, bytes)?;
        self.synced.lock().unwrap().remove(&inode(path));
        self.lost.lock().unwrap().retain(|(of, _)| *of != inode(path));
        Ok(file)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.step()?;
        RealDisk.write_at(file, bytes, offset)?;
        let inode = inode(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
        let written = offset as usize / 512..(offset as usize + bytes.len()).div_ceil(512);
        self.lost.lock().unwrap().retain(|(of, sector)| *of != inode || !written.contains(sector));
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let (inode, mut content) = (inode(Path::new(&path)), std::fs::read(&path)?);
        let mut synced = self.synced.lock().unwrap();
        let on_disk = synced.entry(inode).or_default();
        on_disk.resize(content.len(), 0);
        let mut lost = self.lost.lock().unwrap();
        if self.sync_fails.load(Ordering::SeqCst) {
            let sectors = content.chunks(512).zip(on_disk.chunks(512)).enumerate();
            lost.extend(sectors.filter(|(_, (now, then))| now != then).map(|(sector, _)| (inode, sector)));
            return Err(io::Error::from_raw_os_error(5));
        }
        for &(_, sector) in lost.range((inode, 0)..(inode + 1, 0)) {
            let (from, to) = (sector * 512, content.len().min((sector + 1) * 512));
            content[from..to].copy_from_slice(&on_disk[from..to]);
        }
        *on_disk = content;
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.forget(to);
        self.renamed.lock().unwrap().insert(to.to_owned());
        RealDisk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.forget(path);
        RealDisk.unlink(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.note_names(path)
    }
}

/// A disk with unreadable sectors: of one file, from a byte on, so many.
#[derive(Debug)]
pub struct BadSectors {
    pub file: PathBuf,
    pub from: u64,
    pub bytes: u64,
}

impl BadSectors {
    fn check(&self, path: &Path, part: Range<u64>) -> io::Result<()> {
        let is_hit = part.start < self.from + self.bytes && self.from < part.end;
        if is_hit && path == self.file { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
}

impl Disk for BadSectors {
    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        self.check(&path, offset..offset + bytes.len() as u64)?;
        RealDisk.read_at(file, bytes, offset)
    }

    fn populate(&self, path: &Path, part: Range<u64>, populate: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
        self.check(path, part)?;
        populate()
    }
}
