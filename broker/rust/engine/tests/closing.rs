//! An engine that is closed during a fold: nothing uses the directory after `close` returns.
#![allow(clippy::unwrap_used)]

mod house;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_log::{Disk, RealDisk};

/// How often the fold yields to a thread that does not wait for it.
const YIELDS: u32 = 10_000;

/// A disk whose fold waits in its last step until the engine is about to be closed, and is slow then.
#[derive(Debug, Default)]
struct SlowDisk {
    is_folding: AtomicBool,
    is_closing: AtomicBool,
    is_folded: AtomicBool,
}

impl Disk for SlowDisk {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if std::thread::current().name() == Some("penstock-fold") {
            self.is_folding.store(true, Ordering::SeqCst);
            while !self.is_closing.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            (0..YIELDS).for_each(|_| std::thread::yield_now());
            self.is_folded.store(true, Ordering::SeqCst);
        }
        RealDisk.rename(from, to)
    }
}

#[test]
fn closing_waits_for_the_fold_that_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(SlowDisk::default());
    let house = house::open_on(directory.path(), Arc::clone(&disk) as Arc<dyn Disk>);
    let body = "x".repeat(1_000);
    while !disk.is_folding.load(Ordering::SeqCst) {
        house::publish(&house, &[body.as_str(); 10]);
    }

    disk.is_closing.store(true, Ordering::SeqCst);
    house.engine.close().unwrap();

    assert!(disk.is_folded.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&house.shard), 1, "no thread has the shard");
}
