//! Storing dead letters: first in other logs, then in this one together with their settlements.

use std::sync::Arc;

use penstock_log::{EnvelopeSizes, Operation, Outcome, Settlement, Target};
use penstock_queue::{QueueId, Sequence, Settled};
use penstock_wire::amqp::deaths::Reason;
use rustc_hash::FxHashMap;

use super::letter::{Letter, Part};
use crate::counters::Metric;
use crate::dead_letters::DeadLetters;
use crate::error::EngineError;
use crate::log_number::LogNumber;
use crate::publication::{Fate, PassedOn, Publication};
use crate::routes::Routes;
use crate::shard::Shard;
use crate::state::State;
use crate::storing::Sent;

/// How often queues that become full meanwhile are left out of what a log is to store.
const TRIES_MAX: usize = 4;

/// A letter that is settled, its publication if it is stored in this log, and the queues that take it.
type Leaving<'a> = (&'a Letter<'a>, Option<Publication<'a>>, Vec<QueueId>);

impl Shard {
    /// Stores the letters in the other logs that they go to, and waits a short time until these are on the disk: otherwise they
    /// stay. Their queues in this log remain.
    pub(super) fn store_elsewhere_first(
        &self,
        vhost: &Arc<Shard>,
        part: &Part,
        letters: &mut [Letter<'_>],
        now_ms: u64,
    ) -> Result<(), EngineError> {
        if vhost.others.is_empty() {
            return Ok(());
        }
        let mut passed = Vec::new();
        for (place, letter) in letters.iter_mut().enumerate() {
            let of = |queue: QueueId| vhost.others.home(queue).map_or(LogNumber::VHOST, |home| home.number());
            let elsewhere = letter.queues.iter().map(|&queue| PassedOn { log: of(queue), queue, place, is_all: true });
            let elsewhere: Vec<PassedOn> = elsewhere.filter(|one| one.log != self.number()).collect();
            letter.queues.retain(|&queue| of(queue) == self.number());
            passed.extend(elsewhere);
        }
        passed.sort_by_key(|one| (one.log, one.place));
        for group in passed.chunk_by(|one, other| one.log == other.log) {
            let log = group.first().map_or(LogNumber::VHOST, |one| one.log);
            let home = if log == LogNumber::VHOST { Some(Arc::clone(vhost)) } else { vhost.others.log(log) };
            // One that was deleted with its queue takes nothing.
            let Some(home) = home else { continue };
            let mut group = group.to_vec();
            for _ in 0..TRIES_MAX {
                home.lock()?.leave_out_full(&mut group, letters, part.settings.as_deref());
                let refused = store_there(&home, &group, letters, now_ms, part.settings.as_deref())?;
                // A queue that became full since keeps no other one from the letter.
                group.retain(|one| refused.contains(&one.place));
                if group.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Settles letters and stores them in their queues of this log, in one step; returns how many.
    pub(super) fn store_and_settle(
        &self,
        part: &Part,
        letters: &[Letter<'_>],
        now_ms: u64,
    ) -> Result<usize, EngineError> {
        let unreadable = letters.iter().filter(|letter| letter.view.is_none()).map(|letter| letter.sequence);
        let back: Vec<Sequence> = unreadable.filter(|sequence| !part.is_uncommitted(*sequence)).collect();
        let mut leaving: Vec<Leaving<'_>> = Vec::with_capacity(letters.len());
        for letter in letters.iter().filter(|letter| letter.view.is_some() && !letter.stays) {
            let publication = if letter.queues.is_empty() { None } else { letter.publication(false)? };
            leaving.push((letter, publication, letter.queues.clone()));
        }
        let (room, has_sealed) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            if state.closed || state.stopped.is_some() {
                return Ok(0);
            }
            state.give_back(part.id, &back);
            state.keep_leaving(part, &mut leaving);
            if leaving.is_empty() {
                return Ok(back.len());
            }
            state.stored_at_ms = state.stored_at_ms.max(now_ms);
            match self.is_full().then(|| self.full()).map_or_else(|| state.reserve_leaving(&leaving), Err) {
                Err(error) if error.is_full() => (Some(state.log.room()), false),
                reserved => {
                    reserved?;
                    let stored = state.append_leaving(part.id, &leaving);
                    stored.inspect_err(|error| state.stopped = Some(error.to_string()))?;
                    state.write()?;
                    state.wake_touched();
                    state.note_touched_long(part.id);
                    (None, state.has_sealed())
                }
            }
        };
        if let Some(room) = room {
            self.ran_out(room);
            return Ok(back.len());
        }
        if has_sealed {
            self.request_fold();
        }
        if part.settings.is_some() {
            let is_moved = |(letter, publication, _): &Leaving<'_>| letter.is_elsewhere || publication.is_some();
            let letters: Vec<_> = leaving.iter().map(|leaving| (leaving.0, is_moved(leaving))).collect();
            self.count_dead(&letters);
        }
        let stored = leaving.iter().filter_map(|(_, publication, _)| publication.as_ref());
        let bytes = stored.clone().map(|publication| publication.payload.body_bytes()).sum();
        self.counters().add(Metric::Published, stored.count() as u64);
        self.counters().add(Metric::PublishedBytes, bytes);
        Ok(back.len() + leaving.len())
    }
}

/// Stores copies in one log; returns the places of letters that may be dropped and that a full queue kept from all queues there.
fn store_there(
    home: &Arc<Shard>,
    group: &[PassedOn],
    letters: &mut [Letter<'_>],
    now_ms: u64,
    settings: Option<&DeadLetters>,
) -> Result<Vec<usize>, EngineError> {
    let mut refused = Vec::new();
    if group.is_empty() {
        return Ok(refused);
    }
    let (places, fates) = store_copies(home, group, letters, now_ms)?;
    for (at, place) in places.into_iter().enumerate() {
        let Some(letter) = letters.get_mut(place) else { continue };
        match fates.get(at).copied().flatten() {
            Some(Fate::Stored(_)) => letter.is_elsewhere = true,
            Some(Fate::Overflow | Fate::Shut) if letter.is_kept(settings) => letter.stays = true,
            Some(Fate::Overflow | Fate::Shut) => refused.push(place),
            Some(_) => {}
            None => letter.stays = true,
        }
    }
    Ok(refused)
}

/// Stores copies in one log; returns the letters by their indexes, and the fates of those that found space and are on the disk.
fn store_copies(
    home: &Arc<Shard>,
    group: &[PassedOn],
    letters: &[Letter<'_>],
    now_ms: u64,
) -> Result<(Vec<usize>, Vec<Option<Fate>>), EngineError> {
    let (mut routes, places) = Routes::of_passed(group);
    if home.is_behind() {
        return Ok((places, Vec::new()));
    }
    let mut batch = Vec::with_capacity(places.len());
    for letter in places.iter().filter_map(|&place| letters.get(place)) {
        batch.extend(letter.publication(true)?);
    }
    let sent = Sent { producer: None, batch: &batch, level: None, now_ms, with_sequences: false };
    let known: Vec<bool> = {
        let guard = home.lock()?;
        batch.iter().map(|publication| guard.has_copy(&publication.payload)).collect()
    };
    let mut fates = Vec::with_capacity(batch.len());
    match home.store_routed(sent, &mut routes, &mut fates) {
        // It is another log's fault: the message stays, and is copied once that one is well.
        Err(EngineError::Closed(_) | EngineError::Stopped(..)) => return Ok((places, Vec::new())),
        Err(error) if !error.is_full() => return Err(error),
        _ => {}
    }
    let end = home.lock()?.log.end();
    // Those that it had before are safe: of a log with much traffic there is always something that it does not have in time.
    let is_synced = known.iter().all(|&is_known| is_known) || home.syncs_in_time(end);
    let told = fates.into_iter().zip(known).map(|(fate, is_known)| (is_synced || is_known).then_some(fate));
    Ok((places, told.collect()))
}

impl State {
    /// Makes messages ready whose records cannot be read.
    fn give_back(&mut self, id: QueueId, back: &[Sequence]) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        back.iter().for_each(|sequence| self.dying.remove(id, *sequence, None));
        let released = entry.machine.release(back);
        self.wake(id, released);
    }

    /// Keeps those that may leave now, without queues that do not take them.
    fn keep_leaving(&mut self, part: &Part, leaving: &mut Vec<Leaving<'_>>) {
        let has_queue = self.queues.contains_key(&part.id);
        // What queues get of this part, which they do not have yet.
        let mut given: FxHashMap<QueueId, (u64, u64)> = FxHashMap::default();
        leaving.retain_mut(|(letter, publication, queues)| {
            if !has_queue || !self.dying.contains(part.id, letter.sequence) {
                return false;
            }
            let Some(bytes) = publication.as_ref().map(|publication| publication.payload.body_bytes()) else {
                return true;
            };
            let count = queues.len();
            queues.retain(|queue| self.takes_letter(*queue, given.get(queue).copied().unwrap_or_default(), bytes));
            if queues.len() < count && letter.is_kept(part.settings.as_deref()) {
                return false;
            }
            if queues.is_empty() {
                *publication = None;
            }
            for queue in queues {
                let (count, sum) = given.entry(*queue).or_default();
                (*count, *sum) = (*count + 1, *sum + bytes);
            }
            true
        });
    }

    /// Leaves out queues that are full now, of letters that may be dropped: the others get them. Letters that are kept reach all
    /// queues of a log or none, because it recognizes the whole letter when it comes again.
    fn leave_out_full(&self, group: &mut Vec<PassedOn>, letters: &[Letter<'_>], settings: Option<&DeadLetters>) {
        if self.rejecting.is_empty() && self.shut.is_empty() {
            return;
        }
        let mut given: FxHashMap<QueueId, (u64, u64)> = FxHashMap::default();
        group.retain(|one| {
            let Some(letter) = letters.get(one.place) else { return false };
            let (bytes, (count, sum)) =
                (u64::from(letter.body_bytes()), given.get(&one.queue).copied().unwrap_or_default());
            if !letter.is_kept(settings) && !self.takes_letter(one.queue, (count, sum), bytes) {
                return false;
            }
            given.insert(one.queue, (count + 1, sum + bytes));
            true
        });
    }

    /// Whether a queue takes a message of so many bytes behind so many others that it gets with it.
    pub(crate) fn takes_letter(&self, queue: QueueId, (count, bytes): (u64, u64), body_bytes: u64) -> bool {
        if self.shut.contains(&queue) {
            return false;
        }
        !self.rejects(queue, (count, bytes), body_bytes)
    }

    fn reserve_leaving(&mut self, leaving: &[Leaving<'_>]) -> Result<(), EngineError> {
        for (_, publication, queues) in leaving {
            publication.iter().for_each(|publication| self.assign_keys(queues, &publication.payload));
        }
        let mut sizes = EnvelopeSizes::default();
        for (_, publication, queues) in leaving {
            publication.iter().for_each(|publication| sizes.add_message(&publication.payload, queues.len()));
            sizes.add_settle(&settlement_of(QueueId(0), Outcome::Drop, &Settled::default()), 1);
        }
        if self.log.takes_envelope(&sizes) {
            return Ok(self.log.reserve_envelope(&sizes)?);
        }
        for (_, publication, queues) in leaving {
            if let Some(publication) = publication {
                self.log.reserve(&publication.payload, queues.len())?;
            }
        }
        Ok(())
    }

    /// An error stops the shard, whose queues are then ahead of its log.
    fn append_leaving(&mut self, id: QueueId, leaving: &[Leaving<'_>]) -> Result<(), EngineError> {
        let settled = self.settle_leaving(id, leaving);
        let (mut targets, mut ends): (Vec<Target>, Vec<(&Publication<'_>, usize)>) = (Vec::new(), Vec::new());
        self.assigned = None;
        for (_, publication, queues) in leaving {
            let Some(publication) = publication else { continue };
            self.assign_sequences(queues, &publication.payload, 0);
            if !self.targets.is_empty() {
                targets.extend_from_slice(&self.targets);
                ends.push((publication, targets.len()));
            }
        }
        let mut operations = self.messages(&ends, &targets);
        operations.extend(settled.iter().map(|(queue, outcome, settled)| Operation::Settle {
            settlement: settlement_of(*queue, *outcome, settled),
            ranges: &settled.ranges,
        }));
        let mut sizes = EnvelopeSizes::default();
        for operation in &operations {
            match operation {
                Operation::Message { payload, targets, .. } => sizes.add_message(payload, targets.len()),
                Operation::Settle { settlement, ranges } => sizes.add_settle(settlement, ranges.len()),
                Operation::Mark(_) | Operation::Delete(_) => {}
            }
        }
        if self.log.takes_envelope(&sizes) {
            self.log.append_together(&operations)?;
            return Ok(());
        }
        // A message for more queues than an envelope has is alone: it is stored first.
        for operation in operations {
            match operation {
                Operation::Message { payload, stored_at_ms, targets } => {
                    self.log.append_message(&payload, stored_at_ms, targets)?;
                }
                operation => drop(self.log.append_together(&[operation])?),
            }
        }
        Ok(())
    }

    /// Settles them in memory, by the number that the log has for the lane and by outcome.
    fn settle_leaving(&mut self, id: QueueId, leaving: &[Leaving<'_>]) -> Vec<(QueueId, Outcome, Settled)> {
        let outcome_of = |reason| if reason == Reason::Expired { Outcome::Expire } else { Outcome::Drop };
        let key = |letter: &Letter<'_>| (letter.sequence.lane(), outcome_of(letter.reason));
        let mut all = Vec::new();
        for some in leaving.chunk_by(|(one, ..), (other, ..)| key(one) == key(other)) {
            let messages: Vec<(Sequence, u32)> =
                some.iter().map(|(letter, ..)| (letter.sequence, letter.body_bytes())).collect();
            let (Some((first, ..)), Some(entry)) = (some.first(), self.queues.get_mut(&id)) else { continue };
            let (mut settled, _) = entry.machine.expire(&messages);
            for (sequence, bytes) in messages {
                self.dying.remove(id, sequence, Some(bytes));
                self.overdue.remove(id, sequence);
            }
            settled.ranges.iter_mut().for_each(|range| {
                *range = penstock_queue::SequenceRange { first: range.first.within(), last: range.last.within() };
            });
            if settled.count > 0 {
                all.push((id.lane(first.sequence.lane()), outcome_of(first.reason), settled));
            }
        }
        all
    }
}

fn settlement_of(queue: QueueId, outcome: Outcome, settled: &Settled) -> Settlement {
    Settlement { queue, outcome, count: settled.count, bytes: settled.bytes, due_at_ms: None }
}
