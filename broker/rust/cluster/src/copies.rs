//! Copies of logs under way: those that a replica gives as the leader, one for each broker, and the one that it fetches.
//!
//! Invariant: files are read and written by the threads for disks, one part at a time, so a copy keeps a part in memory and
//! the fetching side sets the speed. A copy that breaks is begun anew by the next [`CopyMessage::Offer`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use penstock_log::{BackupTicket, LogError};
use penstock_replica::{BrokerId, Millis};
use penstock_replication::{CopyError, CopyMessage, CopySource, CopyTarget};

use crate::lock::lock;

/// The files of a copy stay on the leader's disk for this long after the last part was fetched.
const IDLE_MILLIS: Millis = 60_000;
/// A part is asked for again after this time.
const ASK_AGAIN_MILLIS: Millis = 5_000;

#[derive(Default)]
pub(crate) struct Copies {
    given: Mutex<BTreeMap<BrokerId, Given>>,
    fetched: Mutex<Option<Fetched>>,
}

struct Given {
    source: CopySource,
    used: Millis,
}

struct Fetched {
    from: BrokerId,
    target: CopyTarget,
    asked: Millis,
}

/// The next step of a copy, after a part came.
pub(crate) enum Progress {
    /// Ask for this part.
    Ask(CopyMessage),
    /// All files are there. The replica is opened again, and then the leader hears this.
    Whole(CopyMessage),
    Nothing,
}

impl Copies {
    /// A copy for a broker, in place of an earlier one; returns its offer. Blocks.
    pub fn give(&self, to: BrokerId, copy: u64, ticket: BackupTicket, now: Millis) -> Result<CopyMessage, LogError> {
        let source = CopySource::open(copy, ticket)?;
        let offer = source.offer();
        lock(&self.given).insert(to, Given { source, used: now });
        Ok(offer)
    }

    /// Whether a copy for a broker is under way.
    pub fn gives(&self, to: BrokerId) -> bool {
        lock(&self.given).contains_key(&to)
    }

    /// The part that a broker asks for. Blocks.
    pub fn read(&self, to: BrokerId, fetch: &CopyMessage, now: Millis) -> Result<Option<CopyMessage>, LogError> {
        let mut given = lock(&self.given);
        let Some(found) = given.get_mut(&to) else { return Ok(None) };
        found.used = now;
        found.source.read(fetch)
    }

    /// The copy for a broker is not needed any more.
    pub fn end(&self, to: BrokerId) {
        let ended = lock(&self.given).remove(&to);
        drop(ended);
    }

    /// Ends copies that nothing was fetched of for long; returns what to ask for again, and of which broker.
    pub fn tick(&self, now: Millis) -> Option<(BrokerId, CopyMessage)> {
        lock(&self.given).retain(|_, given| now.saturating_sub(given.used) < IDLE_MILLIS);
        let mut fetched = lock(&self.fetched);
        let fetched = fetched.as_mut()?;
        if now.saturating_sub(fetched.asked) < ASK_AGAIN_MILLIS {
            return None;
        }
        fetched.asked = now;
        Some((fetched.from, fetched.target.fetch()?))
    }

    /// Begins to fetch; returns what to ask for first. A copy without bytes is whole at once. Blocks.
    pub fn begin(&self, from: BrokerId, target: CopyTarget, now: Millis) -> Result<Progress, CopyError> {
        let mut fetched = lock(&self.fetched);
        *fetched = Some(Fetched { from, target, asked: now });
        next(&mut fetched)
    }

    /// Takes a part. An error ends the copy. Blocks.
    pub fn take(&self, from: BrokerId, part: &CopyMessage, now: Millis) -> Result<Progress, CopyError> {
        let mut fetched = lock(&self.fetched);
        let Some(found) = fetched.as_mut().filter(|found| found.from == from) else { return Ok(Progress::Nothing) };
        found.asked = now;
        if let Err(error) = found.target.take(part) {
            *fetched = None;
            return Err(error);
        }
        next(&mut fetched)
    }

    /// The connection to a broker broke, and with it its copies.
    pub fn disconnected(&self, broker: BrokerId) {
        self.end(broker);
        let mut fetched = lock(&self.fetched);
        if fetched.as_ref().is_some_and(|fetched| fetched.from == broker) {
            *fetched = None;
        }
    }
}

fn next(fetched: &mut Option<Fetched>) -> Result<Progress, CopyError> {
    let Some(ask) = fetched.as_ref().map(|fetched| fetched.target.fetch()) else { return Ok(Progress::Nothing) };
    match ask {
        Some(ask) => Ok(Progress::Ask(ask)),
        None => match fetched.take() {
            Some(whole) => whole.target.finish().map(Progress::Whole),
            None => Ok(Progress::Nothing),
        },
    }
}
