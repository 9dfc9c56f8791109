//! State of a stream beside the queue machine: its limits, its readers, and the progress of its groups.
//!
//! Invariants: one reader of a group at a time gets messages, so that a stored offset never skips messages of another
//! reader. Readers that take turns follow each other in the order of their arrival; one that does not is alone, until
//! another comes. This module does not know the readers' positions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use penstock_log::marks;
use penstock_queue::QueueId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::signal::{Signal, Wakes};
use crate::watchers::Watchers;

/// The most groups of a stream.
pub const GROUPS_MAX: usize = 4096;

/// Limits for the oldest messages; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    pub max_age_ms: u64,
    pub max_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReaderId(u64);

/// Readers with one name.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// The last processed message.
    pub offset: Option<u64>,
    pub reader_count: usize,
    /// Readers that are active one at a time; the first is.
    turns: VecDeque<ReaderId>,
    /// The reader that takes no turns.
    alone: Option<ReaderId>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub settings: StreamSettings,
    /// Nothing expires by age before this.
    pub too_old_at_ms: u64,
    readers: FxHashMap<ReaderId, Arc<Signal>>,
    /// Readers that found nothing and wait for the next message.
    waiting: FxHashSet<ReaderId>,
    /// Those who wait for the next message and are no readers.
    watchers: Watchers,
    groups: BTreeMap<String, Group>,
    last_reader: u64,
}

impl Stream {
    /// Takes effect at the next check: other limits may expire more.
    pub fn set(&mut self, settings: StreamSettings) {
        self.settings = settings;
        self.too_old_at_ms = 0;
    }

    pub fn new(settings: StreamSettings, offsets: BTreeMap<String, u64>) -> Stream {
        let group = |(name, offset)| (name, Group { offset: Some(offset), ..Group::default() });
        Stream {
            settings,
            too_old_at_ms: 0,
            readers: FxHashMap::default(),
            waiting: FxHashSet::default(),
            watchers: Watchers::default(),
            groups: offsets.into_iter().map(group).collect(),
            last_reader: 0,
        }
    }

    pub fn reader_count(&self) -> usize {
        self.readers.len()
    }

    /// Adds a reader, to a group's turns when it is single-active. Otherwise it is alone in its group: the readers
    /// before it end, as a lone reader ends with the next one.
    pub fn enter(
        &mut self,
        signal: &Arc<Signal>,
        group: Option<&str>,
        single_active: bool,
        wakes: &mut Wakes,
    ) -> ReaderId {
        self.last_reader += 1;
        let id = ReaderId(self.last_reader);
        self.readers.insert(id, Arc::clone(signal));
        if let Some(name) = group {
            let group = self.groups.entry(name.to_owned()).or_default();
            group.reader_count += 1;
            let mut over: Vec<ReaderId> = group.alone.take().into_iter().collect();
            if single_active {
                group.turns.push_back(id);
            } else {
                over.extend(group.turns.drain(..));
                group.alone = Some(id);
            }
            let reason = taken_over(name);
            over.iter().filter_map(|id| self.readers.get(id)).for_each(|signal| wakes.cancel(signal, &reason));
        }
        id
    }

    /// Removes a reader; the next one of its group becomes active.
    pub fn leave(&mut self, id: ReaderId, group: Option<&str>, wakes: &mut Wakes) {
        self.readers.remove(&id);
        self.waiting.remove(&id);
        let Some((name, group)) = group.and_then(|name| self.groups.get_mut(name).map(|group| (name, group))) else {
            return;
        };
        group.reader_count = group.reader_count.saturating_sub(1);
        let was_active = group.turns.front() == Some(&id);
        group.turns.retain(|&turn| turn != id);
        group.alone = group.alone.filter(|&alone| alone != id);
        if was_active && let Some(signal) = group.turns.front().and_then(|next| self.readers.get(next)) {
            wakes.add(signal);
        }
        if group.reader_count == 0 && group.offset.is_none() {
            self.groups.remove(name);
        }
    }

    /// Whether that reader is active in its group.
    pub fn is_active(&self, id: ReaderId, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.turns.front() == Some(&id))
    }

    /// Registers a reader for the next message.
    pub fn wait(&mut self, id: ReaderId) {
        self.waiting.insert(id);
    }

    /// Rings a signal once, at the next message or at the stream's end.
    pub fn watch(&mut self, signal: &Arc<Signal>) {
        self.watchers.add(signal);
    }

    /// Wakes waiting readers and watchers.
    pub fn wake(&mut self, wakes: &mut Wakes) {
        self.watchers.wake(wakes);
        for id in self.waiting.drain() {
            self.readers.get(&id).into_iter().for_each(|signal| wakes.add(signal));
        }
    }

    pub fn cancel(&mut self, reason: &str, wakes: &mut Wakes) {
        self.watchers.wake(wakes);
        self.readers.values().for_each(|signal| wakes.cancel(signal, reason));
    }

    pub fn groups(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group))
    }

    /// How far a group has read.
    pub fn offset_of(&self, group: &str) -> Option<u64> {
        self.groups.get(group)?.offset
    }

    pub fn has_room_for(&self, group: &str) -> bool {
        self.groups.len() < GROUPS_MAX || self.groups.contains_key(group)
    }

    pub fn store(&mut self, group: &str, offset: u64) {
        match self.groups.get_mut(group) {
            Some(group) => group.offset = Some(offset),
            None => {
                self.groups.insert(group.to_owned(), Group { offset: Some(offset), ..Group::default() });
            }
        }
    }

    /// Removes a group's offset; its readers stay.
    pub fn forget(&mut self, group: &str) {
        if let Some(found) = self.groups.get_mut(group) {
            found.offset = None;
            if found.reader_count == 0 {
                self.groups.remove(group);
            }
        }
    }
}

fn taken_over(group: &str) -> String {
    format!(
        "another reader of group '{group}' has begun since; set single_active to take turns, or read all messages with \
         another group"
    )
}

/// The stored offsets of groups, by stream.
pub(crate) fn groups_in(found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) -> FxHashMap<QueueId, BTreeMap<String, u64>> {
    let mut groups: FxHashMap<QueueId, BTreeMap<String, u64>> = FxHashMap::default();
    for ((owner, name), value) in found {
        if let (Some(queue), Some(offset)) = (marks::queue_of_groups(owner), value.first_chunk()) {
            let name = String::from_utf8_lossy(name).into_owned();
            groups.entry(queue).or_default().insert(name, u64::from_le_bytes(*offset));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(stream: &mut Stream, group: &str, single_active: bool) -> (ReaderId, Arc<Signal>) {
        let signal = Arc::default();
        (stream.enter(&signal, Some(group), single_active, &mut Wakes::default()), signal)
    }

    #[test]
    fn the_active_readers_of_a_group_follow_each_other_as_they_came() {
        let mut stream = Stream::new(StreamSettings::default(), BTreeMap::new());
        let [first, second, third] = std::array::from_fn(|_| enter(&mut stream, "g", true).0);
        assert!(stream.is_active(first, "g") && !stream.is_active(second, "g"));

        stream.leave(second, Some("g"), &mut Wakes::default());
        assert!(stream.is_active(first, "g"));
        stream.leave(first, Some("g"), &mut Wakes::default());

        assert!(stream.is_active(third, "g"));
    }

    #[test]
    fn a_reader_that_takes_no_turns_has_its_group_until_another_comes() {
        let mut stream = Stream::new(StreamSettings::default(), BTreeMap::new());
        let is_over = |signal: &Signal| signal.cancelled().is_some_and(|reason| reason.contains("single_active"));
        let (first, one) = enter(&mut stream, "g", false);
        let (_, elsewhere) = enter(&mut stream, "h", false);

        let (_, two) = enter(&mut stream, "g", false);
        assert!(is_over(&one) && !is_over(&two) && !is_over(&elsewhere));
        stream.leave(first, Some("g"), &mut Wakes::default());

        let (third, three) = enter(&mut stream, "g", true);
        assert!(is_over(&two) && stream.is_active(third, "g"));
        let (fourth, four) = enter(&mut stream, "g", true);
        assert!(!is_over(&three));

        let (_, five) = enter(&mut stream, "g", false);
        assert!(is_over(&three) && is_over(&four) && !is_over(&five));
        assert!(!stream.is_active(third, "g") && !stream.is_active(fourth, "g"));
    }

    #[test]
    fn a_group_without_readers_stays_for_its_offset_only() {
        let mut stream = Stream::new(StreamSettings::default(), BTreeMap::new());
        let (id, _) = enter(&mut stream, "g", false);
        stream.leave(id, Some("g"), &mut Wakes::default());
        assert_eq!(stream.groups().count(), 0);

        stream.store("g", 7);
        let (id, _) = enter(&mut stream, "g", false);
        stream.leave(id, Some("g"), &mut Wakes::default());

        assert_eq!(stream.groups().map(|(name, group)| (name, group.offset)).collect::<Vec<_>>(), [("g", Some(7))]);
        stream.forget("g");
        assert_eq!(stream.groups().count(), 0);
    }
}
