//! Queues with a log of their own beside their vhost's: how these logs are created and deleted.
//!
//! Invariants: a queue is in one log; the definitions say in which, and a log of a queue that they do not name is
//! deleted. A log is created before they name it, so that a full disk refuses its queue; then a mark in the vhost's log
//! records it, so that a missing one is reported and not created afresh. The routing names a queue only while its log
//! has it. The lock of one shard is never held while another's is taken.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Corruption, LogError, LogOptions, marks};
use penstock_queue::QueueId;

use crate::error::EngineError;
use crate::log_number::{DEDICATED_FOLDER, LogNumber};
use crate::queue_entry::QueueSettings;
use crate::shard::{Opener, Shard};
use crate::state::{Elsewhere, State};
use crate::topology::check_number;

/// The ending of a folder that is being removed.
const DELETED: &str = "deleted";

/// The most queues of a vhost with a log of their own, each with files and maps.
pub const DEDICATED_MAX: usize = 256;

/// Keeps the folder of a queue's own log until it is dropped.
pub(crate) struct KeptFolder(Arc<Shard>);

impl Drop for KeptFolder {
    fn drop(&mut self) {
        let shard = &self.0;
        let goes = {
            let mut copies = shard.copies();
            copies.count -= 1;
            copies.is_deleted && copies.count == 0
        };
        // It may have been deleted with its virtual host.
        if goes
            && shard.directory().exists()
            && let Err(error) = shard.remove_directory()
        {
            shard.notices().warn(format!("the log of a deleted queue stays: {error}; the next start removes it"));
        }
    }
}

impl Shard {
    /// Creates a queue's own log, before the queue is put for the first time; does nothing when it exists. After a
    /// failure nothing of it is left, and it may be retried. Blocks on the disk.
    ///
    /// # Errors
    /// `QueueNumber`; `TooMany`; `Log` when it existed and is gone; `Io` and `Log` when the disk fails; `Stopped` and `Closed`.
    pub fn dedicate(&self, id: QueueId) -> Result<(), EngineError> {
        let Some(opener) = self.opener.as_ref().filter(|_| self.others.home(id).is_none()) else {
            return Ok(());
        };
        check_number(id)?;
        if self.others.dedicated_count() >= DEDICATED_MAX {
            return Err(EngineError::TooMany { what: "queues with a log of their own", max: DEDICATED_MAX });
        }
        let folder = self.directory().join(DEDICATED_FOLDER);
        let directory = folder.join(id.0.to_string());
        {
            let guard = self.lock()?;
            guard.check(self.name())?;
            if guard.own_logs.contains(&id) {
                return Err(LogError::Corrupt { path: directory, at: 0, why: Corruption::Vanished }.into());
            }
        }
        make_directory(opener, self.directory(), &folder)?;
        let is_there = directory.exists();
        let made = make_directory(opener, &folder, &directory);
        let opened = made.and_then(|()| self.open_dedicated(opener, id, &directory));
        if opened.is_err() && !is_there {
            // The next start removes the rest: no queue has it.
            let _ = std::fs::remove_dir_all(&directory);
        }
        opened
    }

    /// Opens the existing own logs, and removes the rest of interrupted deletions.
    pub(crate) fn open_all_dedicated(&self) -> Result<(), EngineError> {
        let Some(opener) = &self.opener else { return Ok(()) };
        let folder = self.directory().join(DEDICATED_FOLDER);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(io("list", &folder, source)),
        };
        // The broker may have died between making a folder and syncing its name.
        [self.directory(), &folder].into_iter().try_for_each(|path| sync_names(opener, path))?;
        for entry in entries {
            let path = entry.map_err(|source| io("list", &folder, source))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.extension().is_some_and(|ending| ending == DELETED) {
                std::fs::remove_dir_all(&path).map_err(|source| io("remove", &path, source))?;
            } else if let Some(id) = name.parse().ok().map(QueueId).filter(|&id| id <= QueueId::MAX) {
                self.open_dedicated(opener, id, &path)?;
            }
        }
        Ok(())
    }

    fn open_dedicated(&self, opener: &Opener, id: QueueId, directory: &Path) -> Result<(), EngineError> {
        let log = LogNumber::of(id);
        self.open_log(opener, log, directory)?;
        self.lock()?.elsewhere.insert(id, Elsewhere { log, name: None });
        Ok(())
    }

    /// Opens another log of the vhost.
    pub(crate) fn open_log(
        &self,
        opener: &Opener,
        number: LogNumber,
        directory: &Path,
    ) -> Result<Arc<Shard>, EngineError> {
        let options = LogOptions { shard: number.shard().unwrap_or(0), ..opener.options.clone() };
        let around = opener.around.clone();
        let shard = Shard::open((self.name(), number), directory, options, around, None)?;
        shard.belongs_to(self);
        if let Ok(mut shards) = opener.shards.lock() {
            shards.push(Arc::downgrade(&shard));
        }
        let has_producers = shard.lock()?.producers.count() > 0;
        self.others.put_log(number, Arc::clone(&shard));
        self.pass_exchange_windows(&shard)?;
        if has_producers {
            self.lock()?.producers.unlearn_all();
        }
        Ok(shard)
    }

    /// Adds a queue to another log, and then to the routing. One that was deleted meanwhile is not added.
    pub(crate) fn put_elsewhere(&self, settings: QueueSettings<'_>) -> Result<(), EngineError> {
        let Some(home) = self.others.home(settings.id) else { return Ok(()) };
        {
            let mut guard = home.lock()?;
            guard.check(home.name())?;
            guard.put_queue(settings);
            if settings.stream.is_some() {
                guard.identify_if_room(settings.id)?;
            }
        }
        let mut guard = self.lock()?;
        if !guard.elsewhere.contains_key(&settings.id) {
            return Ok(());
        }
        if home.is_dedicated() {
            guard.note_own_log(settings.id, true)?;
        }
        let (log, name) = (home.number(), Some(settings.name.to_owned()));
        guard.elsewhere.insert(settings.id, Elsewhere { log, name });
        self.change_routing(|routing| routing.put_queue(settings.name, settings.id));
        Ok(())
    }

    /// Deletes the logs of queues that are not among the known ones; returns how many.
    pub(crate) fn retain_dedicated(&self, is_known: impl Fn(QueueId) -> bool) -> Result<usize, EngineError> {
        let all = self.others.all().into_iter();
        let gone: Vec<_> =
            all.filter_map(|(log, home)| Some((log.queue().filter(|id| !is_known(*id))?, home))).collect();
        for (id, home) in &gone {
            self.delete_dedicated(*id, home)?;
        }
        Ok(gone.len())
    }

    /// Deletes a queue with its log: nothing of it exists after a restart. Returns its number of messages.
    pub(crate) fn delete_dedicated(&self, id: QueueId, home: &Arc<Shard>) -> Result<u64, EngineError> {
        let noted = {
            let mut guard = self.lock()?;
            self.unroute(&mut guard, id);
            guard.forget_logs_of_producers(id);
            guard.note_own_log(id, false)
        };
        self.others.remove_dedicated(id);
        let (count, end) = {
            let mut guard = home.lock()?;
            guard.closed = true;
            home.note_closed();
            let mut entry = guard.queues.remove(&id);
            if let Some(entry) = &mut entry {
                entry.cancel(&format!("queue '{}' was deleted", entry.name), &mut guard.wakes);
            }
            let count = entry.map_or(0, |entry| entry.machine.free_count() + entry.machine.unacked_count());
            (count, guard.log.end())
        };
        // Tasks that wait for the disk wait for deleted messages.
        home.publish_synced(end);
        let is_copied = {
            let mut copies = home.copies();
            copies.is_deleted = true;
            copies.count > 0
        };
        if !is_copied {
            home.remove_directory()?;
        }
        noted.map(|()| count)
    }

    /// Removes a queue in another log from the routing; returns how many were removed so far.
    pub(crate) fn unroute(&self, state: &mut State, id: QueueId) -> u64 {
        if let Some(Elsewhere { name: Some(name), .. }) = state.elsewhere.remove(&id) {
            state.removals = self.remove_from_routing(&name);
        }
        state.removals
    }

    /// Keeps the folder until it is dropped, even when the queue is deleted.
    pub(crate) fn keep_folder(self: &Arc<Self>) -> KeptFolder {
        self.copies().count += 1;
        KeptFolder(Arc::clone(self))
    }

    /// Renames it first, so that a start can finish the deletion. Large files take time: a thread removes them.
    fn remove_directory(&self) -> Result<(), EngineError> {
        let directory = self.directory();
        let deleted: PathBuf = directory.with_extension(DELETED);
        std::fs::rename(directory, &deleted).map_err(|source| io("rename", directory, source))?;
        let notices = Arc::clone(self.notices());
        let removal = std::thread::Builder::new().name("penstock-remove".to_owned()).spawn(move || {
            if let Err(error) = std::fs::remove_dir_all(&deleted) {
                notices.warn(format!("{} cannot be removed: {error}; the next start tries again", deleted.display()));
            }
        });
        // Without a thread the next start removes it.
        removal.map(drop).or(Ok(()))
    }
}

impl State {
    /// Forgets the log of a queue that is deleted where producers have messages. One that has no others begins anew, unless a
    /// full disk keeps its mark.
    fn forget_logs_of_producers(&mut self, id: QueueId) {
        let elsewhere = &self.elsewhere;
        let is_open = |log: LogNumber| log.queue().is_none_or(|queue| elsewhere.contains_key(&queue));
        for producer in self.producers.drop_log(LogNumber::of(id), is_open) {
            let is_marked = self.producers.standing(producer).is_some_and(|standing| standing.noted.is_some());
            let owner = marks::owner_of_producer_logs(producer.get());
            if !is_marked || self.log.append_mark(&owner, &[], &[]).is_ok() {
                self.producers.begin_anew(producer);
            }
        }
    }

    /// Records that a queue has a log of its own, or no longer has. On a full disk the next start does.
    pub(crate) fn note_own_log(&mut self, id: QueueId, is_there: bool) -> Result<(), EngineError> {
        if self.own_logs.contains(&id) == is_there {
            return Ok(());
        }
        let value: &[u8] = if is_there { &[1] } else { &[] };
        match self.log.append_mark(&marks::owner_of_own_log(id), &[], value) {
            Err(error) if error.is_full() => return Ok(()),
            noted => noted?,
        };
        if is_there {
            self.own_logs.insert(id)
        } else {
            self.own_logs.remove(&id)
        };
        self.write()
    }
}

/// Makes a directory whose name is on the disk when this returns, even when an earlier attempt ended before its sync.
pub(crate) fn make_directory(opener: &Opener, parent: &Path, directory: &Path) -> Result<(), EngineError> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(io("make", directory, error)),
        _ => sync_names(opener, parent),
    }
}

fn sync_names(opener: &Opener, directory: &Path) -> Result<(), EngineError> {
    opener.options.disk.sync_directory(directory).map_err(|source| io("sync", directory, source))
}

pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Io { action, what: path.display().to_string(), source }
}
