//! All shards of a process, the threads behind them and what they count.

use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_log::LogOptions;

use crate::background::Background;
use crate::counters::Counters;
use crate::error::EngineError;
use crate::shard::Shard;

/// Sizes of segments, how long an unread one stays mapped, and how fast mostly dead ones are rewritten.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    pub segment_bytes_min: u64,
    pub segment_bytes_max: u64,
    pub segment_idle: Duration,
    /// Compaction writes no more; 0 turns it off.
    pub compaction_bytes_per_second: u64,
}

/// The doors to the threads, and the threads.
type Threads = (Arc<Background>, Vec<JoinHandle<()>>);

/// See the module.
pub struct Engine {
    options: EngineOptions,
    shards: Arc<Mutex<Vec<Weak<Shard>>>>,
    background: Mutex<Option<Threads>>,
    counters: Arc<Counters>,
}

impl Engine {
    /// # Errors
    /// `Io` when the threads cannot be started.
    pub fn new(options: EngineOptions) -> Result<Engine, EngineError> {
        let shards = Arc::new(Mutex::new(Vec::new()));
        let started = Background::start(Arc::clone(&shards), options.segment_idle, options.compaction_bytes_per_second);
        let background = started.map_err(|source| EngineError::Io {
            action: "start",
            what: "the threads behind the log".to_owned(),
            source,
        })?;
        Ok(Engine { options, shards, background: Mutex::new(Some(background)), counters: Arc::default() })
    }

    /// Opens and recovers a vhost's log. `raise` says that the page cache may have been lost since it was last open.
    ///
    /// # Errors
    /// `Log` when the directory cannot be read or what it holds is damaged.
    pub fn open_shard(&self, name: &str, directory: &Path, raise: bool) -> Result<Arc<Shard>, EngineError> {
        let closed = || EngineError::Closed(name.to_owned());
        let background = {
            let guard = self.background.lock().map_err(|_| closed())?;
            guard.as_ref().map(|(background, _)| Arc::clone(background)).ok_or_else(closed)?
        };
        let options = LogOptions {
            segment_bytes_min: self.options.segment_bytes_min,
            segment_bytes_max: self.options.segment_bytes_max,
            raise,
            ..LogOptions::default()
        };
        let shard = Shard::open(name, directory, options, background, Arc::clone(&self.counters))?;
        self.shards.lock().map_err(|_| closed())?.push(Arc::downgrade(&shard));
        Ok(shard)
    }

    /// The shards that are open.
    #[must_use]
    pub fn shards(&self) -> Vec<Arc<Shard>> {
        self.shards.lock().map(|shards| shards.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }

    #[must_use]
    pub fn shard(&self, name: &str) -> Option<Arc<Shard>> {
        let shards = self.shards.lock().ok()?;
        shards.iter().rev().filter_map(Weak::upgrade).find(|shard| shard.name() == name && !shard.is_closed())
    }

    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Closes every shard and ends the threads.
    ///
    /// # Errors
    /// The first that a shard gave.
    pub fn close(&self) -> Result<(), EngineError> {
        let mut result = Ok(());
        for shard in self.shards() {
            let closed = shard.close(false);
            result = result.and(closed);
        }
        let background = self.background.lock().ok().and_then(|mut guard| guard.take());
        drop(background.map(|(background, _)| background));
        result
    }
}
