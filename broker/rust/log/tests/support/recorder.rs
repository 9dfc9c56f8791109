//! A disk that performs and records every step, so that a test can ask for the possible results of a power failure
//! after any of them. It can also make a step fail, and run a callback between the steps of its user.
//!
//! Invariant: a sync covers writes before it began, not those during it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_log::{Disk, RealDisk, Space};

use super::crashed::Image;

/// Files in order of creation.
pub type FileId = usize;

/// A change of the disk. `covers` counts the steps that were done when it began.
#[derive(Clone, Debug)]
pub enum Step {
    Create {
        file: FileId,
        name: String,
        bytes: u64,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Sync {
        file: FileId,
        covers: usize,
    },
    /// Its pages are clean for the system now, whether or not they are on the disk: no later sync writes them.
    FailedSync {
        file: FileId,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    SyncDirectory {
        covers: usize,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Write { file, offset, bytes } => write!(formatter, "write to {file} at {offset}: {}", bytes.len()),
            other => write!(formatter, "{other:?}"),
        }
    }
}

/// How a step fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Io,
    Full,
    /// A write does half of it first.
    Short,
    /// The same with the error of a signal.
    Interrupted,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Io, Kind::Full, Kind::Short, Kind::Interrupted];

    fn error(self) -> io::Error {
        match self {
            Kind::Full => io::Error::from_raw_os_error(28),
            Kind::Interrupted => io::ErrorKind::Interrupted.into(),
            Kind::Io | Kind::Short => io::Error::from_raw_os_error(5),
        }
    }
}

/// Which future steps fail: from the one at `after` on, so many.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub after: usize,
    pub times: usize,
    pub kind: Kind,
}

type Between = Box<dyn FnMut() + Send>;

/// A recorder; see the module.
#[derive(Default)]
pub struct Recorder {
    tape: Mutex<Tape>,
    between: Mutex<Option<Between>>,
}

#[derive(Default)]
struct Tape {
    by_inode: HashMap<u64, FileId>,
    file_count: usize,
    steps: Vec<Step>,
    fault: Option<Fault>,
    begun_count: usize,
    failed: Vec<&'static str>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Recorder of {} steps", self.count())
    }
}

impl Recorder {
    /// A recorder for a directory with an image.
    pub fn after(image: &Image, directory: &Path) -> Recorder {
        Self::after_files(image, directory, image.files.len())
    }

    /// The same where so many files were made before, deleted ones included.
    pub fn after_files(image: &Image, directory: &Path, file_count: usize) -> Recorder {
        let recorder = Recorder::default();
        let mut tape = recorder.tape.lock().unwrap();
        for (file, name) in image.files.keys().enumerate() {
            tape.by_inode.insert(std::fs::metadata(directory.join(name)).unwrap().ino(), file);
        }
        tape.file_count = file_count;
        drop(tape);
        recorder
    }

    /// How many steps were done.
    pub fn count(&self) -> usize {
        self.tape.lock().unwrap().steps.len()
    }

    /// How many steps were begun, by which faults count.
    pub fn begun_count(&self) -> usize {
        self.tape.lock().unwrap().begun_count
    }

    pub fn steps(&self) -> Vec<Step> {
        self.tape.lock().unwrap().steps.clone()
    }

    /// Calls this before each step, except for its own steps.
    pub fn set_between(&self, between: Option<Between>) {
        *self.between.lock().unwrap() = between;
    }

    pub fn set_fault(&self, fault: Option<Fault>) {
        self.tape.lock().unwrap().fault = fault;
    }

    /// The failures so far, in order.
    pub fn failed(&self) -> Vec<&'static str> {
        self.tape.lock().unwrap().failed.clone()
    }

    /// Begins a step: returns how many were done before it, and how it fails.
    fn begin(&self, what: &'static str) -> (usize, MutexGuard<'_, Tape>, Option<Kind>) {
        let covers = self.count();
        if let Ok(mut between) = self.between.try_lock()
            && let Some(between) = between.as_mut()
        {
            between();
        }
        let mut tape = self.tape.lock().unwrap();
        let kind = tape.meet();
        if kind.is_some() {
            tape.failed.push(what);
        }
        (covers, tape, kind)
    }
}

impl Tape {
    fn meet(&mut self) -> Option<Kind> {
        self.begun_count += 1;
        let fault = self.fault.as_mut()?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        if fault.times == 0 {
            return None;
        }
        fault.times -= 1;
        Some(fault.kind)
    }

    fn file(&self, file: &File) -> FileId {
        self.by_inode[&file.metadata().unwrap().ino()]
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Disk for Recorder {
    fn create(&self, path: &Path, bytes: u64) -> io::Result<File> {
        let (_, mut tape, fails) = self.begin("create");
        // A file whose size cannot be set exists, empty.
        let made = match fails {
            None => bytes,
            Some(Kind::Full) => 0,
            Some(kind) => return Err(kind.error()),
        };
        let created = RealDisk.create(path, made)?;
        let file = tape.file_count;
        tape.file_count += 1;
        tape.by_inode.insert(created.metadata()?.ino(), file);
        tape.steps.push(Step::Create { file, name: name_of(path), bytes: made });
        fails.map_or(Ok(created), |kind| Err(kind.error()))
    }

    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        let (_, _tape, fails) = self.begin("reserve");
        fails.map_or_else(|| RealDisk.reserve(file, from, bytes), |kind| Err(kind.error()))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let (_, _tape, fails) = self.begin("open");
        fails.map_or_else(|| RealDisk.open(path), |kind| Err(kind.error()))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (_, mut tape, fails) = self.begin("write");
        let part = match fails {
            None => bytes.len(),
            Some(Kind::Short | Kind::Interrupted) => bytes.len() / 2,
            Some(_) => 0,
        };
        let bytes = &bytes[..part];
        RealDisk.write_at(file, bytes, offset)?;
        let file = tape.file(file);
        tape.steps.push(Step::Write { file, offset, bytes: bytes.into() });
        fails.map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let (covers, mut tape, fails) = self.begin("sync");
        let file = tape.file(file);
        tape.steps.push(if fails.is_some() { Step::FailedSync { file } } else { Step::Sync { file, covers } });
        fails.map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, mut tape, fails) = self.begin("rename");
        if let Some(kind) = fails {
            return Err(kind.error());
        }
        RealDisk.rename(from, to)?;
        tape.steps.push(Step::Rename { from: name_of(from), to: name_of(to) });
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let (_, mut tape, fails) = self.begin("unlink");
        if let Some(kind) = fails {
            return Err(kind.error());
        }
        RealDisk.unlink(path)?;
        tape.steps.push(Step::Unlink { name: name_of(path) });
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        let (covers, mut tape, fails) = self.begin("sync of the directory");
        if let Some(kind) = fails {
            return Err(kind.error());
        }
        tape.steps.push(Step::SyncDirectory { covers });
        Ok(())
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space { total: 1 << 40, free: 1 << 40 })
    }
}
