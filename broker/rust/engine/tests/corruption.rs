//! Corrupt bytes of a stopped shard: the messages that its consumers get, and the report of the rest.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{
    Engine, EngineOptions, Filled, LogError, Payload, Publication, QueueId, Sequence, SequenceRange, Settle, Shard,
    Subscription, SubscriptionOptions, Target,
};

const QUEUE: QueueId = QueueId(1);
const COUNT: u64 = 400;

fn open(directory: &Path) -> (Engine, Arc<Shard>) {
    open_idle_after(directory, Duration::from_secs(60))
}

fn open_idle_after(directory: &Path, segment_idle: Duration) -> (Engine, Arc<Shard>) {
    let options = EngineOptions {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 64 << 10,
        segment_idle,
        disk_free_bytes_min: 0,
        compaction_bytes_per_second: 0,
        producer_memory: Duration::ZERO,
        producers_of_user_max: 4096,
    };
    let engine = Engine::new(options).unwrap();
    let shard = engine.open_shard("/", directory, false).unwrap();
    shard.put_queue(QUEUE, "jobs", false, None).unwrap();
    (engine, shard)
}

/// A stopped shard with messages in several segments.
fn filled(directory: &Path) {
    let (engine, shard) = open(directory);
    for number in 0..COUNT {
        let body = format!("body {number:04} {}", "x".repeat(500));
        let payload = Payload::new(b"", b"jobs", b"", body.as_bytes()).unwrap();
        let publication =
            Publication { payload, exchange: b"", key: b"jobs", headers: None, persistent: false, mandatory: false };
        shard.publish(&[publication], None, 1, &mut Vec::new()).unwrap();
    }
    engine.close().unwrap();
}

fn consumer(shard: &Arc<Shard>) -> Subscription {
    let options = SubscriptionOptions { prefetch: 10_000, auto_ack: false, exclusive: false, pull: false };
    shard.subscribe(QUEUE, options).unwrap()
}

/// As a server does: takes everything, sends readable messages, drops the rest.
fn drain(subscription: &Subscription) -> Vec<u64> {
    let mut got = Vec::new();
    loop {
        let mut filled = Vec::new();
        subscription.fill(100, &mut filled).unwrap();
        if filled.is_empty() {
            return got;
        }
        for Filled { segment, picked } in filled {
            for one in picked {
                let sequence = one.taken.sequence;
                match segment.message_for(one.offset, Target { queue: QUEUE, sequence }) {
                    Ok(message) => {
                        assert!(message.body.starts_with(format!("body {:04}", sequence.0 - 1).as_bytes()));
                        got.push(sequence.0);
                    }
                    Err(error @ LogError::Corrupt { .. }) => subscription.drop_corrupt(sequence, &error).unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn corrupt_records(engine: &Engine) -> u64 {
    engine.counters().all().find(|(name, _)| *name == "corrupt_records_total").unwrap().1
}

#[test]
fn a_bad_record_is_dropped_told_and_stays_dropped() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002"), |bytes| bytes[3000] ^= 1);
    {
        let (engine, shard) = open(directory.path());
        assert_eq!(shard.corruptions(), []);

        let got = drain(&consumer(&shard));

        assert_eq!(got.len() as u64, COUNT - 1);
        let corruptions = shard.corruptions();
        assert_eq!((corruptions.len(), corruptions[0].records), (1, 1));
        assert_eq!(
            (corruptions[0].file.as_str(), &corruptions[0].queues[..]),
            ("msgs.0000000002", &["jobs".to_owned()][..])
        );
        assert!(corruptions[0].at <= 3000 && corruptions[0].at > 2000);
        assert_eq!(corrupt_records(&engine), 1);
        let notices = engine.notices().take();
        assert_eq!(notices.len(), 1);
        assert!(notices[0].is_warning && notices[0].text.contains("msgs.0000000002"), "{notices:?}");
        engine.close().unwrap();
    }

    let (engine, shard) = open(directory.path());

    assert_eq!(shard.totals().unwrap(), (COUNT - 1, 0));
    assert_eq!(drain(&consumer(&shard)).len() as u64, COUNT - 1);
    let corruptions = shard.corruptions();
    assert_eq!((corruptions.len(), corruptions[0].file.as_str(), corruptions[0].records), (1, "msgs.0000000002", 0));
    assert_eq!(corrupt_records(&engine), 0, "it is told again, and nothing more was lost");
}

#[test]
fn what_lay_in_a_segment_that_is_gone_is_dropped_and_what_follows_is_served() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    std::fs::remove_file(directory.path().join("msgs.0000000002")).unwrap();
    let (engine, shard) = open(directory.path());
    let reported = shard.corruptions();
    assert_eq!((reported[0].file.as_str(), &reported[0].queues[..]), ("msgs.0000000002", &["jobs".to_owned()][..]));
    assert_eq!(corrupt_records(&engine), reported[0].records);
    let notices = engine.notices().take();
    assert!(notices[0].text.contains("msgs.0000000002") && notices[0].text.contains("the file is gone"), "{notices:?}");
    let subscription = consumer(&shard);

    let got = drain(&subscription);

    let lost = COUNT - got.len() as u64;
    assert!(lost > 50 && lost < 150, "{lost} are lost");
    assert_eq!(got.last(), Some(&COUNT));
    assert_eq!((reported[0].records, corrupt_records(&engine)), (lost, lost), "nothing is counted twice");
    assert_eq!(shard.corruptions()[0].queues, ["jobs"]);
    assert_eq!(shard.totals().unwrap(), (0, got.len() as u64));
}

#[test]
fn what_was_in_a_newest_segment_without_its_header_is_told_as_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let newest = (1..60).map(|number| directory.path().join(format!("msgs.{number:010}")));
    let newest = newest.take_while(|path| path.exists()).last().unwrap();
    change(&newest, |bytes| {
        bytes[..64].fill(0);
        let end = bytes.len();
        bytes[end - 64..].fill(0);
    });
    let (engine, shard) = open(directory.path());
    let notices = engine.notices().take();
    let name = newest.file_name().unwrap().to_str().unwrap();
    assert!(notices[0].text.contains(name), "the start names the file: {notices:?}");

    let got = drain(&consumer(&shard));

    assert!((1..COUNT).contains(&(got.len() as u64)));
    let notices = engine.notices().take();
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.is_warning && notice.text.starts_with("vhost '/', queue 'jobs': "), "{notice:?}");
    assert!(notice.text.contains("messages have no record in any segment and were dropped"), "{notice:?}");
    assert!(notice.text.contains("reported at the start") && !notice.text.contains("byte 0"), "{notice:?}");
    assert!(shard.corruptions().iter().any(|found| found.file == "no segment" && found.queues == ["jobs"]));
}

#[test]
fn an_index_without_its_segment_is_removed_and_told() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let orphan = directory.path().join("msgs.0000000070.idx");
    std::fs::copy(directory.path().join("msgs.0000000002.idx"), &orphan).unwrap();

    let (engine, shard) = open(directory.path());

    assert!(!orphan.exists());
    let notices = engine.notices().take();
    assert!(!notices[0].is_warning && notices[0].text.contains("msgs.0000000070.idx was removed"), "{notices:?}");
    assert_eq!(shard.corruptions(), []);
}

#[test]
fn a_segment_of_zeros_costs_its_own_messages_only() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002"), |bytes| bytes[64..].fill(0));
    let (engine, shard) = open(directory.path());

    let got = drain(&consumer(&shard));

    let lost = COUNT - got.len() as u64;
    assert!(lost > 50 && lost < 150, "{lost} are lost");
    assert_eq!(shard.corruptions().len(), 1);
    assert_eq!(engine.notices().take().len(), 1, "one line, not one a record");
}

#[test]
fn a_directory_with_wrong_offsets_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002.idx"), |bytes| {
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&64_u32.to_le_bytes());
    });
    let (_engine, shard) = open(directory.path());
    let subscription = consumer(&shard);

    let mut got = drain(&subscription);

    got.sort_unstable();
    assert_eq!(got, (1..=COUNT).collect::<Vec<u64>>());
    assert_eq!(shard.corruptions(), []);
    assert!(shard.queue_counts(&[QUEUE]).unwrap()[0].unacked_count == COUNT);
    assert_eq!(
        subscription
            .settle(
                &[penstock_engine::SequenceRange::new(Sequence(1), Sequence(COUNT)).unwrap()],
                penstock_engine::Settle::Ack
            )
            .unwrap(),
        COUNT
    );
}

#[test]
fn a_corrupt_segment_that_nobody_needs_any_more_is_told_by_its_new_name() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    change(&directory.path().join("msgs.0000000002"), |bytes| bytes[3000] ^= 1);
    let (engine, shard) = open_idle_after(directory.path(), Duration::from_millis(50));
    let subscription = consumer(&shard);
    assert_eq!(drain(&subscription).len() as u64, COUNT - 1);
    assert_eq!(engine.notices().take().len(), 1);

    subscription.settle(&[SequenceRange::ALL], Settle::Ack).unwrap();

    let aside = "msgs.0000000002.aside";
    let mut notices = Vec::new();
    let is_told = (0..1_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(10));
        notices.extend(engine.notices().take());
        !notices.is_empty()
    });
    assert!(is_told && directory.path().join(aside).exists());
    let [notice] = &notices[..] else { panic!("{notices:?}") };
    assert!(notice.is_warning && notice.text.contains(&format!("is now {aside}: ")), "{notice:?}");
    assert!(notice.text.ends_with("delete the file once no message is missed"), "{notice:?}");
}
