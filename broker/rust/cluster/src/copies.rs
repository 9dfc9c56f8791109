//! Copies of logs under way: those that a replica gives as the leader, one for each broker, and the one that it fetches.
//!
//! Invariants: messages about a replica's copies wait here, and one thread for disks at a time takes one. So a copy keeps a few parts in memory,
//! occupies one thread, and the fetching side sets the speed. One thread at a time writes. No lock that the timer or a connection waits for
//! is held while a disk writes. A copy that breaks is begun anew by the next [`CopyMessage::Offer`]. A message that is dropped because too
//! many wait is sent again later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use penstock_log::{BackupTicket, CorruptAt, LogError};
use penstock_replica::{BrokerId, Millis, Position};
use penstock_replication::{CopyError, CopyMessage, CopySource, CopyTarget};

use crate::lock::lock;

/// The files of a copy stay on the leader's disk for this long after the last part was fetched. Then the replica gets another copy, if it
/// still lacks records.
const IDLE_MILLIS: Millis = 60_000;
/// A part is asked for again after this time.
const ASK_AGAIN_MILLIS: Millis = 5_000;
/// Messages that wait for a thread, and parts that wait for room in the connection to a broker: a few times those that are asked for ahead.
const WAITING_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct Copies {
    waiting: Mutex<Waiting>,
    given: Mutex<BTreeMap<BrokerId, Given>>,
    fetching: Mutex<Fetching>,
    /// Held while files of a copy are written, removed or installed.
    writing: Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<(BrokerId, CopyMessage)>,
    /// A thread takes them, or is about to.
    is_taken: bool,
}

struct Given {
    /// Absent where it could not be read.
    source: Option<CopySource>,
    used: Millis,
    /// Requests for parts that came while the connection had no room for an answer.
    postponed: VecDeque<CopyMessage>,
}

#[derive(Default)]
struct Fetching {
    /// Counts the copies that were begun or given up.
    turn: u64,
    from: Option<BrokerId>,
    /// Absent also while a thread writes a part.
    fetched: Option<Fetched>,
}

struct Fetched {
    from: BrokerId,
    target: CopyTarget,
    asked: Millis,
}

/// The next step of a copy, after a part came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Ask this broker for these parts.
    Ask(BrokerId, Vec<CopyMessage>),
    /// All files are there.
    Whole,
    Nothing,
}

/// Why a part is not given.
#[derive(Debug)]
pub(crate) enum NotGiven {
    /// The log is not as it was written.
    Corrupt(CorruptAt),
    Log(LogError),
}

impl Fetched {
    fn progress(&mut self) -> Progress {
        if self.target.is_whole() { Progress::Whole } else { Progress::Ask(self.from, self.target.ask()) }
    }

    fn again(&self) -> Progress {
        if self.target.is_whole() { Progress::Whole } else { Progress::Ask(self.from, self.target.ask_again()) }
    }
}

impl Copies {
    /// Has a message wait. Says whether a thread is to be asked to take it.
    pub fn put(&self, from: BrokerId, message: CopyMessage) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.messages.len() < WAITING_MAX {
            waiting.messages.push_back((from, message));
        }
        !std::mem::replace(&mut waiting.is_taken, true)
    }

    /// The message that has waited longest.
    pub fn next(&self) -> Option<(BrokerId, CopyMessage)> {
        lock(&self.waiting).messages.pop_front()
    }

    /// Whether more messages wait. If not, the next one asks for a thread.
    pub fn goes_on(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.is_taken = !waiting.messages.is_empty();
        waiting.is_taken
    }

    /// A copy for a broker, in place of an earlier one; returns its offer. Blocks.
    pub fn give(&self, to: BrokerId, copy: u64, ticket: BackupTicket, now: Millis) -> Result<CopyMessage, LogError> {
        let source = CopySource::open(copy, ticket)?;
        let offer = source.offer();
        lock(&self.given).insert(to, Given { source: Some(source), used: now, postponed: VecDeque::new() });
        Ok(offer)
    }

    /// A broker gets no copy now, but later.
    pub fn fail(&self, to: BrokerId, now: Millis) {
        let failed = lock(&self.given).insert(to, Given { source: None, used: now, postponed: VecDeque::new() });
        drop(failed);
    }

    /// Whether a copy for a broker is under way.
    pub fn gives(&self, to: BrokerId) -> bool {
        lock(&self.given).contains_key(&to)
    }

    /// The part that a broker asks for, once its records are checked. Blocks.
    pub fn read(&self, to: BrokerId, fetch: &CopyMessage, now: Millis) -> Result<Option<CopyMessage>, NotGiven> {
        let mut given = lock(&self.given);
        let Some(Given { source: Some(source), used, .. }) = given.get_mut(&to) else { return Ok(None) };
        *used = now;
        source.check(fetch).map_err(NotGiven::Corrupt)?;
        source.read(fetch).map_err(NotGiven::Log)
    }

    /// A part that a broker asks for is to be sent later.
    pub fn postpone(&self, to: BrokerId, fetch: CopyMessage) {
        if let Some(given) = lock(&self.given).get_mut(&to)
            && given.postponed.len() < WAITING_MAX
        {
            given.postponed.push_back(fetch);
        }
    }

    /// Takes what was postponed. Nothing while a part is read.
    pub fn postponed(&self) -> Vec<(BrokerId, CopyMessage)> {
        let Ok(mut given) = self.given.try_lock() else { return Vec::new() };
        let each = given.iter_mut().flat_map(|(&to, given)| given.postponed.drain(..).map(move |fetch| (to, fetch)));
        each.collect()
    }

    /// The copy for a broker is not needed any more.
    pub fn end(&self, to: BrokerId) {
        let ended = lock(&self.given).remove(&to);
        drop(ended);
    }

    /// Ends all copies that are given: their log goes.
    pub fn end_all(&self) {
        let ended = std::mem::take(&mut *lock(&self.given));
        drop(ended);
    }

    /// Ends copies that nothing was fetched of for long; returns their brokers. None while a part is read.
    pub fn lapsed(&self, now: Millis) -> Vec<BrokerId> {
        let Ok(mut given) = self.given.try_lock() else { return Vec::new() };
        let is_idle = |given: &Given| now.saturating_sub(given.used) >= IDLE_MILLIS;
        let lapsed: Vec<BrokerId> = given.iter().filter(|(_, given)| is_idle(given)).map(|(&to, _)| to).collect();
        lapsed.iter().for_each(|to| drop(given.remove(to)));
        lapsed
    }

    /// The step to repeat when nothing of the copy has come for some time.
    pub fn overdue(&self, now: Millis) -> Progress {
        let mut fetching = lock(&self.fetching);
        match &mut fetching.fetched {
            Some(fetched) if now.saturating_sub(fetched.asked) >= ASK_AGAIN_MILLIS => {
                fetched.asked = now;
                fetched.again()
            }
            _ => Progress::Nothing,
        }
    }

    /// Begins to fetch, in place of an earlier copy. Blocks.
    pub fn begin(
        &self,
        from: BrokerId,
        now: Millis,
        begin: impl FnOnce() -> Result<CopyTarget, CopyError>,
    ) -> Result<Progress, CopyError> {
        let _writing = lock(&self.writing);
        let turn = self.give_up(Some(from));
        Ok(self.put_back(turn, Fetched { from, target: begin()?, asked: now }))
    }

    /// Takes a part. An error ends the copy. Blocks.
    pub fn take(&self, from: BrokerId, part: &CopyMessage, now: Millis) -> Result<Progress, CopyError> {
        let _writing = lock(&self.writing);
        let (turn, found) = {
            let mut fetching = lock(&self.fetching);
            (fetching.turn, fetching.fetched.take_if(|fetched| fetched.from == from))
        };
        let Some(mut fetched) = found else { return Ok(Progress::Nothing) };
        fetched.asked = now;
        fetched.target.take(part)?;
        Ok(self.put_back(turn, fetched))
    }

    /// Whether a copy is fetched from a broker: others send no parts.
    pub fn fetches(&self, from: BrokerId) -> bool {
        lock(&self.fetching).from == Some(from)
    }

    /// Keeps other threads from writing.
    pub fn write(&self) -> MutexGuard<'_, ()> {
        lock(&self.writing)
    }

    /// Where the copy ends that is fetched, if all of it is there.
    pub fn whole(&self) -> Option<Position> {
        let fetching = lock(&self.fetching);
        let whole = fetching.fetched.as_ref().filter(|fetched| fetched.target.is_whole());
        whole.map(|whole| whole.target.position())
    }

    /// Takes the copy that is fetched, and the broker that gave it.
    pub fn take_whole(&self) -> Option<(BrokerId, CopyTarget)> {
        let mut fetching = lock(&self.fetching);
        let whole = fetching.fetched.take_if(|fetched| fetched.target.is_whole());
        whole.map(|whole| (whole.from, whole.target))
    }

    /// Abandons the copy in progress, if any, even while a thread writes it. Returns the next turn, which is for a copy from `next`.
    pub fn give_up(&self, next: Option<BrokerId>) -> u64 {
        let mut fetching = lock(&self.fetching);
        (fetching.turn, fetching.from) = (fetching.turn + 1, next);
        let (turn, given_up) = (fetching.turn, fetching.fetched.take());
        drop(fetching);
        drop(given_up);
        turn
    }

    /// The connection to a broker broke, and with it its copies, but for one that is whole.
    pub fn disconnected(&self, broker: BrokerId) {
        self.end(broker);
        let is_fetched = lock(&self.fetching).from == Some(broker);
        if is_fetched && self.whole().is_none() {
            self.give_up(None);
        }
    }

    /// Goes on with a copy unless it was given up meanwhile.
    fn put_back(&self, turn: u64, mut fetched: Fetched) -> Progress {
        let mut fetching = lock(&self.fetching);
        if fetching.turn != turn {
            return Progress::Nothing;
        }
        let progress = fetched.progress();
        fetching.fetched = Some(fetched);
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_whose_copy_was_not_fetched_for_a_minute_gets_another_one() {
        let copies = Copies::default();
        copies.fail(7, 1_000);

        assert!(copies.lapsed(1_000 + IDLE_MILLIS - 1).is_empty() && copies.gives(7), "not at once");
        assert_eq!(copies.lapsed(1_000 + IDLE_MILLIS), [7]);
        assert!(!copies.gives(7));
        assert!(copies.lapsed(1_000 + IDLE_MILLIS).is_empty());
    }

    #[test]
    fn the_timer_does_not_wait_for_a_part_that_is_read_or_written() {
        let copies = Copies::default();
        let (_reading, _writing) = (lock(&copies.given), copies.write());

        assert!(copies.lapsed(IDLE_MILLIS).is_empty());
        assert_eq!(copies.overdue(ASK_AGAIN_MILLIS), Progress::Nothing);
    }
}
