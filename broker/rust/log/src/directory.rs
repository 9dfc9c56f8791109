//! The directory of a sealed segment: the offsets of each queue's messages, and their deadlines. See `docs/format.md`,
//! "Indexes". Its bytes are known to `index_file`.
//!
//! Invariants: a directory is consistent with its segment's records, and it is on the disk before a checkpoint depends
//! on it. One that is missing, has bad sectors or a wrong checksum is derived again from its segment and kept in memory
//! until the next fold writes it. Pages are populated before they are touched, and entries that had to be read from the
//! disk again are checked again.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use penstock_queue::{QueueId, Sequence};

use crate::deadlines::Deadline;
use crate::disk::Disk;
use crate::error::{Corruption, LogError};
use crate::format::Format;
use crate::index::{MemoryIndex, Reach, of_segment};
pub(crate) use crate::index_file::Entry;
use crate::index_file::{FIXED_BYTES, Layout, Unread, encode, header_bytes};
use crate::map::{Map, is_bad_sector};
use crate::record::{Target, le_u32};
use crate::segment::Segment;

/// Contiguous sequences of one queue: the first and the count.
pub(crate) type Span = (QueueId, Sequence, u64);

/// A directory file, mapped at its first use.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The segment that the directory is derived from, without a map.
    segment: Segment,
    map: OnceLock<Map>,
    /// Its layout, once header and entries were checked.
    layout: OnceLock<Layout>,
    /// The earliest time of its deadlines, once its header was written or checked.
    earliest: OnceLock<Option<u64>>,
    /// Set once its deadlines were checked.
    has_whole_deadlines: OnceLock<()>,
    /// The correct bytes of the file, and their layout, once it was found to differ.
    derived: Arc<OnceLock<(Vec<u8>, Layout)>>,
}

/// A directory's bytes, of which header and entries can be touched.
#[derive(Clone, Copy)]
struct View<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    /// Map of the file; `None` for derived bytes.
    map: Option<&'a Map>,
}

/// Index of a sealed segment's messages.
#[derive(Clone, Debug)]
pub(crate) enum Lookup {
    /// Its directory is not written yet.
    Memory(Arc<MemoryIndex>),
    File(Arc<Directory>),
    /// All its messages are settled.
    Nothing,
}

impl Lookup {
    /// The offsets of the message with that sequence and of at most `count_max` in all that follow it without a gap.
    pub(crate) fn find(&self, queue: QueueId, from: Sequence, count_max: usize) -> Result<Option<Vec<u32>>, LogError> {
        match self {
            Lookup::Memory(index) => {
                Ok(index.find(queue, from).map(|offsets| offsets.iter().take(count_max).copied().collect()))
            }
            Lookup::File(directory) => directory.find(queue, from, count_max),
            Lookup::Nothing => Ok(None),
        }
    }

    /// Whether `is_live` holds for any (queue, first sequence, count).
    pub(crate) fn any_run(&self, mut is_live: impl FnMut(QueueId, Sequence, u64) -> bool) -> Result<bool, LogError> {
        match self {
            Lookup::Memory(index) => {
                Ok(index.runs().any(|(queue, run)| is_live(queue, Sequence(run.first), run.offsets.len() as u64)))
            }
            Lookup::File(directory) => {
                Ok(directory.entries()?.any(|entry| is_live(entry.queue, entry.first, u64::from(entry.count))))
            }
            Lookup::Nothing => Ok(false),
        }
    }

    /// The queue's first sequence at or above `from` that is stored in the segment.
    pub(crate) fn next_stored(&self, queue: QueueId, from: Sequence) -> Result<Option<Sequence>, LogError> {
        match self {
            Lookup::Memory(index) => Ok(Lookup::first_in(index, queue, from)),
            Lookup::File(directory) => directory.next_stored(queue, from),
            Lookup::Nothing => Ok(None),
        }
    }

    /// The first run that `is_live`, from the one at `from` on, with its index among all.
    pub(crate) fn find_run(
        &self,
        from: usize,
        is_live: impl Fn(Span) -> bool,
    ) -> Result<Option<(usize, Span)>, LogError> {
        match self {
            Lookup::Memory(index) => {
                let runs = index.runs().map(|(queue, run)| (queue, Sequence(run.first), run.offsets.len() as u64));
                Ok(runs.enumerate().skip(from).find(|&(_, run)| is_live(run)))
            }
            Lookup::File(directory) => {
                let runs = directory.entries()?.map(|entry| (entry.queue, entry.first, u64::from(entry.count)));
                Ok(runs.enumerate().skip(from).find(|&(_, run)| is_live(run)))
            }
            Lookup::Nothing => Ok(None),
        }
    }

    /// Visits all messages with the offsets of their records. Directories name only messages that were live when they
    /// were made, and an index the readable ones, so each falls back to the other.
    pub(crate) fn each(&self, readable: &MemoryIndex, mut each: impl FnMut(Target, u32)) -> Result<(), LogError> {
        match self {
            Lookup::File(directory) => directory.each(each),
            Lookup::Memory(_) | Lookup::Nothing => {
                for (queue, run) in readable.runs() {
                    for (&offset, number) in run.offsets.iter().zip(run.first..) {
                        each(Target { queue, sequence: Sequence(number) }, offset);
                    }
                }
                Ok(())
            }
        }
    }

    /// The same for an index.
    pub(crate) fn first_in(index: &MemoryIndex, queue: QueueId, from: Sequence) -> Option<Sequence> {
        let own = index.runs().filter(|(of, _)| *of == queue);
        own.filter_map(|(_, run)| first_at(from, Sequence(run.first), run.offsets.len() as u64)).min()
    }

    /// The same with a map of its own, made at first use.
    pub(crate) fn apart(&self) -> Lookup {
        match self {
            Lookup::File(directory) => {
                let derived = Arc::clone(&directory.derived);
                Lookup::File(Arc::new(Directory { derived, ..Directory::of(&directory.segment) }))
            }
            other => other.clone(),
        }
    }

    /// Maps its file, if it can: it stays readable when it is removed.
    pub(crate) fn hold(&self) {
        if let Lookup::File(directory) = self {
            // The next use says why.
            let _ = directory.map();
        }
    }

    /// The offset of the last message. It reads everything.
    pub(crate) fn last_offset(&self) -> Result<Option<u32>, LogError> {
        match self {
            Lookup::Memory(index) => Ok(index.runs().flat_map(|(_, run)| run.offsets.iter().copied()).max()),
            Lookup::File(directory) => directory.last_offset(),
            Lookup::Nothing => Ok(None),
        }
    }

    /// The same without a map, when there is one to release.
    pub(crate) fn unmapped(&self) -> Option<Lookup> {
        match self {
            Lookup::File(directory) if directory.map.get().is_some() => Some(self.apart()),
            _ => None,
        }
    }

    /// Whether it has to be written: it is only in memory.
    pub(crate) fn is_unwritten(&self) -> bool {
        match self {
            Lookup::Memory(_) => true,
            Lookup::File(directory) => directory.derived.get().is_some(),
            Lookup::Nothing => false,
        }
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        match self {
            Lookup::File(directory) => directory.map.get().map_or(0, |map| map.bytes().len() as u64),
            _ => 0,
        }
    }
}

/// The first sequence at or above `from` of a run.
fn first_at(from: Sequence, first: Sequence, count: u64) -> Option<Sequence> {
    (first.0.saturating_add(count) > from.0).then(|| first.max(from))
}

impl View<'_> {
    fn entry(&self, index: usize) -> Option<Entry> {
        self.layout.entry(self.bytes, index)
    }

    /// How many entries begin at or below a sequence of a queue.
    fn entries_up_to(&self, queue: QueueId, from: Sequence) -> usize {
        let (mut low, mut high) = (0, self.layout.entry_count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle) {
                Some(entry) if (entry.queue, entry.first) <= (queue, from) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

impl Directory {
    /// The directory of a segment.
    pub(crate) fn of(segment: &Segment) -> Directory {
        Directory {
            path: segment.directory_path(),
            segment: segment.unmapped(),
            map: OnceLock::new(),
            layout: OnceLock::new(),
            earliest: OnceLock::new(),
            has_whole_deadlines: OnceLock::new(),
            derived: Arc::default(),
        }
    }

    /// The file's entries, by queue and first number.
    pub(crate) fn entries(&self) -> Result<impl Iterator<Item = Entry> + '_, LogError> {
        let view = self.view()?;
        Ok((0..view.layout.entry_count()).map_while(move |at| view.entry(at)))
    }

    /// The earliest time of its deadlines, which its header has. Nothing of the file stays in memory.
    pub(crate) fn earliest_ms(&self) -> Result<Option<u64>, LogError> {
        if self.segment.format() == Format::One {
            return Ok(None);
        }
        if let Some(earliest) = self.earliest.get() {
            return Ok(*earliest);
        }
        let found = match self.read_layout() {
            Err(LogError::Corrupt { .. }) => self.view()?.layout.earliest_ms(),
            layout => layout?.earliest_ms(),
        };
        Ok(*self.earliest.get_or_init(|| found))
    }

    /// Reads the header alone.
    fn read_layout(&self) -> Result<Layout, LogError> {
        let map = self.new_map()?;
        self.populate(&map, 0, FIXED_BYTES)?;
        self.populate(&map, 0, header_bytes(map.bytes()))?;
        Layout::read(map.bytes(), self.segment.id()).map_err(|unread| self.unread(unread))
    }

    /// The deadlines up to a time, at most so many, from an index on; and the time of the one after them.
    pub(crate) fn deadlines(
        &self,
        from: usize,
        (to_ms, count_max): (u64, usize),
    ) -> Result<(Vec<Deadline>, Option<u64>), LogError> {
        let view = self.view()?;
        match self.check_deadlines(&view) {
            Err(LogError::Corrupt { .. }) if view.map.is_some() => {
                self.derive()?;
                return self.deadlines(from, (to_ms, count_max));
            }
            checked => checked?,
        }
        let mut rest = view.layout.deadlines_from(view.bytes, from).peekable();
        let mut found = Vec::new();
        while found.len() < count_max
            && let Some(deadline) = rest.next_if(|deadline| deadline.at_ms <= to_ms)
        {
            found.push(deadline);
        }
        Ok((found, rest.peek().map(|deadline| deadline.at_ms)))
    }

    /// All of them are read at their first use, as there is one checksum; later a piece at a time.
    fn check_deadlines(&self, view: &View<'_>) -> Result<(), LogError> {
        let Some(map) = view.map else { return Ok(()) };
        let section = view.layout.deadlines();
        let was_read = self.bring_in(map, section.start, section.len())?;
        if !was_read && self.has_whole_deadlines.get().is_some() {
            return Ok(());
        }
        if !view.layout.has_whole_deadlines(view.bytes) {
            return Err(self.corrupt(Corruption::Directory));
        }
        let _ = self.has_whole_deadlines.set(());
        Ok(())
    }

    /// Where the records of `count` messages of an entry begin, from the sequence `first` on.
    pub(crate) fn offsets(&self, entry: &Entry, first: Sequence, count: usize) -> Result<Vec<u32>, LogError> {
        let found = self.find(entry.queue, first, count)?;
        found.filter(|offsets| offsets.len() == count).ok_or_else(|| self.corrupt(Corruption::Directory))
    }

    /// Whether all checksums of the file match, also of the sections, which look-ups do not check.
    pub(crate) fn verify(&self) -> Result<(), LogError> {
        let map = self.map()?;
        let bytes = map.bytes();
        self.populate(map, 0, bytes.len())?;
        let layout = self.check(bytes)?;
        let is_whole = layout.has_whole_offsets(bytes) && layout.has_whole_deadlines(bytes);
        if is_whole { Ok(()) } else { Err(self.corrupt(Corruption::Directory)) }
    }

    /// Derives it from its segment when any checksum is wrong; returns whether it was.
    pub(crate) fn rebuild(&self) -> Result<bool, LogError> {
        if self.derived.get().is_some() {
            return Ok(false);
        }
        match self.verify() {
            Err(LogError::Corrupt { .. }) => self.derive().map(|_| true),
            verified => verified.map(|()| false),
        }
    }

    /// The messages whose record begins at an offset. It reads everything.
    pub(crate) fn targets_of(&self, offset: u64) -> Result<Vec<Target>, LogError> {
        let mut found = Vec::new();
        self.each(|target, place| found.extend((u64::from(place) == offset).then_some(target)))?;
        Ok(found)
    }

    /// The offset of the last record that it names. It reads everything.
    fn last_offset(&self) -> Result<Option<u32>, LogError> {
        let mut last = None;
        self.each(|_, place| last = last.max(Some(place)))?;
        Ok(last)
    }

    fn each(&self, mut each: impl FnMut(Target, u32)) -> Result<(), LogError> {
        let count_max = usize::MAX;
        for entry in self.entries()? {
            let offsets = self.find(entry.queue, entry.first, count_max)?.unwrap_or_default();
            for (offset, number) in offsets.into_iter().zip(entry.first.0..) {
                each(Target { queue: entry.queue, sequence: Sequence(number) }, offset);
            }
        }
        Ok(())
    }

    /// The queue's first sequence at or above `from` in the file.
    fn next_stored(&self, queue: QueueId, from: Sequence) -> Result<Option<Sequence>, LogError> {
        Ok(match self.reach(queue, from)? {
            Reach::At(first) => Some(first),
            Reach::Absent | Reach::Below => None,
        })
    }

    /// The same by a binary search, and whether there is any message of the queue.
    pub(crate) fn reach(&self, queue: QueueId, from: Sequence) -> Result<Reach, LogError> {
        let mut reach = Reach::Absent;
        for entry in self.own_entries(queue, from)? {
            match first_at(from, entry.first, u64::from(entry.count)) {
                Some(first) => return Ok(Reach::At(first)),
                None => reach = Reach::Below,
            }
        }
        Ok(reach)
    }

    /// The queue's entries, from the last one that begins at or below `from`.
    pub(crate) fn own_entries(
        &self,
        queue: QueueId,
        from: Sequence,
    ) -> Result<impl Iterator<Item = Entry> + '_, LogError> {
        let view = self.view()?;
        let after = view.entries_up_to(queue, from);
        let before = after.checked_sub(1).and_then(|at| view.entry(at));
        let begin = after - usize::from(before.is_some_and(|entry| entry.queue == queue));
        Ok((begin..).map_while(move |at| view.entry(at)).take_while(move |entry| entry.queue == queue))
    }

    fn find(&self, queue: QueueId, from: Sequence, count_max: usize) -> Result<Option<Vec<u32>>, LogError> {
        match self.find_in(self.view()?, queue, from, count_max) {
            // Entries and offsets of the file do not match the derived ones: derive everything again.
            Err(LogError::Corrupt { .. }) if self.derived.get().is_none() => {
                self.derive()?;
                self.find_in(self.view()?, queue, from, count_max)
            }
            found => found,
        }
    }

    fn find_in(
        &self,
        view: View<'_>,
        queue: QueueId,
        from: Sequence,
        count_max: usize,
    ) -> Result<Option<Vec<u32>>, LogError> {
        let last = view.entries_up_to(queue, from).checked_sub(1).and_then(|at| view.entry(at));
        let Some(entry) = last.filter(|entry| entry.queue == queue) else { return Ok(None) };
        let skipped = from.0 - entry.first.0;
        if skipped >= u64::from(entry.count) {
            return Ok(None);
        }
        let first = entry.place as usize + skipped as usize;
        let count = count_max.min(entry.count as usize - skipped as usize);
        let place = view.layout.offsets(first, count);
        if let Some(map) = view.map {
            self.bring_in(map, place.start, place.len())?;
        }
        let found = view.bytes.get(place).filter(|found| found.len() == count * 4);
        let found = found.ok_or_else(|| self.corrupt(Corruption::Directory))?;
        Ok(Some(found.chunks_exact(4).map(le_u32).collect()))
    }

    /// Takes its pages out of this process's memory.
    pub(crate) fn release(&self) {
        if let Some(map) = self.map.get() {
            map.release(0, map.bytes().len());
        }
    }

    /// The bytes for look-ups: of the file, or derived when the file is corrupt.
    fn view(&self) -> Result<View<'_>, LogError> {
        if self.derived.get().is_none() {
            match self.view_of_file() {
                Err(LogError::Corrupt { .. }) => {}
                view => return view,
            }
        }
        let (bytes, layout) = self.derive()?;
        Ok(View { bytes, layout, map: None })
    }

    /// Header and entries are checked when they had to be read from the disk.
    fn view_of_file(&self) -> Result<View<'_>, LogError> {
        let map = self.map()?;
        let bytes = map.bytes();
        if let Some(layout) = self.layout.get()
            && !self.bring_in(map, 0, layout.entries_end())?
        {
            return Ok(View { bytes, layout, map: Some(map) });
        }
        let found = self.check(bytes)?;
        let _ = self.earliest.set(found.earliest_ms());
        let layout = self.layout.get_or_init(|| found.clone());
        if *layout == found {
            Ok(View { bytes, layout, map: Some(map) })
        } else {
            Err(self.corrupt(Corruption::Directory))
        }
    }

    /// Makes the bytes of the file from the records of the segment.
    fn derive(&self) -> Result<&(Vec<u8>, Layout), LogError> {
        if let Some(derived) = self.derived.get() {
            return Ok(derived);
        }
        let index = of_segment(&self.segment.unmapped())?;
        let bytes = encode(self.segment.format(), self.segment.id(), &index);
        let layout = Layout::read(&bytes, self.segment.id()).map_err(|unread| self.unread(unread))?;
        Ok(self.derived.get_or_init(|| (bytes, layout)))
    }

    fn map(&self) -> Result<&Map, LogError> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let map = self.new_map()?;
        Ok(self.map.get_or_init(|| map))
    }

    fn new_map(&self) -> Result<Map, LogError> {
        File::open(&self.path).and_then(|file| Map::of(&file)).map_err(|error| self.unusable("map", error))
    }

    /// Makes sure that a range can be touched; returns whether it had to be read from the disk.
    fn bring_in(&self, map: &Map, from: usize, length: usize) -> Result<bool, LogError> {
        if map.is_resident(from, length) {
            return Ok(false);
        }
        self.populate(map, from, length)?;
        Ok(true)
    }

    fn populate(&self, map: &Map, from: usize, length: usize) -> Result<(), LogError> {
        if from.saturating_add(length) > map.bytes().len() {
            return Err(self.corrupt(Corruption::Directory));
        }
        map.populate(from, length).map_err(|error| self.unusable("read", error))
    }

    /// Checks header and entries.
    fn check(&self, bytes: &[u8]) -> Result<Layout, LogError> {
        if let Some(map) = self.map.get() {
            self.populate(map, 0, FIXED_BYTES)?;
            self.populate(map, 0, header_bytes(bytes))?;
        }
        let layout = Layout::read(bytes, self.segment.id()).map_err(|unread| self.unread(unread))?;
        if let Some(map) = self.map.get() {
            self.populate(map, 0, layout.entries_end())?;
        }
        if layout.has_whole_entries(bytes) { Ok(layout) } else { Err(self.corrupt(Corruption::Directory)) }
    }

    fn unread(&self, unread: Unread) -> LogError {
        let path = self.path.clone();
        match unread {
            Unread::Corrupt => self.corrupt(Corruption::Directory),
            Unread::NewerFormat(found) => LogError::NewerFormat { path, found, supported: Format::NEWEST.number() },
            Unread::NewerSection => LogError::newer_section(&path),
        }
    }

    /// Whether the file exists and is usable.
    pub(crate) fn is_usable(&self) -> Result<bool, LogError> {
        match self.view_of_file() {
            Ok(_) => Ok(true),
            Err(LogError::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Converts an error of the file: it is corrupt, or something else failed.
    fn unusable(&self, action: &'static str, error: std::io::Error) -> LogError {
        match error.kind() {
            // An empty file cannot be mapped.
            ErrorKind::NotFound | ErrorKind::InvalidInput => self.corrupt(Corruption::Directory),
            _ if is_bad_sector(&error) => self.corrupt(Corruption::Unreadable),
            _ => LogError::io(action, &self.path, error),
        }
    }

    fn corrupt(&self, why: Corruption) -> LogError {
        LogError::corrupt(&self.path, 0, why)
    }
}

/// Writes the directory of a segment under a temporary name, syncs it and renames it.
pub(crate) fn save(disk: &dyn Disk, segment: &Segment, index: &MemoryIndex) -> Result<Directory, LogError> {
    let directory = save_bytes(disk, segment, &encode(segment.format(), segment.id(), index))?;
    let _ = directory.earliest.set(index.earliest_ms());
    Ok(directory)
}

/// Replaces the corrupt file by the derived directory.
pub(crate) fn save_derived(disk: &dyn Disk, directory: &Directory) -> Result<Directory, LogError> {
    save_bytes(disk, &directory.segment, &directory.derive()?.0)
}

fn save_bytes(disk: &dyn Disk, segment: &Segment, bytes: &[u8]) -> Result<Directory, LogError> {
    let path = segment.directory_path();
    let temporary = path.with_extension("idx.tmp");
    write_whole(disk, &temporary, bytes)?;
    disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))?;
    Ok(Directory::of(segment))
}

/// Makes a file with these bytes and syncs it, replacing the rest of an earlier attempt.
pub(crate) fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    match disk.unlink(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(LogError::io("remove", path, error)),
        _ => {}
    }
    let file = disk.create(path, 0).map_err(|error| LogError::io("create", path, error))?;
    disk.write_at(&file, bytes, 0).map_err(|error| LogError::io("write", path, error))?;
    disk.sync(&file).map_err(|error| LogError::io("sync", path, error))
}
