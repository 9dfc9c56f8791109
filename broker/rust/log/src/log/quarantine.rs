//! Handling of corrupt bytes: finds what is still stored, rebuilds directories, and keeps corrupt files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use penstock_queue::{QueueId, Sequence};

use super::Log;
use crate::contents::Contents;
use crate::corruption::{Quarantined, file_name, mark};
use crate::directory::Lookup;
use crate::error::{Corruption, LogError};
use crate::index::of_contents;
use crate::names::number_of;
use crate::record::Target;
use crate::segment::Segment;

impl Log {
    /// The queue's first sequence at or above `from` that a segment holds.
    pub fn next_stored(&self, queue: QueueId, from: Sequence) -> Result<Option<Sequence>, LogError> {
        let in_memory = Lookup::first_in(&self.active.index, queue, from);
        let sealed = self.sealed.iter().map(|sealed| sealed.lookup.next_stored(queue, from));
        let first = sealed.chain(std::iter::once(Ok(in_memory))).try_fold(None, |first: Option<Sequence>, found| {
            Ok::<_, LogError>(match (first, found?) {
                (Some(first), Some(found)) => Some(first.min(found)),
                (first, found) => first.or(found),
            })
        })?;
        // The queue's messages after one above the bound are above it, too.
        match first {
            Some(first) if self.bound.is_some() && self.locate(queue, first, 1)?.is_none() => Ok(None),
            first => Ok(first),
        }
    }

    /// The names of the sealed segments.
    pub(crate) fn sealed_files(&self) -> Vec<String> {
        self.sealed.iter().map(|sealed| file_name(&sealed.segment)).collect()
    }

    /// The segments among a start's reported files that exist and are not served.
    pub(super) fn unserved_of(&self, found: &[Quarantined]) -> Vec<PathBuf> {
        let served = self.sealed_files();
        let segments = found.iter().filter(|found| number_of(&found.file).is_some() && !served.contains(&found.file));
        let files: BTreeSet<PathBuf> = segments.map(|found| self.directory.join(&found.file)).collect();
        files.into_iter().filter(|path| path.exists()).collect()
    }

    /// Visits all messages of sealed segments, settled ones included, each with whether it can be read.
    pub(crate) fn each_stored(
        &self,
        mut each: impl FnMut(Target, &dyn Fn() -> Result<(), LogError>),
    ) -> Result<(), LogError> {
        for sealed in &self.sealed {
            let segment = &sealed.segment;
            let contents = Contents::read(self.options.disk.as_ref(), segment.path(), segment.readable())?;
            let index = of_contents(segment, &contents);
            sealed
                .lookup
                .each(&index, |target, offset| each(target, &|| check_in(segment, &contents, offset, target)))?;
        }
        Ok(())
    }

    /// Keeps a segment's file when the log no longer needs it, because a part of it could not be read. Its name is that
    /// of [`crate::Quarantined::file`], and `at` the byte. A file beside it tells later starts.
    pub fn quarantine(&mut self, file: &str, at: u64) {
        let mut segments =
            self.sealed.iter().map(|sealed| &sealed.segment).chain(std::iter::once(&self.active.segment));
        let Some(segment) = segments.find(|segment| file_name(segment) == file) else { return };
        if self.quarantined.insert(segment.number()) {
            // Without it the segment is still kept until the next start.
            let _ = mark(self.options.disk.as_ref(), segment.path(), at);
        }
    }

    /// Keeps the positions of segments that are not served until they are put back or repaired: the quarantined ones,
    /// and others by the lowest of their numbers. A start assigns the positions up to the next file to the segment
    /// before. Without a fence, a rewrite of that segment would also replace the missing one, which would then be
    /// removed when it is back.
    pub(super) fn fence(&mut self, lost: impl Iterator<Item = u64>) {
        let place = |number: u64| self.sealed.partition_point(|sealed| sealed.segment.number() < number);
        let is_served = |number: u64| self.sealed.get(place(number)).is_some_and(|at| at.segment.number() == number);
        let unserved = self.quarantined.iter().copied().filter(|&number| !is_served(number)).chain(lost);
        let before = |number: u64| self.sealed.get(place(number).checked_sub(1)?);
        let fenced = unserved.flat_map(|number| {
            let before = before(number).filter(|before| !before.segment.is_rewritten());
            [Some(number), before.map(|before| before.segment.number())]
        });
        self.fenced = fenced.flatten().collect();
    }

    /// Rebuilds the index of a segment when its directory changed on the disk; returns whether it had. `file` is the
    /// name of either.
    pub fn rebuild_directory(&mut self, file: &str) -> Result<bool, LogError> {
        let file = file.trim_end_matches(".idx");
        let Some(sealed) = self.sealed.iter().find(|sealed| file_name(&sealed.segment) == file) else {
            return Ok(false);
        };
        match &sealed.lookup {
            Lookup::File(directory) => directory.rebuild(),
            Lookup::Memory(_) | Lookup::Nothing => Ok(false),
        }
    }
}

/// Whether the message whose record begins at an offset is as it was stored.
fn check_in(segment: &Segment, contents: &Contents, offset: u32, target: Target) -> Result<(), LogError> {
    let at = u64::from(offset);
    if contents.is_bad(at, contents.claimed_end(at)) {
        return Err(segment.corrupt(at, Corruption::Unreadable));
    }
    let message = segment.check_record(contents.from(at), offset)?;
    let is_for = message.targets().any(|found| found == target);
    if is_for { Ok(()) } else { Err(segment.corrupt(at, Corruption::NoRecordHere)) }
}
