//! Repair of a stopped log: every live message that cannot be read is settled as dropped, and files without a readable
//! header are renamed. Nothing is deleted, and readable records stay where they are.

use std::path::Path;

use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange};
use rustc_hash::FxHashMap;

use crate::checkpoint::unlink_if_there;
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::fold::FoldState;
use crate::fold_ticket::set_aside;
use crate::header::{HeaderFound, read_header, rewritten_segment};
use crate::log::{Log, LogOptions};
use crate::manifest::Manifest;
use crate::names::Names;
use crate::record::{Begun, Outcome, Target};
use crate::segment::{SegmentHeader, corrupt_path, segment_path};

/// Actual or planned changes of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The dropped messages, and why they could not be read, by queue and sequence.
    pub dropped: Vec<(Target, String)>,
    /// The names of the files that no start will read any more.
    pub set_aside: Vec<String>,
}

impl Repaired {
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.dropped.is_empty() && self.set_aside.is_empty()
    }
}

/// Repairs the log in a directory without other users, and leaves it closed.
pub fn repair(directory: &Path, options: LogOptions) -> Result<Repaired, LogError> {
    let mut repaired = Repaired { set_aside: hopeless(directory)?, ..Repaired::default() };
    let (disk, shard) = (options.disk.clone(), options.shard);
    let mut opened = Log::open(directory, options)?;
    opened.begin_epoch(Begun::default())?;
    // Only now: the start needs these files to know that records are missing.
    for file in &repaired.set_aside {
        let path = directory.join(file);
        // The start may have set it aside already.
        if path.exists() {
            set_aside(disk.as_ref(), &path)?;
        }
    }
    let files = opened.log.sealed_files();
    for file in &files {
        opened.log.rebuild_directory(file)?;
    }
    for (queue, lost) in lost_messages(&opened.log, &opened.state)? {
        let ranges: Vec<SequenceRange> =
            lost.iter().map(|&(number, _)| SequenceRange { first: number, last: number }).collect();
        opened.log.append_settle(queue, Outcome::Drop, ranges.len() as u64, 0, &ranges)?;
        let dropped = lost.into_iter().map(|(sequence, why)| (Target { queue, sequence }, why.to_string()));
        repaired.dropped.extend(dropped);
    }
    opened.log.close()?;
    repair_headers(directory, disk.as_ref(), shard, &opened.state)?;
    // No live message is corrupt any more.
    for file in &files {
        unlink_if_there(disk.as_ref(), &corrupt_path(&directory.join(file)))?;
    }
    Ok(repaired)
}

/// Segment files whose header cannot be read and has no copy.
fn hopeless(directory: &Path) -> Result<Vec<String>, LogError> {
    let mut found = Vec::new();
    let names = Names::list(directory)?;
    let plain = names.segments.iter().map(|&number| segment_path(directory, number));
    for path in plain {
        if matches!(read_header(&path)?, HeaderFound::Zeros | HeaderFound::Unreadable(_)) {
            found.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(found)
}

/// Writes headers again where their content is known from elsewhere.
fn repair_headers(directory: &Path, disk: &dyn Disk, shard: u16, state: &FoldState) -> Result<(), LogError> {
    for number in Names::list(directory)?.segments {
        let path = segment_path(directory, number);
        if let HeaderFound::Copy(header, ..) = read_header(&path)? {
            repair_header(disk, &path, &header)?;
        }
    }
    let mut log_id = None;
    let manifest = Manifest::load(directory, &mut log_id)?;
    for entry in &manifest.entries {
        if let Some((segment, false)) = rewritten_segment(directory, entry, (log_id, shard), &state.epochs)? {
            let header = entry.header(log_id.unwrap_or_default(), &state.epochs).of_shard(shard);
            repair_header(disk, segment.path(), &header)?;
        }
    }
    Ok(())
}

fn repair_header(disk: &dyn Disk, path: &Path, header: &SegmentHeader) -> Result<(), LogError> {
    let write = || {
        let file = disk.open(path)?;
        disk.write_at(&file, &header.encode(), 0)?;
        disk.sync(&file)
    };
    write().map_err(|error| LogError::io("write", path, error))
}

type Lost = Vec<(Sequence, Corruption)>;

/// The live messages that cannot be read, by queue.
fn lost_messages(log: &Log, state: &FoldState) -> Result<Vec<(QueueId, Lost)>, LogError> {
    let mut lost: FxHashMap<QueueId, Lost> = FxHashMap::default();
    let mut stored: FxHashMap<QueueId, AckSet> = FxHashMap::default();
    log.each_stored(|target, check| {
        let Some(queue) = state.queues.get(&target.queue) else { return };
        let run = SequenceRange { first: target.sequence, last: target.sequence };
        stored.entry(target.queue).or_insert_with(|| AckSet::starting_at(Sequence::FIRST)).insert(run);
        if queue.settled.contains(target.sequence) {
            return;
        }
        match check() {
            Ok(()) => {}
            Err(LogError::Corrupt { why, .. }) => lost.entry(target.queue).or_default().push((target.sequence, why)),
            Err(_) => lost.entry(target.queue).or_default().push((target.sequence, Corruption::Unreadable)),
        }
    })?;
    for (&id, queue) in &state.queues {
        let known = stored.get(&id).cloned().unwrap_or_default();
        let mut number = queue.settled.next_unsettled(Sequence(0));
        while number < queue.next {
            if !known.contains(number) {
                lost.entry(id).or_default().push((number, Corruption::Lost));
            }
            number = queue.settled.next_unsettled(number.next());
        }
    }
    let mut lost: Vec<(QueueId, Lost)> = lost.into_iter().collect();
    lost.sort_unstable_by_key(|(queue, _)| *queue);
    lost.iter_mut().for_each(|(_, numbers)| numbers.sort_unstable_by_key(|(number, _)| *number));
    Ok(lost)
}
