//! A broker: its disk, which remembers what was synced, and its process while there is one.

use std::ops::Range;
use std::sync::Arc;

use penstock_log::{LogOptions, Position};
use penstock_replica::{ReplicaId, Settings};
use penstock_replication::{LastRead, Now, OpenError, Options, ReplicatedLog};
use tempfile::TempDir;

use super::crashed::{Crash, Crashable, Image};
use super::dice::Dice;
use super::recorder::Recorder;

pub const LOG_ID: [u8; 16] = [9; 16];

pub struct Node {
    pub number: usize,
    pub replica: ReplicaId,
    pub boot: u64,
    pub replicated: Option<ReplicatedLog>,
    pub last_read: LastRead,
    /// Its records below are known to be the committed ones.
    pub checked: Position,
    directory: TempDir,
    disk: Crashable,
    recorder: Arc<Recorder>,
    lost_page_cache: bool,
    segments: (u64, u64),
    /// Its clock is ahead of the world's by this much: clocks are never compared.
    ahead: u64,
    /// Its process stands still until this time of the world.
    pub paused_until: u64,
}

/// In memory where possible: these tests do not depend on the machine's disk.
fn directory() -> TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

impl Node {
    pub fn blank(number: usize, dice: &mut Dice) -> Node {
        let directory = directory();
        let image = Image::default();
        Node {
            number,
            replica: 100 + number as u128,
            boot: 0,
            replicated: None,
            last_read: LastRead::default(),
            checked: Position(0),
            disk: Crashable::of(&image),
            recorder: Arc::new(Recorder::after(&image, directory.path())),
            directory,
            lost_page_cache: false,
            segments: [(512, 4096), (4096, 32 << 10)][dice.below(2)],
            ahead: dice.below(100_000) as u64,
            paused_until: 0,
        }
    }

    /// Begins anew on an empty folder, as after an operator has moved the one before away. A blank disk has a new identity.
    pub fn begin_anew(&mut self) {
        let image = Image::default();
        self.directory = directory();
        self.replica += 100;
        self.checked = Position(0);
        self.disk = Crashable::of(&image);
        self.recorder = Arc::new(Recorder::after(&image, self.directory.path()));
        self.lost_page_cache = false;
    }

    pub fn runs(&self, boot: u64) -> bool {
        self.replicated.is_some() && self.boot == boot
    }

    pub fn time(&self, world: u64) -> Now {
        Now { millis: world + self.ahead, unix_ms: 1_700_000_000_000 + world }
    }

    /// Starts the process. Its log may be refused.
    pub fn start(&mut self, world: u64) -> Result<(), OpenError> {
        self.boot += 1;
        let log = LogOptions {
            segment_bytes_min: self.segments.0,
            segment_bytes_max: self.segments.1,
            raise: self.lost_page_cache,
            disk: self.recorder.clone(),
            ..LogOptions::default()
        };
        let options = Options {
            broker: self.number as u64,
            boot: (self.boot << 8) + self.number as u64,
            new_replica: self.replica,
            log_id: LOG_ID,
            log,
            settings: Settings { window: 1 << 14, ..Settings::default() },
        };
        let (mut replicated, _) = ReplicatedLog::open(self.directory.path(), options, self.time(world))?;
        assert_eq!(replicated.id(), self.replica);
        self.checked = self.checked.min(replicated.log().bound());
        (self.replicated, self.last_read) = (Some(replicated), LastRead::default());
        Ok(())
    }

    /// The process dies, and perhaps the machine with it, which loses what was not synced.
    pub fn kill(&mut self, dice: &mut Dice) {
        let crash = [Crash::Kill, Crash::KillInWrite, Crash::PowerKeepsNothing, Crash::PowerKeepsSome][dice.below(4)];
        self.crash(crash, dice);
    }

    pub fn crash(&mut self, crash: Crash, dice: &mut Dice) {
        let image = self.end(crash, dice);
        self.disk = self.disk.of_next_boot(&image, crash);
        self.lost_page_cache = crash.loses_page_cache();
        self.find(&image);
    }

    /// The process dies, and until its next start the bytes of a file change that is on the disk.
    pub fn damage(&mut self, damage: impl FnOnce(&mut Image, &mut Dice), dice: &mut Dice) {
        let mut image = self.end(Crash::PowerKeepsAll, dice);
        damage(&mut image, dice);
        if !image.files.contains_key("replica") {
            // The next start draws another identity.
            self.replica += 100;
        }
        self.disk = Crashable::of(&image);
        self.lost_page_cache = false;
        self.find(&image);
    }

    fn end(&mut self, crash: Crash, dice: &mut Dice) -> Image {
        self.replicated = None;
        self.boot += 1;
        self.recorder.steps().iter().for_each(|step| self.disk.apply(step));
        self.disk.crash(crash, dice)
    }

    /// The next process finds these files.
    fn find(&mut self, image: &Image) {
        self.directory = directory();
        image.write_to(self.directory.path());
        self.recorder = Arc::new(Recorder::after_files(image, self.directory.path(), self.disk.file_count()));
    }

    /// Positions and checksums of records.
    pub fn list(&mut self, positions: Range<Position>) -> Vec<(Position, u32)> {
        let log = self.replicated.as_mut().unwrap().log();
        log.begin_checksums(positions).unwrap().perform().unwrap()
    }
}
