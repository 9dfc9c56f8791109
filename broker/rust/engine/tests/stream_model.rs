//! A stream against a list: whatever is appended, read, purged, retained, stored and restarted, both agree.
#![allow(clippy::unwrap_used)]

mod house;

use std::collections::BTreeMap;

use house::{House, STREAM, Say, open, publish_at, read_all, reader, said, settings};
use penstock_engine::{Progress, QueueLevels, QueueSettings, ReadFrom, StreamReader, StreamSettings};
use proptest::prelude::*;

const GROUPS: [&str; 2] = ["one", "two"];
const READERS_MAX: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// So many messages of a size, this much later than the last.
    Append(usize, usize, u64),
    Purge,
    /// The stream's limit in bytes.
    Retain(u64),
    /// A reader, by a number for an offset, a time or a count.
    Open(usize, u64),
    Read(usize, u32),
    Close(usize),
    Store(usize, u64),
    Forget(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..40_usize, prop_oneof![0..20_usize, 1000..3000_usize], 0..3_u64)
            .prop_map(|(count, size, later)| Step::Append(count, size, later)),
        1 => Just(Step::Purge),
        2 => (1..400_000_u64).prop_map(Step::Retain),
        3 => (0..5_usize, 0..300_u64).prop_map(|(from, number)| Step::Open(from, number)),
        8 => (0..READERS_MAX, 1..100_u32).prop_map(|(reader, count)| Step::Read(reader, count)),
        1 => (0..READERS_MAX).prop_map(Step::Close),
        2 => (0..GROUPS.len(), 0..300_u64).prop_map(|(group, offset)| Step::Store(group, offset)),
        1 => (0..GROUPS.len()).prop_map(Step::Forget),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// Expected state of the stream.
#[derive(Default)]
struct Model {
    messages: Vec<Say>,
    next: u64,
    now_ms: u64,
    groups: BTreeMap<&'static str, u64>,
}

impl Model {
    fn first(&self) -> u64 {
        self.messages.first().map_or(self.next, |say| say.offset)
    }

    fn begin(&self, from: ReadFrom) -> u64 {
        let at_time =
            |time| self.messages.iter().find(|say| say.stored_at_ms >= time).map_or(self.next, |say| say.offset);
        let begin = match from {
            ReadFrom::Next => self.next,
            ReadFrom::First => 0,
            ReadFrom::Last => self.messages.last().map_or(self.next, |say| say.offset),
            ReadFrom::Offset(offset) => offset,
            ReadFrom::Timestamp(time) => at_time(time),
            ReadFrom::LastCount(count) => {
                let skipped = self.messages.len().saturating_sub(count as usize);
                self.messages.get(skipped).map_or(self.next, |say| say.offset)
            }
        };
        begin.max(self.first())
    }
}

/// A stream, its expected state, and the expected positions of its readers.
struct Pair {
    directory: tempfile::TempDir,
    house: Option<House>,
    readers: Vec<(StreamReader, u64)>,
    model: Model,
}

impl Pair {
    fn new() -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let house = Some(open(directory.path()));
        Pair { directory, house, readers: Vec::new(), model: Model { next: 1, now_ms: 1, ..Model::default() } }
    }

    fn house(&self) -> &House {
        self.house.as_ref().unwrap()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(count, size, later) => self.append(count, size, later),
            Step::Purge => {
                let purged = self.house().shard.purge_queue(STREAM).unwrap();
                assert_eq!(purged, self.model.messages.len() as u64);
                self.model.messages.clear();
            }
            Step::Retain(max_bytes) => self.retain(max_bytes),
            Step::Open(from, number) => self.open(from, number),
            Step::Read(reader, count) => self.read(reader, count),
            Step::Close(reader) => {
                if reader < self.readers.len() {
                    self.readers.remove(reader);
                }
            }
            Step::Store(group, offset) => {
                let stored = self.house().shard.store_offset(STREAM, GROUPS[group], offset);
                assert_eq!(stored.is_ok(), offset < self.model.next);
                if stored.is_ok() {
                    self.model.groups.insert(GROUPS[group], offset);
                }
            }
            Step::Forget(group) => {
                let forgotten = self.house().shard.delete_group(STREAM, GROUPS[group]).unwrap();
                assert_eq!(forgotten, self.model.groups.remove(GROUPS[group]).is_some());
            }
            Step::Restart => {
                self.readers.clear();
                self.house.take().unwrap().close();
                self.house = Some(open(self.directory.path()));
            }
        }
    }

    fn append(&mut self, count: usize, size: usize, later: u64) {
        self.model.now_ms += later;
        let bodies: Vec<String> = (self.model.next..).take(count).map(|offset| format!("{offset:0size$}")).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        publish_at(self.house(), self.model.now_ms, &bodies);
        for body in bodies {
            let (offset, stored_at_ms) = (self.model.next, self.model.now_ms);
            self.model.messages.push(Say { offset, body: body.to_owned(), key: None, stored_at_ms });
            self.model.next += 1;
        }
    }

    /// Segments decide how much expires; the oldest messages do.
    fn retain(&mut self, max_bytes: u64) {
        let shard = &self.house().shard;
        let limit = |max_bytes| {
            let stream = Some(StreamSettings { max_age_ms: 0, max_bytes });
            shard
                .put_queues([QueueSettings {
                    id: STREAM,
                    name: "s",
                    auto_delete: false,
                    levels: QueueLevels::default(),
                    stream,
                }])
                .unwrap();
        };
        limit(max_bytes);
        shard.retain(0).unwrap();
        limit(0);
        let first = shard.stream_states(&[STREAM]).unwrap()[0].first;
        let bytes: usize = self.model.messages.iter().map(|say| say.body.len()).sum();
        assert!(bytes as u64 > max_bytes || first == self.model.first(), "nothing goes below the limit");
        self.model.messages.retain(|say| say.offset >= first);
    }

    fn open(&mut self, from: usize, number: u64) {
        let from = [
            ReadFrom::Next,
            ReadFrom::Last,
            ReadFrom::Offset(number),
            ReadFrom::Timestamp(number % (self.model.now_ms + 2)),
            ReadFrom::LastCount(number),
        ][from];
        let group = number.is_multiple_of(3).then_some(GROUPS[0]);
        let opened = self.house().shard.read(STREAM, settings(from, group)).unwrap();
        let stored = group.and_then(|group| self.model.groups.get(group));
        let begin = stored.map_or(self.model.begin(from), |offset| (offset + 1).max(self.model.first()));
        let range = opened.range();
        assert_eq!((range.first, range.begin, range.next), (self.model.first(), begin, self.model.next), "{from:?}");
        if self.readers.len() == READERS_MAX {
            self.readers.remove(0);
        }
        self.readers.push((opened, begin));
    }

    fn read(&mut self, reader: usize, count: u32) {
        let Some((reader, begin)) = self.readers.get_mut(reader) else { return };
        let mut filled = Vec::new();
        let progress = reader.fill(count, &mut filled).unwrap();
        let found: Vec<Say> = filled.iter().flat_map(said).collect();
        let due: Vec<Say> = self.model.messages.iter().filter(|say| say.offset >= *begin).cloned().collect();
        assert_eq!(progress, if due.is_empty() { Progress::Waiting } else { Progress::Found });
        assert!(found.len() <= count as usize);
        assert_eq!(found, due[..found.len()]);
        *begin = found.last().map_or(*begin, |say| say.offset + 1);
    }

    fn check(&self) {
        let standing = self.house().shard.stream_states(&[STREAM]).unwrap()[0];
        let messages = &self.model.messages;
        let bytes: usize = messages.iter().map(|say| say.body.len()).sum();
        let time = |say: Option<&Say>| say.map_or(0, |say| say.stored_at_ms);
        assert_eq!((standing.first, standing.next), (self.model.first(), self.model.next));
        assert_eq!((standing.count, standing.bytes), (messages.len() as u64, bytes as u64));
        let times = (standing.first_timestamp_ms, standing.last_timestamp_ms);
        assert_eq!(times, (time(messages.first()), time(messages.last())));
        let groups = self.house().shard.stream_groups(STREAM).unwrap();
        let offsets: BTreeMap<&str, u64> =
            groups.iter().filter_map(|group| Some((group.name.as_str(), group.offset?))).collect();
        assert_eq!(offsets, self.model.groups);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_is_a_list_whose_beginning_goes(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
            pair.check();
        }
        prop_assert_eq!(read_all(&mut reader(pair.house(), ReadFrom::First)), pair.model.messages);
    }
}
