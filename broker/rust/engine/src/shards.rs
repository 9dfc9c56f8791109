//! The further shards of a vhost: logs that queues share, as they do shard 0.
//!
//! Invariants: a shard is on the disk before a mark in shard 0 counts it, and the mark is there before a queue is placed in
//! it; so a start reports a shard that is missing, and creates none. Their number only grows. A queue stays in the shard
//! where it was placed first, which its declaration names.

use std::collections::hash_map::Entry;
use std::path::Path;

use penstock_log::{Corruption, LogError, Position, marks};
use penstock_queue::QueueId;

use crate::dedicated::{io, make_directory};
use crate::error::EngineError;
use crate::log_number::{LogNumber, SHARDS_FOLDER};
use crate::shard::Shard;
use crate::state::Elsewhere;

/// The most shards of a vhost, each with files, maps and syncs of its own.
pub const SHARDS_MAX: u16 = 64;

impl Shard {
    /// How many shards this vhost has.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn shard_count(&self) -> Result<u16, EngineError> {
        Ok(self.lock()?.shard_count)
    }

    /// Creates shards until there are so many; does nothing when there are. After a failure it may be repeated. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// `TooMany`; `Io` and `Log` when the disk fails; `Stopped` and `Closed`.
    pub fn grow(&self, count: u16) -> Result<(), EngineError> {
        let Some(opener) = &self.opener else { return Ok(()) };
        if count > SHARDS_MAX {
            return Err(EngineError::TooMany { what: "shards", max: SHARDS_MAX.into() });
        }
        let known = {
            let guard = self.lock()?;
            guard.check(self.name())?;
            guard.shard_count
        };
        if count <= known {
            return Ok(());
        }
        let folder = self.directory().join(SHARDS_FOLDER);
        make_directory(opener, self.directory(), &folder)?;
        for number in known..count {
            let log = LogNumber::of_shard(number);
            if self.others.log(log).is_none() {
                let directory = folder.join(number.to_string());
                make_directory(opener, &folder, &directory)?;
                let shard = self.open_log(opener, log, &directory)?;
                shard.sync_to(shard.end()?)?;
            }
        }
        let end = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            guard.log.append_mark(marks::SHARD_COUNT, &[], &count.to_le_bytes())?;
            guard.write()?;
            guard.shard_count = count;
            guard.log.end()
        };
        self.sync_to(end)
    }

    /// Opens the further shards that the vhost has, also those of a growth that ended before its mark.
    pub(crate) fn open_shards(&self) -> Result<(), EngineError> {
        let Some(opener) = &self.opener else { return Ok(()) };
        let (folder, marked) = (self.directory().join(SHARDS_FOLDER), self.shard_count()?);
        let mut count = 1;
        while count < SHARDS_MAX {
            let directory = folder.join(count.to_string());
            if !has_log(&directory)? {
                break;
            }
            self.open_log(opener, LogNumber::of_shard(count), &directory)?;
            count += 1;
        }
        if count < marked {
            let path = folder.join(count.to_string());
            return Err(LogError::Corrupt { path, at: 0, why: Corruption::VanishedShard }.into());
        }
        let mut guard = self.lock()?;
        if count > marked {
            match guard.log.append_mark(marks::SHARD_COUNT, &[], &count.to_le_bytes()) {
                // The next start finds them again.
                Err(error) if error.is_full() => {}
                noted => noted.map(|_| ())?,
            }
            guard.write()?;
        }
        guard.shard_count = count;
        Ok(())
    }

    /// Says in which further shards queues are, before they are put for the first time.
    ///
    /// # Errors
    /// `NoShard`; `Stopped` when a bug poisoned the shard.
    pub fn place_queues(&self, queues: impl IntoIterator<Item = (QueueId, u16)>) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        for (queue, shard) in queues.into_iter().filter(|(_, shard)| *shard > 0) {
            let log = LogNumber::of_shard(shard);
            let home = self.others.log(log).ok_or_else(|| EngineError::NoShard(shard, self.name().to_owned()))?;
            if let Entry::Vacant(place) = guard.elsewhere.entry(queue) {
                place.insert(Elsewhere { log, name: None });
                self.others.put_queue(queue, &home);
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<Position, EngineError> {
        Ok(self.lock()?.log.end())
    }
}

/// Whether a folder has a segment or a checkpoint.
fn has_log(directory: &Path) -> Result<bool, EngineError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        entries => entries.map_err(|source| io("list", directory, source))?,
    };
    for entry in entries {
        let name = entry.map_err(|source| io("list", directory, source))?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("msgs.") || name.starts_with("checkpoint.") {
            return Ok(true);
        }
    }
    Ok(false)
}
