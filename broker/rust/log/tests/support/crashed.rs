//! Possible contents of a disk after a crash: the steps so far, of which the unsynced ones may be lost, kept, or torn.
//!
//! Invariant: it does only what a real disk may do. A page of a file is as it was after some write that reached it, or
//! as the last sync left it; half-way through its write-back each sector is one or the other. An unsynced name exists
//! or not, independently of others. Reserved and unwritten space may hold another file's old content, except in a
//! file's first sector.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::dice::Dice;
use super::recorder::{FileId, Step};

const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
const GRAVES_MAX: usize = 4;
/// A system copies a write into the page cache page by page and a kill ends it only in between. So a segment's header,
/// whatever was written before it, is whole or absent, but one that crosses a page's border may be cut there. A larger
/// write is cut anywhere, which is more than a system does.
const AT_ONCE_BYTES: usize = 64;

/// The files of a directory.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Image {
    pub fn write_to(&self, directory: &Path) {
        for (name, bytes) in &self.files {
            std::fs::write(directory.join(name), bytes).unwrap();
        }
    }
}

/// How a crash goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process died: all writes stay.
    Kill,
    /// The same in the middle of the last write.
    KillInWrite,
    /// The power failed, and only synced data is there.
    PowerKeepsNothing,
    /// The power failed just after everything had reached the disk by itself.
    PowerKeepsAll,
    /// The power failed, and chance decides.
    PowerKeepsSome,
}

impl Crash {
    pub fn loses_page_cache(self) -> bool {
        !matches!(self, Crash::Kill | Crash::KillInWrite)
    }
}

/// A write that no sync covers.
#[derive(Clone, Debug)]
struct Pending {
    /// `None` for an earlier boot.
    at_step: Option<usize>,
    offset: u64,
    bytes: Arc<[u8]>,
    /// A sync of it failed: none ever covers it.
    is_doomed: bool,
}

impl Pending {
    fn touches(&self, sector: usize) -> bool {
        let (from, to) = (self.offset as usize, self.offset as usize + self.bytes.len());
        from < (sector + 1) * SECTOR_BYTES && to > sector * SECTOR_BYTES
    }
}

#[derive(Clone, Debug, Default)]
struct FileState {
    synced: Vec<u8>,
    was_synced: bool,
    /// Reserved sectors at the time of the write that no write on the disk has covered.
    unwritten: BTreeSet<usize>,
    length: usize,
    pending: Vec<Pending>,
}

#[derive(Clone, Debug)]
enum NameStep {
    Create(String, FileId),
    Rename(String, String, FileId),
    Unlink(String),
}

/// The content of a disk, and pending changes.
#[derive(Clone, Debug, Default)]
pub struct Crashable {
    files: Vec<FileState>,
    /// As the last sync of the directory left them.
    names: BTreeMap<String, FileId>,
    pending_names: Vec<(Option<usize>, NameStep)>,
    /// As a running process sees them.
    seen_names: BTreeMap<String, FileId>,
    steps_done: usize,
    /// Content of deleted files: reserved space may hold it.
    graves: Vec<Arc<Vec<u8>>>,
}

impl Crashable {
    /// A disk that holds an image, all of it synced.
    pub fn of(image: &Image) -> Crashable {
        let mut disk = Crashable::default();
        for (file, (name, bytes)) in image.files.iter().enumerate() {
            let (synced, length) = (bytes.clone(), bytes.len());
            disk.files.push(FileState { synced, was_synced: true, length, ..FileState::default() });
            disk.names.insert(name.clone(), file);
        }
        disk.seen_names = disk.names.clone();
        disk
    }

    /// The disk of the next process with an image: after a kill unsynced writes are still in the page cache, and those
    /// of a failed sync are lost.
    pub fn of_next_boot(&self, image: &Image, crash: Crash) -> Crashable {
        if crash.loses_page_cache() {
            return Crashable::of(image);
        }
        let mut next = Crashable { graves: self.graves.clone(), ..Crashable::default() };
        // Files are numbered as by a recorder that knows only the image.
        let seen = image.files.keys().map(|name| self.seen_names[name]);
        let unseen = (0..self.files.len()).filter(|file| !self.seen_names.values().any(|seen| seen == file));
        let order: Vec<FileId> = seen.chain(unseen).collect();
        let renumbered = |file: &FileId| order.iter().position(|old| old == file).unwrap();
        next.files = order.iter().map(|&file| self.files[file].carried_over()).collect();
        for (file, bytes) in image.files.values().enumerate() {
            next.files[file].cut_to(bytes);
        }
        next.names = self.names.iter().map(|(name, file)| (name.clone(), renumbered(file))).collect();
        next.seen_names = self.seen_names.iter().map(|(name, file)| (name.clone(), renumbered(file))).collect();
        let carried = |(_, step): &(_, NameStep)| (None, step.renumbered(renumbered));
        next.pending_names = self.pending_names.iter().map(carried).collect();
        next
    }

    /// How many files ever existed.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    pub fn apply(&mut self, step: &Step) {
        let at_step = Some(self.steps_done);
        match step {
            Step::Create { file, name, bytes } => {
                assert_eq!(*file, self.files.len());
                let length = *bytes as usize;
                let unwritten = (1..length.div_ceil(SECTOR_BYTES)).collect();
                self.files.push(FileState { length, unwritten, ..FileState::default() });
                self.seen_names.insert(name.clone(), *file);
                self.pending_names.push((at_step, NameStep::Create(name.clone(), *file)));
            }
            Step::Write { file, offset, bytes } => self.files[*file].write(at_step, *offset, bytes),
            Step::Sync { file, covers } => self.files[*file].sync(*covers),
            Step::FailedSync { file } => {
                self.files[*file].pending.iter_mut().for_each(|pending| pending.is_doomed = true);
            }
            Step::Rename { from, to } => {
                let file = self.seen_names.remove(from).unwrap();
                self.seen_names.insert(to.clone(), file);
                self.pending_names.push((at_step, NameStep::Rename(from.clone(), to.clone(), file)));
            }
            Step::Unlink { name } => {
                let file = self.seen_names.remove(name).unwrap();
                self.bury(file);
                self.pending_names.push((at_step, NameStep::Unlink(name.clone())));
            }
            Step::SyncDirectory { covers } => {
                let covered = self.pending_names.partition_point(|(at, _)| *at < Some(*covers));
                let covered: Vec<_> = self.pending_names.drain(..covered).collect();
                covered.into_iter().for_each(|(_, step)| apply_name(&mut self.names, step));
            }
        }
        self.steps_done += 1;
    }

    /// How many changes of names are unsynced.
    pub fn unsynced_names(&self) -> usize {
        self.pending_names.len()
    }

    fn bury(&mut self, file: FileId) {
        let content = self.files[file].content(|_| usize::MAX);
        if content.len() > SECTOR_BYTES {
            self.graves.push(Arc::new(content));
            let surplus = self.graves.len().saturating_sub(GRAVES_MAX);
            self.graves.drain(..surplus);
        }
    }

    /// One of the directories that a crash now may leave.
    pub fn crash(&self, crash: Crash, dice: &mut Dice) -> Image {
        let names = match crash {
            Crash::Kill | Crash::KillInWrite | Crash::PowerKeepsAll => self.seen_names.clone(),
            Crash::PowerKeepsNothing => self.names.clone(),
            Crash::PowerKeepsSome => self.some_names(dice),
        };
        let last = self.steps_done.checked_sub(1);
        let content = |(name, file): (String, FileId)| {
            let state = &self.files[file];
            let bytes = match crash {
                Crash::Kill | Crash::PowerKeepsAll => state.content(|_| usize::MAX),
                Crash::KillInWrite => state.cut(last, dice),
                Crash::PowerKeepsNothing => state.content(|_| 0),
                Crash::PowerKeepsSome => state.some(&self.graves, dice),
            };
            (name, bytes)
        };
        Image { files: names.into_iter().map(content).collect() }
    }

    fn some_names(&self, dice: &mut Dice) -> BTreeMap<String, FileId> {
        let mut names = self.names.clone();
        let in_order = dice.once_in(2);
        let first_lost = dice.below(self.pending_names.len() + 1);
        for (index, (_, step)) in self.pending_names.iter().enumerate() {
            // File systems with a journal lose the last ones; others any.
            if if in_order { index < first_lost } else { dice.once_in(2) } {
                apply_name(&mut names, step.clone());
            }
        }
        names
    }
}

fn apply_name(names: &mut BTreeMap<String, FileId>, step: NameStep) {
    match step {
        NameStep::Create(name, file) => {
            names.insert(name, file);
        }
        NameStep::Rename(from, to, file) => {
            // The new name may be kept where the old one never existed.
            names.remove(&from);
            names.insert(to, file);
        }
        NameStep::Unlink(name) => {
            names.remove(&name);
        }
    }
}

impl NameStep {
    fn renumbered(&self, to: impl Fn(&FileId) -> FileId) -> NameStep {
        match self {
            NameStep::Create(name, file) => NameStep::Create(name.clone(), to(file)),
            NameStep::Rename(from, name, file) => NameStep::Rename(from.clone(), name.clone(), to(file)),
            NameStep::Unlink(name) => NameStep::Unlink(name.clone()),
        }
    }
}

impl FileState {
    /// The same in the next boot.
    fn carried_over(&self) -> FileState {
        let mut state = self.clone();
        state.pending.iter_mut().for_each(|one| one.at_step = None);
        state
    }

    /// A process that died in the middle of the last write left only the beginning of it.
    fn cut_to(&mut self, bytes: &[u8]) {
        if self.content(|_| usize::MAX) != bytes
            && let Some(last) = self.pending.last_mut()
        {
            let from = last.offset as usize;
            last.bytes = bytes[from..from + last.bytes.len()].into();
        }
    }

    fn write(&mut self, at_step: Option<usize>, offset: u64, bytes: &Arc<[u8]>) {
        self.length = self.length.max(offset as usize + bytes.len());
        self.pending.push(Pending { at_step, offset, bytes: Arc::clone(bytes), is_doomed: false });
    }

    fn sync(&mut self, covers: usize) {
        self.synced.resize(self.length, 0);
        self.was_synced = true;
        let (covered, open) =
            std::mem::take(&mut self.pending).into_iter().partition(|one| one.at_step < Some(covers) && !one.is_doomed);
        self.pending = open;
        let covered: Vec<Pending> = covered;
        for one in covered {
            let from = one.offset as usize;
            self.synced[from..from + one.bytes.len()].copy_from_slice(&one.bytes);
            self.unwritten.retain(|&sector| !one.touches(sector));
        }
    }

    /// The bytes when of each sector the given number of pending writes are kept.
    fn content(&self, kept: impl Fn(usize) -> usize) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        bytes.resize(self.length, 0);
        let kept: Vec<usize> = (0..self.length.div_ceil(SECTOR_BYTES)).map(kept).collect();
        for (index, one) in self.pending.iter().enumerate() {
            let (from, to) = (one.offset as usize, one.offset as usize + one.bytes.len());
            let mut at = from;
            while at < to {
                let end = to.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
                if index < kept[at / SECTOR_BYTES] {
                    bytes[at..end].copy_from_slice(&one.bytes[at - from..end - from]);
                }
                at = end;
            }
        }
        bytes
    }

    /// All writes, but only the start of the one at that step.
    fn cut(&self, last: Option<usize>, dice: &mut Dice) -> Vec<u8> {
        let mut state = self.clone();
        if let Some(one) = state.pending.last_mut()
            && last.is_some()
            && one.at_step == last
        {
            let kept = dice.below(one.bytes.len() + 1);
            let is_at_once = one.bytes.len() <= AT_ONCE_BYTES && kept < one.bytes.len();
            let of_first_page = PAGE_BYTES - one.offset as usize % PAGE_BYTES;
            let whole_pages = if kept < of_first_page { 0 } else { of_first_page };
            one.bytes = one.bytes[..if is_at_once { whole_pages } else { kept }].into();
        }
        state.content(|_| usize::MAX)
    }

    fn some(&self, graves: &[Arc<Vec<u8>>], dice: &mut Dice) -> Vec<u8> {
        let all = self.pending.len();
        let sectors = self.length.div_ceil(SECTOR_BYTES).max(1);
        let per_unit = if dice.once_in(2) { PAGE_BYTES / SECTOR_BYTES } else { 1 };
        let one_sector = dice.below(sectors);
        let how = dice.below(6);
        let units: Vec<usize> = (0..=sectors / per_unit).map(|_| dice.below(all + 1)).collect();
        let keeps: Vec<bool> = (0..=sectors / per_unit).map(|_| dice.once_in(2)).collect();
        let kept = |sector: usize| match how {
            0 => 0,
            1 => all,
            // A hole, except for one sector.
            2 => all * usize::from(sector != one_sector),
            3 => all * usize::from(sector == one_sector),
            4 => all * usize::from(keeps[sector / per_unit]),
            _ => units[sector / per_unit],
        };
        let mut bytes = self.content(kept);
        if let Some(grave) = graves.get(dice.below(graves.len() + 2)) {
            let mut unwritten = self.unwritten.clone();
            unwritten.retain(|&sector| !self.pending.iter().take(kept(sector)).any(|one| one.touches(sector)));
            if dice.once_in(2) {
                unwritten.retain(|_| dice.once_in(2));
            }
            unwritten.iter().for_each(|&sector| fill_from(grave, sector, &mut bytes));
        }
        if !self.was_synced && dice.once_in(4) {
            // Its name is on the disk and its size is not.
            bytes.truncate(dice.below(bytes.len() / PAGE_BYTES + 1) * PAGE_BYTES);
        }
        bytes
    }
}

/// Fills a sector with the bytes from the same place of another file.
fn fill_from(grave: &[u8], sector: usize, bytes: &mut [u8]) {
    let from = sector * SECTOR_BYTES;
    let to = (from + SECTOR_BYTES).min(bytes.len()).min(grave.len());
    if from < to {
        bytes[from..to].copy_from_slice(&grave[from..to]);
    }
}
