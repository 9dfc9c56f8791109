//! The history of a log and its promises, by the number of disk steps: the states that a start may find.

use std::sync::Arc;

use penstock_log::{Log, Opened, Position, RAISE};

use super::crashed::Crash;
use super::load::FIRST_WIDE;
use super::producers::Sent;
use super::{Model, epoch_record_bytes};

/// Where a record ends, and the content of the queues after it.
#[derive(Clone, Debug)]
struct Entry {
    position: Position,
    model: Arc<Model>,
    /// The least number of disk steps before it can be there.
    steps_min: usize,
}

/// How many disk steps were done, and how many begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub done: usize,
    pub begun: usize,
}

impl At {
    pub fn after(steps: usize) -> At {
        At { done: steps, begun: steps }
    }
}

/// The past; see the module. Promises are (steps done, position): from then on a start must find everything below.
#[derive(Clone)]
pub struct Past {
    entries: Vec<Entry>,
    synced: Vec<(usize, Position)>,
    written: Vec<(usize, Position)>,
    /// Each may have left its record, after which nothing was served.
    failed_starts: u64,
    sent: Vec<Sent>,
}

impl Default for Past {
    fn default() -> Self {
        let beginning = Entry { position: Position(0), model: Arc::default(), steps_min: 0 };
        Past { entries: vec![beginning], synced: Vec::new(), written: Vec::new(), failed_starts: 0, sent: Vec::new() }
    }
}

impl Past {
    /// The log ended there after so many steps; the next step may bring its last record to the disk.
    pub fn appended(&mut self, position: Position, model: &Model, steps: usize) {
        if self.entries.last().is_some_and(|last| last.position == position) {
            return;
        }
        self.entries.push(Entry { position, model: Arc::new(model.clone()), steps_min: steps + 1 });
    }

    pub fn start_failed(&mut self) {
        self.failed_starts += 1;
    }

    pub fn synced(&mut self, position: Position, steps: usize) {
        self.synced.push((steps, position));
    }

    pub fn written(&mut self, position: Position, steps: usize) {
        self.written.push((steps, position));
    }

    /// The past of a boot that begins with the result of a crash.
    pub fn of_next_boot(&self, at: At, crash: Crash) -> Past {
        let there = self.entries.iter().filter(|entry| entry.steps_min <= at.begun);
        let entries = there.map(|entry| Entry { steps_min: 0, ..entry.clone() }).collect();
        let owed = |promises: &[_]| vec![(0, promised(promises, at.done))];
        let sent = self.sent_before(at).map(|sent| Sent { steps: 0, ..sent.clone() }).collect();
        let (synced, written) = (owed(&self.synced), owed(self.promises(crash)));
        Past { entries, synced, written, failed_starts: self.failed_starts, sent }
    }

    /// Whether a queue may have had a number above 2^32.
    pub fn has_wide_numbers(&self) -> bool {
        let is_wide = |id: u64| id > u64::from(u32::MAX);
        let mut sent = self.sent.iter().flat_map(|sent| sent.queues.iter());
        self.entries.iter().any(|entry| is_wide(entry.model.highest)) || sent.any(|&id| is_wide(id))
    }

    /// A named producer is about to send a message for the first time.
    pub fn sends(&mut self, sent: Sent) {
        self.sent.push(sent);
    }

    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Messages that producers had sent, or may have, at a crash.
    fn sent_before(&self, at: At) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(move |sent| sent.steps <= at.begun)
    }

    /// Producers send again the messages that do not count as stored; afterwards all are stored.
    pub fn send_again(&self, model: &mut Model, log: &mut Log, at: At) {
        for sent in self.sent_before(at) {
            if sent.is_owed(model) {
                sent.publish(model, log).unwrap();
            }
        }
        log.write().unwrap();
        self.sent_before(at).for_each(|sent| sent.check(model));
    }

    /// The log goes on in the same boot: records above the position never reached the disk.
    pub fn forget_above(&mut self, position: Position) {
        self.entries.retain(|entry| entry.position <= position);
    }

    /// Checks the state found by a start after a crash; returns where the log ended and the content of its queues.
    pub fn check(&self, opened: &Opened, at: At, crash: Crash) -> (Position, Model) {
        assert_eq!(opened.quarantined, [], "no disk changed a byte");
        let epoch_bytes = epoch_record_bytes(opened.log.format());
        let end = Position(opened.state.position.0 - epoch_bytes);
        let owed = promised(self.promises(crash), at.done);
        assert!(end >= owed, "the log ends at {} and was confirmed up to {}", end.0, owed.0);
        let entry = self.entry_at(end, epoch_bytes).unwrap_or_else(|| panic!("no record ends at {}", end.0));
        assert!(entry.steps_min <= at.begun, "the record before {} was not written yet", end.0);
        let mut model = (*entry.model).clone();
        if crash.loses_page_cache() || opened.recovery.torn_bytes > 0 {
            model.raise();
        }
        let raised_again = opened.state.first_sequence.0.saturating_sub(model.first) / RAISE;
        (0..raised_again.min(self.failed_starts)).for_each(|_| model.raise());
        model.check_state(&opened.state);
        check_messages(&model, &opened.log);
        self.sent_before(at).for_each(|sent| sent.check(&model));
        if crash.loses_page_cache() {
            assert!(opened.log.synced() >= opened.state.position, "raised numbers may be handed out twice");
        }
        (end, model)
    }

    fn entry_at(&self, end: Position, epoch_bytes: u64) -> Option<&Entry> {
        let before = |starts: u64| end.0.checked_sub(starts * epoch_bytes);
        let mut places = (0..=self.failed_starts).filter_map(before);
        places.find_map(|place| self.entries.iter().rev().find(|entry| entry.position.0 == place))
    }

    /// The promises for such a crash.
    fn promises(&self, crash: Crash) -> &[(usize, Position)] {
        if crash.loses_page_cache() { &self.synced } else { &self.written }
    }
}

/// Of the many queues with the same messages it checks some, others each time.
pub fn check_messages(model: &Model, log: &Log) {
    let turn = log.end().0;
    model.check_messages_of(log, |id| id <= FIRST_WIDE || id >= 1 << 31 || (id + turn).is_multiple_of(32));
}

fn promised(promises: &[(usize, Position)], steps: usize) -> Position {
    let kept = promises.iter().filter(|(at, _)| *at <= steps).map(|&(_, position)| position);
    kept.max().unwrap_or(Position(0))
}
