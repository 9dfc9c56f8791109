//! All shards of a process, their threads and counters.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use penstock_log::{Disk, Format, Kept, Log, LogOptions, RealDisk, Repaired};
use tokio::sync::watch;

use crate::background::Threads;
use crate::counters::Counters;
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::notices::Notices;
use crate::room_keeper::RoomKeeper;
use crate::shard::{Opener, Shard, Surroundings};
use crate::space::Space;
use crate::term::Led;
use crate::unused::UnusedQueues;

/// A disk has space for at least this many segments of the largest size.
const SEGMENTS_OF_A_DISK_MIN: u64 = 32;

/// Sizes of segments, how long an unread one stays mapped, and how fast mostly dead ones are rewritten.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub segment_bytes_min: u64,
    pub segment_bytes_max: u64,
    pub segment_idle: Duration,
    /// Publishers are refused rather than leave less than this on the disk.
    pub disk_free_bytes_min: u64,
    /// Compaction writes this much when nothing is urgent, and up to eight times as much when it is; 0 turns it off.
    pub compaction_bytes_per_second: u64,
    /// How long unused names of producers are kept; zero is for ever.
    pub producer_memory: Duration,
    /// Names of producers that one user may own in a virtual host.
    pub producers_of_user_max: usize,
}

/// See the module.
pub struct Engine {
    options: EngineOptions,
    disk: Arc<dyn Disk>,
    shards: Arc<Mutex<Vec<Weak<Shard>>>>,
    background: Mutex<Option<Threads>>,
    counters: Arc<Counters>,
    notices: Arc<Notices>,
    space: Arc<Space>,
    unused: Arc<UnusedQueues>,
    kept: Arc<Kept>,
}

/// A replicated log that the engine could not open for a term, and why.
#[derive(Debug)]
pub struct NotLed {
    pub log: Log,
    pub error: EngineError,
}

impl Engine {
    /// # Errors
    /// `Io` when the threads cannot be started.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        Self::on_disk(options, Arc::new(RealDisk))
    }

    /// An engine whose shards use the file system only through `disk`: a test makes steps of it fail.
    ///
    /// # Errors
    /// `Io` when the threads cannot be started.
    pub fn on_disk(options: EngineOptions, disk: Arc<dyn Disk>) -> Result<Engine, EngineError> {
        let shards = Arc::new(Mutex::new(Vec::new()));
        let (notices, space) = (Arc::<Notices>::default(), Arc::<Space>::default());
        let keeper = RoomKeeper::new(Arc::clone(&space), Arc::clone(&notices));
        let rate = options.compaction_bytes_per_second;
        let started = Threads::start(Arc::clone(&shards), options.segment_idle, keeper, rate);
        let background = started.map_err(|source| EngineError::Io {
            action: "start",
            what: "the threads behind the log".to_owned(),
            source,
        })?;
        Ok(Engine {
            options,
            disk,
            shards,
            background: Mutex::new(Some(background)),
            counters: Arc::default(),
            notices,
            space,
            unused: Arc::default(),
            kept: Arc::default(),
        })
    }

    /// Opens and recovers the logs of a vhost's shards, and the dedicated logs of its queues. `raise` says that the page cache may have been
    /// lost since it was last open.
    ///
    /// # Errors
    /// `Log` when the directory cannot be read or is corrupt.
    pub fn open_shard(&self, name: &str, directory: &Path, raise: bool) -> Result<Arc<Shard>, EngineError> {
        let shard = self.open_incomplete(name, directory, raise)?;
        shard.complete();
        Ok(shard)
    }

    /// The same where definitions follow: [`Shard::complete`] says that they were applied.
    ///
    /// # Errors
    /// As [`Engine::open_shard`].
    pub fn open_incomplete(&self, name: &str, directory: &Path, raise: bool) -> Result<Arc<Shard>, EngineError> {
        let options = LogOptions {
            segment_bytes_min: self.options.segment_bytes_min,
            segment_bytes_max: self.segment_bytes_max(directory),
            raise,
            free_bytes_min: self.options.disk_free_bytes_min,
            format: Format::NEWEST,
            shard: 0,
            is_bounded: false,
            kept: Arc::clone(&self.kept),
            disk: Arc::clone(&self.disk),
            log_id: None,
        };
        let surroundings = self.surroundings(name)?;
        let opener =
            Opener { options: options.clone(), around: surroundings.clone(), shards: Arc::clone(&self.shards) };
        let shard = Shard::open((name, LogNumber::VHOST), directory, options, surroundings, Some(opener))?;
        self.add(&shard);
        shard.open_shards()?;
        shard.open_all_dedicated()?;
        Ok(shard)
    }

    /// Opens a shard of a replicated log for the term in which this broker leads it: its queues are ready as after a start, all their
    /// messages flagged as redelivered. Definitions follow, and then [`Shard::complete`]. [`Shard::committed`] confirms and delivers, and
    /// [`Shard::set_delivers`] begins deliveries; [`Shard::end_term`] and [`Shard::take_log`] end the shard.
    ///
    /// # Errors
    /// The log, when the engine has ended.
    pub fn lead(&self, name: &str, directory: &Path, led: Led) -> Result<Arc<Shard>, Box<NotLed>> {
        match self.surroundings(name) {
            Ok(surroundings) => {
                let shard = Shard::of_term((name, LogNumber::VHOST), directory, led, surroundings);
                self.add(&shard);
                Ok(shard)
            }
            Err(error) => Err(Box::new(NotLed { log: led.log, error })),
        }
    }

    /// Opens a further shard of a virtual host whose shard 0 was opened for a term, which is that of both from then on.
    /// [`Shard::count_shards`] follows once all are open, and definitions after that.
    ///
    /// # Errors
    /// The log, when the term is over.
    pub fn lead_further(
        &self,
        vhost: &Arc<Shard>,
        number: u16,
        directory: &Path,
        led: Led,
    ) -> Result<Arc<Shard>, Box<NotLed>> {
        match vhost.check_term() {
            Ok(()) => {
                let shard = vhost.open_further(number, directory, led);
                self.add(&shard);
                Ok(shard)
            }
            Err(error) => Err(Box::new(NotLed { log: led.log, error })),
        }
    }

    fn add(&self, shard: &Arc<Shard>) {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(shard));
    }

    fn surroundings(&self, name: &str) -> Result<Surroundings, EngineError> {
        let closed = || EngineError::Closed(name.to_owned());
        let (syncs, folds, dead_letters, alarms) = {
            let guard = self.background.lock().map_err(|_| closed())?;
            let threads = guard.as_ref().ok_or_else(closed)?;
            let (folds, dead_letters) = (Arc::clone(&threads.folds), Arc::clone(&threads.dead_letters));
            (threads.syncs.group(), folds, dead_letters, Arc::clone(&threads.alarms))
        };
        Ok(Surroundings {
            syncs,
            folds,
            dead_letters,
            alarms,
            counters: Arc::clone(&self.counters),
            notices: Arc::clone(&self.notices),
            space: Arc::clone(&self.space),
            unused: Arc::clone(&self.unused),
            is_complete: Arc::default(),
            producer_memory: self.options.producer_memory,
            producers_of_user_max: self.options.producers_of_user_max,
        })
    }

    /// On a small disk segments stay small: two of them are kept free.
    fn segment_bytes_max(&self, directory: &Path) -> u64 {
        let EngineOptions { segment_bytes_min, segment_bytes_max, .. } = self.options;
        let space = directory.ancestors().find_map(|path| RealDisk.space(path).ok());
        space.map_or(segment_bytes_max, |space| {
            segment_bytes_max.min((space.total / SEGMENTS_OF_A_DISK_MIN).max(segment_bytes_min))
        })
    }

    /// Whether publishers are refused because the disk is full, and how many bytes are free there.
    #[must_use]
    pub fn disk(&self) -> (bool, u64) {
        let free = self.shards().iter().find_map(|shard| shard.room()).and_then(|room| room.free);
        (self.space.is_full(), free.unwrap_or_else(|| self.space.free()))
    }

    /// Whether publishers are refused because the disk is full, and each change of that.
    #[must_use]
    pub fn watch_space(&self) -> watch::Receiver<bool> {
        self.space.watch()
    }

    /// The open shards.
    #[must_use]
    pub fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().map(|shards| shards.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }

    #[must_use]
    pub fn shard(&self, name: &str) -> Option<Arc<Shard>> {
        let shards = self.shards.lock().ok()?;
        shards
            .iter()
            .rev()
            .filter_map(Weak::upgrade)
            .find(|shard| shard.name() == name && shard.is_of_vhost() && !shard.is_closed())
    }

    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The queues that were unused for their time.
    #[must_use]
    pub fn unused(&self) -> &Arc<UnusedQueues> {
        &self.unused
    }

    /// Lines for the broker's log.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Repairs the log in a directory that no process has open; see `penstock_log::repair`.
    ///
    /// # Errors
    /// `Log` when the directory cannot be read or written.
    pub fn repair(options: &EngineOptions, directory: &Path, shard: u16) -> Result<Repaired, EngineError> {
        let options = LogOptions {
            segment_bytes_min: options.segment_bytes_min,
            segment_bytes_max: options.segment_bytes_max,
            // Only a start of the broker raises the format, after `node.json` says so.
            format: Format::One,
            shard,
            ..LogOptions::default()
        };
        Ok(penstock_log::repair(directory, options)?)
    }

    /// Closes every shard and ends the threads; afterwards nothing touches the files. May block on the disk.
    ///
    /// # Errors
    /// The first error of a shard.
    pub fn close(&self) -> Result<(), EngineError> {
        let mut result = Ok(());
        for shard in self.shards() {
            let closed = shard.close(false);
            result = result.and(closed);
        }
        let threads = self.background.lock().ok().and_then(|mut guard| guard.take());
        threads.into_iter().for_each(Threads::end);
        result
    }
}
