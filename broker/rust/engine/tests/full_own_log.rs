//! A queue's own log without space while its vhost's has some: each message of a batch gets its own answer.
#![allow(clippy::unwrap_used)]

mod house;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use house::{open_on, read_all, settings};
use penstock_engine::{
    Fate, Level, Payload, Publication, QueueId, QueueLevels, QueueSettings, ReadFrom, StreamSettings,
};
use penstock_log::{Disk, RealDisk};

const OWN: QueueId = QueueId(7);

/// The real disk, without space for own logs once it is full.
#[derive(Debug, Default)]
struct FullForOwn(AtomicBool);

impl Disk for FullForOwn {
    fn reserve(&self, file: &File, from: u64, bytes: u64) -> io::Result<()> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if self.0.load(Ordering::SeqCst) && path.components().any(|part| part.as_os_str() == "shards") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        RealDisk.reserve(file, from, bytes)
    }
}

/// Messages after the first one without space were stored in the vhost's log, and refused like it.
#[test]
fn what_another_log_stored_is_confirmed_when_a_queues_own_log_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(FullForOwn::default());
    let house = open_on(directory.path(), Arc::clone(&disk) as _);
    house.shard.dedicate(OWN).unwrap();
    let (levels, stream) = (QueueLevels::default(), Some(StreamSettings::default()));
    house.shard.put_queues([QueueSettings { id: OWN, name: "own", auto_delete: false, levels, stream }]).unwrap();
    disk.0.store(true, Ordering::SeqCst);
    let large = vec![b'l'; 50_000];
    let sent = [("own", large.as_slice()), ("own", &large), ("own", &large), ("own", &large), ("own", &large)];
    let small = [("s", b"a".as_slice()), ("own", b"b"), ("s", b"c")];
    let publications = sent.iter().chain(&small).map(|(key, body)| Publication {
        payload: Payload::new(b"", key.as_bytes(), b"", body).unwrap(),
        exchange: b"",
        key: key.as_bytes(),
        headers: None,
        persistent: true,
        mandatory: true,
    });
    let batch: Vec<_> = publications.collect();
    let mut fates = Vec::new();

    let published = house.shard.publish(&batch, Some(Level::Disk), 1, &mut fates).unwrap();

    assert!(published.refused.is_some());
    let stored = Fate::Stored(Level::Disk);
    let refused_from = fates.iter().position(|fate| *fate != stored).unwrap();
    assert!(refused_from < sent.len(), "{fates:?}");
    assert_eq!(
        fates.get(refused_from..),
        Some([vec![Fate::Full; sent.len() - refused_from], vec![stored, Fate::Full, stored]].concat().as_slice())
    );
    let bodies = |id| {
        let mut reader = house.shard.home_of(id).read(id, settings(ReadFrom::First, None)).unwrap();
        read_all(&mut reader).into_iter().map(|said| said.body).collect::<Vec<_>>()
    };
    assert_eq!(bodies(house::STREAM), ["a", "c"]);
    assert_eq!(bodies(OWN).len(), refused_from);
    house.close();
}
