//! Mixed use of a log, from a seed: messages, also of named producers, settlements and marks, syncs, folds and
//! compaction, closes and starts. During slow operations, messages keep coming between their disk steps.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_log::{Format, Log, LogError, LogOptions, Opened, Outcome, Position, TARGETS_MAX, marks};
use penstock_queue::QueueId;

use super::crashed::Crash;
use super::dice::Dice;
use super::past::{At, Past};
use super::producers::{self, Sent};
use super::recorder::Recorder;
use super::{Model, Stored, message, open_with};

/// Sizes of segments and of the messages in them.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub segment_bytes: (u64, u64),
    pub body_bytes_max: usize,
    pub large_body_bytes_max: usize,
    /// Queues beside the usual four, which get messages of several records in format 1, and are never deleted.
    pub wide_queues: usize,
    pub format: Format,
}

impl Sizes {
    /// By turns: segments of a sector and more with messages that fill a part of one, and segments of pages. Two of
    /// four have messages for so many more queues than one record names that the last record fills sectors of its own,
    /// which a power failure may lose without the first. Four of eight have each format.
    pub fn of(seed: u64) -> Sizes {
        let wide_queues = if seed % 4 < 2 { TARGETS_MAX + TARGETS_MAX / 2 } else { 0 };
        let format = if seed % 8 < 4 { Format::One } else { Format::Two };
        if seed.is_multiple_of(2) {
            Sizes { segment_bytes: (512, 4096), body_bytes_max: 200, large_body_bytes_max: 6000, wide_queues, format }
        } else {
            Sizes {
                segment_bytes: (4096, 32 << 10),
                body_bytes_max: 1500,
                large_body_bytes_max: 40_000,
                wide_queues,
                format,
            }
        }
    }

    /// The same for a boot with a past. A log stays in format 2 once it has numbers that format 1 does not have.
    pub fn after(seed: u64, past: &Past) -> Sizes {
        let sizes = Sizes::of(seed);
        if past.has_wide_numbers() { Sizes { format: Format::Two, ..sizes } } else { sizes }
    }

    fn wide_ids(&self) -> std::ops::Range<u64> {
        FIRST_WIDE..FIRST_WIDE + self.wide_queues as u64
    }

    /// Numbers for future queues: a torn message leaves a highest one among those that its next copy names.
    fn fresh_ids(&self, highest: u64) -> impl Iterator<Item = u64> + use<> {
        let wide = self.wide_ids();
        (highest + 1..).filter(move |id| !wide.contains(id))
    }
}

/// Queues below it may be deleted.
pub const FIRST_WIDE: u64 = 1_000;

/// The load; see the module. It is shared with the callbacks between steps.
pub struct Load {
    directory: PathBuf,
    recorder: Arc<Recorder>,
    sizes: Sizes,
    dice: Dice,
    log: Option<Log>,
    model: Model,
    past: Past,
    /// Queue numbers are never reused: a deleted one's is replaced by a new one.
    ids: [u64; 4],
    /// The same for numbers of producers.
    producers: [u64; 2],
    /// Messages that producers have to send again, before anything else.
    owed: VecDeque<Sent>,
}

pub type Shared = Arc<Mutex<Load>>;

impl Load {
    /// Opens the log and checks the state found by the start, where the past is that of another boot. A start that
    /// fails ends the load.
    pub fn begin(
        directory: &Path,
        recorder: &Arc<Recorder>,
        seed: u64,
        past: Past,
        crash: Crash,
    ) -> (Shared, Result<(), LogError>) {
        let mut load = Load {
            directory: directory.to_owned(),
            recorder: Arc::clone(recorder),
            sizes: Sizes::after(seed, &past),
            dice: Dice::new(seed),
            log: None,
            model: Model::default(),
            past,
            ids: first_ids(seed),
            producers: [1, 2],
            owed: VecDeque::new(),
        };
        let opened = load.open(crash);
        let load = Arc::new(Mutex::new(load));
        let between = Arc::downgrade(&load);
        recorder.set_between(Some(Box::new(move || {
            // The holder of the load takes these steps itself.
            if let Some(load) = between.upgrade()
                && let Ok(mut load) = load.try_lock()
                && load.dice.once_in(3)
            {
                // A log that refuses does so again at the next call.
                let _ = load.append();
            }
        })));
        (load, opened)
    }

    /// Whether a start failed: the process has ended.
    pub fn is_over(&self) -> bool {
        self.log.is_none()
    }

    pub fn past(&self) -> &Past {
        &self.past
    }

    /// Closes the log for good; returns the content of its queues.
    pub fn end(&mut self) -> Model {
        self.log().close().unwrap();
        self.log = None;
        self.model.clone()
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn open(&mut self, crash: Crash) -> Result<(), LogError> {
        let before = self.recorder.count();
        let options = options(self.sizes, crash.loses_page_cache(), &self.recorder);
        let opened = open_with(&self.directory, options).inspect_err(|_| self.past.start_failed())?;
        let steps = self.recorder.count();
        let (end, model) = self.past.check(&opened, At::after(before), crash);
        self.past.forget_above(end);
        self.model = model;
        let Opened { log, state, .. } = opened;
        self.past.appended(state.position, &self.model, before);
        self.past.synced(log.synced(), steps);
        self.past.written(state.position, steps);
        let Load { model, ids, producers, owed, past, sizes, .. } = self;
        let highest = ids.iter().fold(model.highest, |highest, &id| highest.max(id));
        for (id, fresh) in ids.iter_mut().zip(sizes.fresh_ids(highest)) {
            if *id <= model.highest && !model.queues.contains_key(id) {
                *id = fresh;
            }
        }
        let fresh = model.forgotten.iter().chain(&*producers).max().map_or(0, |&highest| highest + 1);
        for (id, fresh) in producers.iter_mut().zip(fresh..) {
            if model.forgotten.contains(id) {
                *id = fresh;
            }
        }
        *owed = past.sent().iter().filter(|sent| sent.is_owed(model)).cloned().collect();
        self.log = Some(log);
        Ok(())
    }

    /// Closes the log and opens it again, and leaves two unsynced segments.
    pub fn leave_two_segments(&mut self) -> Past {
        self.close().unwrap();
        let begun = self.log().stats().segments;
        while self.log().stats().segments == begun {
            self.append().unwrap();
        }
        self.write().unwrap();
        self.past.clone()
    }

    fn append(&mut self) -> Result<(), LogError> {
        if self.is_over() {
            return Ok(());
        }
        let steps = self.recorder.count();
        let result = self.append_one();
        let end = self.log().end();
        for (position, model) in result.iter().flatten() {
            self.past.appended(*position, model, steps);
        }
        self.past.appended(end, &self.model, steps);
        result?;
        if self.dice.once_in(3) { self.write() } else { Ok(()) }
    }

    /// Returns where its records end, except for the last, and the state there.
    fn append_one(&mut self) -> Result<Vec<(Position, Model)>, LogError> {
        match self.dice.below(30) {
            0..=4 => self.send(),
            // With many queues, the test is about their messages.
            25.. if self.sizes.wide_queues > 0 => self.send(),
            5 => self.forget_producer(),
            6..=9 => self.put_mark().map(|()| Vec::new()),
            _ => self.append_plain().map(|()| Vec::new()),
        }
    }

    fn append_plain(&mut self) -> Result<(), LogError> {
        let Load { log, model, dice, ids, sizes, .. } = self;
        let Some(log) = log.as_mut() else { return Ok(()) };
        let which = dice.below(ids.len());
        let to = settled_queue(dice, ids[which], sizes);
        let picks = |dice: &mut Dice| (0..=dice.below(8)).map(|_| dice.below(40)).collect::<Vec<_>>();
        match dice.below(20) {
            0..=10 => model.publish(log, &some_of(dice, ids, which), some_message(dice, sizes)),
            11..=13 if sizes.format == Format::Two => model.try_move(log, to, ids[which], dice.below(40)),
            11..=15 => model.try_settle(log, to, Outcome::Ack, &picks(dice)),
            16 => model.try_settle(log, to, Outcome::Expire, &picks(dice)),
            17..=18 => model.try_settle(log, to, Outcome::Requeue, &picks(dice)),
            _ if dice.once_in(2) => model.try_purge(log, ids[which]),
            _ => {
                model.try_delete(log, ids[which])?;
                let highest = ids.iter().max().unwrap().max(&model.highest);
                ids[which] = sizes.fresh_ids(*highest).next().unwrap();
                Ok(())
            }
        }
    }

    /// A named producer sends its next message, or again an unconfirmed one.
    fn send(&mut self) -> Result<Vec<(Position, Model)>, LogError> {
        let Load { log, model, dice, ids, sizes, past, owed, producers, recorder, .. } = self;
        let Some(log) = log.as_mut() else { return Ok(Vec::new()) };
        if owed.is_empty() {
            let which = dice.below(ids.len());
            let mut queues = some_of(dice, ids, which);
            if past.sent().is_empty() || dice.once_in(3) {
                queues.extend(sizes.wide_ids());
            }
            let id = producers[dice.below(producers.len())];
            let producer = producers::next_of(id, past.sent(), dice.below(3) as u64);
            let stored = some_message(dice, sizes).into();
            let sent = Sent { producer, stored, queues: queues.into(), steps: recorder.count() };
            past.sends(sent.clone());
            owed.push_back(sent);
        }
        let sent = owed.front().unwrap();
        let before = if sent.is_owed(model) { sent.publish(model, log)? } else { Vec::new() };
        owed.pop_front();
        Ok(before)
    }

    fn forget_producer(&mut self) -> Result<Vec<(Position, Model)>, LogError> {
        let Load { log, model, dice, producers, .. } = self;
        let Some(log) = log.as_mut() else { return Ok(Vec::new()) };
        let which = dice.below(producers.len());
        if !producers::has_name(model, producers[which]) || !dice.once_in(3) {
            return Ok(Vec::new());
        }
        let fresh = producers.iter().max().unwrap() + 1;
        let id = std::mem::replace(&mut producers[which], fresh);
        producers::forget(model, log, id)
    }

    /// A delivery position, the offset of a group, a lease, a decision about a stage, or the note of an own log.
    fn put_mark(&mut self) -> Result<(), LogError> {
        let Load { log, model, dice, ids, sizes, .. } = self;
        let Some(log) = log.as_mut() else { return Ok(()) };
        let which = dice.below(ids.len());
        let queue = QueueId(settled_queue(dice, ids[which], sizes));
        let Some(next) = model.queues.get(&queue.0).map(|found| found.next) else { return Ok(()) };
        let number = next + dice.below(16) as u64;
        let value = if dice.once_in(5) { Vec::new() } else { number.to_le_bytes().to_vec() };
        let key = (dice.below(3) as u64).to_le_bytes();
        match dice.below(8) {
            0..=3 => model.put_mark(log, &marks::owner_of_deliveries(queue), &[], &value),
            4 => model.put_mark(log, &marks::owner_of_groups(queue), &key, &value),
            5 => model.put_mark(log, &marks::owner_of_leases(queue), &key, &value),
            6 => model.put_mark(log, &marks::owner_of_stage(queue), &[], &value),
            _ => model.put_mark(log, &marks::owner_of_own_log(queue), &[], &value),
        }
    }

    fn write(&mut self) -> Result<(), LogError> {
        let written = self.log().write()?;
        self.past.written(written, self.recorder.count());
        Ok(())
    }

    /// The process dies and another one starts, at any point.
    fn restart(&mut self) -> Result<(), LogError> {
        self.log = None;
        self.open(Crash::Kill)
    }

    fn close(&mut self) -> Result<(), LogError> {
        let steps = self.recorder.count();
        let closed = self.log().close();
        // It appends a record where everything has been folded.
        let (end, synced) = (self.log().end(), self.log().synced());
        self.past.appended(end, &self.model, steps);
        closed?;
        self.past.synced(synced, self.recorder.count());
        self.restart()
    }
}

/// Where the format has them, numbers on both sides of 2^32 in every second run.
fn first_ids(seed: u64) -> [u64; 4] {
    let is_wide = Sizes::of(seed).format == Format::Two && seed % 16 >= 12;
    [1, 2, 3, 4].map(|place| if is_wide { (1 << 32) - 3 + place } else { place })
}

fn some_of(dice: &mut Dice, ids: &[u64], which: usize) -> Vec<u64> {
    ids.iter().copied().filter(|id| *id == ids[which] || dice.once_in(3)).collect()
}

fn some_message(dice: &mut Dice, sizes: &Sizes) -> Stored {
    let most = if dice.once_in(20) { sizes.large_body_bytes_max } else { sizes.body_bytes_max };
    message(dice.below(most), dice.below(256) as u8)
}

/// A queue, or with wide messages one that has no others.
fn settled_queue(dice: &mut Dice, id: u64, sizes: &Sizes) -> u64 {
    if sizes.wide_queues > 0 && dice.once_in(3) { FIRST_WIDE + dice.below(sizes.wide_queues) as u64 } else { id }
}

pub fn options(sizes: Sizes, raise: bool, recorder: &Arc<Recorder>) -> LogOptions {
    let (segment_bytes_min, segment_bytes_max) = sizes.segment_bytes;
    let disk = Arc::clone(recorder) as _;
    LogOptions { segment_bytes_min, segment_bytes_max, raise, disk, format: sizes.format, ..LogOptions::default() }
}

fn locked(load: &Shared) -> MutexGuard<'_, Load> {
    load.lock().unwrap()
}

/// Takes one random step.
pub fn step(load: &Shared) -> Result<(), LogError> {
    let what = locked(load).dice.below(40);
    match what {
        0..=21 => locked(load).append(),
        22..=24 => locked(load).write(),
        25..=29 => sync(load),
        30..=32 => fold(load),
        33 => whole_fold(load),
        34..=37 => compact(load),
        38 => {
            let retired = locked(load).log().unmap_idle();
            drop(retired);
            Ok(())
        }
        _ if locked(load).dice.once_in(2) => locked(load).close(),
        _ => locked(load).restart(),
    }
}

fn sync(load: &Shared) -> Result<(), LogError> {
    let ticket = locked(load).log().begin_sync();
    let Some(ticket) = ticket else { return Ok(()) };
    let position = ticket.perform()?;
    let mut load = locked(load);
    load.log().finish_sync(position);
    let (synced, steps) = (load.log().synced(), load.recorder.count());
    load.past.synced(synced, steps);
    Ok(())
}

fn fold(load: &Shared) -> Result<(), LogError> {
    let ticket = locked(load).log().begin_fold();
    let Some(ticket) = ticket else { return Ok(()) };
    finish_fold(load, ticket)
}

fn whole_fold(load: &Shared) -> Result<(), LogError> {
    let begun = {
        let mut load = locked(load);
        let steps = load.recorder.count();
        let ticket = load.log().begin_whole_fold();
        let end = load.log().end();
        let model = load.model.clone();
        load.past.appended(end, &model, steps);
        ticket?
    };
    begun.map_or(Ok(()), |ticket| finish_fold(load, ticket))
}

fn finish_fold(load: &Shared, ticket: penstock_log::FoldTicket) -> Result<(), LogError> {
    let folded = ticket.perform()?;
    let retired = {
        let mut load = locked(load);
        let retired = load.log().finish_fold(folded);
        let (synced, steps) = (load.log().synced(), load.recorder.count());
        load.past.synced(synced, steps);
        retired
    };
    retired.perform()
}

fn compact(load: &Shared) -> Result<(), LogError> {
    for _ in 0..8 {
        let (ticket, bytes) = {
            let mut load = locked(load);
            let most = load.sizes.segment_bytes.1 as usize / 2;
            let bytes = 1 + load.dice.below(most) as u64;
            (load.log().begin_compaction(), bytes)
        };
        let Some(ticket) = ticket else { return Ok(()) };
        let compacted = ticket.perform(bytes)?;
        let more = compacted.more;
        let retired = locked(load).log().finish_compaction(compacted);
        retired.perform()?;
        if !more {
            return Ok(());
        }
    }
    Ok(())
}
