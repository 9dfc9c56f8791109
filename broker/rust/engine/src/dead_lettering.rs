//! Moves dead letters to the queues that the dead-letter exchange of their queue leads to.
//!
//! Invariants: a message is settled in the same envelope in which its copies are stored, so after any crash there is either the
//! message or its copies. Copies in other logs name it as their source and are on the disk before it is settled: a log that has
//! one does not store it again. Records are read, and routes found, without the shard's lock, a bounded number at a time, and only
//! one thread does so for a shard.

mod letter;
mod storing;
mod waiting;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use penstock_log::Target;
use penstock_queue::{AckSet, QueueId, Sequence, SequenceRange, Standing};
use penstock_wire::amqp::deaths::Reason;

use self::letter::{Letter, Part, read_letters};
use crate::clock::clock_ms;
use crate::counters::Metric;
use crate::dead_letters::DeadLetters;
use crate::error::EngineError;
use crate::expiry::Found;
use crate::shard::Shard;
use crate::state::State;
use crate::term::Waiting;

/// Messages that are read and settled in one go.
const AT_ONCE: usize = 256;

/// With more runs of dead letters than that, whoever adds some helps: about 5 MB.
pub(crate) const RUNS_MAX: usize = 1 << 16;

/// The members of one set that are not in the other. The cost depends on the runs of the first.
fn copied_and_unsettled(copied: &AckSet, settled: &AckSet) -> Vec<Sequence> {
    let mut found = Vec::new();
    let mut unsettled = settled.next_unsettled(Sequence(0));
    while let Some(next) = copied.next_settled(unsettled) {
        if next == unsettled {
            found.push(next);
            unsettled = settled.next_unsettled(next.next());
        } else {
            unsettled = settled.next_unsettled(next);
        }
    }
    found
}

/// So many parts are moved at most when a log is closed.
const ROUNDS_AT_END: usize = 256;

/// With more refused messages of a queue than that, its publishers move some.
const REFUSED_WAITING_MAX: u64 = 1 << 14;

/// A caller that adds dead letters moves at most so many parts itself.
const ROUNDS_OF_A_CALLER: usize = 16;

/// When a shard has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    More,
    /// Nothing can be done now, as on a full disk.
    Later,
}

impl Shard {
    /// Sets where the dead letters of queues go; `None` drops them. It counts at once, also for messages that they have.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn route_dead_letters(
        &self,
        queues: impl IntoIterator<Item = (QueueId, Option<DeadLetters>)>,
    ) -> Result<(), EngineError> {
        for (id, settings) in queues {
            let is_routed = settings.is_some();
            let set = |state: &mut State| state.route_dead_letters(id, settings);
            let home = self.others.home(id);
            match &home {
                Some(home) => set(&mut *home.lock()?),
                None => set(&mut *self.lock()?),
            }
            if is_routed && !self.others.is_empty() {
                home.as_deref().unwrap_or(self).finish_copied(id)?;
            }
        }
        Ok(())
    }

    /// Dead-letters the messages of a queue of this log of which another log has a copy: a crash came before they were settled,
    /// and a consumer could ack them. The reason is in the copy.
    fn finish_copied(&self, id: QueueId) -> Result<(), EngineError> {
        let Some(vhost) = self.vhost() else { return Ok(()) };
        let lanes = self.lanes_of(id)?;
        for log in vhost.family().into_iter().filter(|log| log.has_sources()) {
            for &lane in &lanes {
                let Some(copied) = log.lock()?.sources.get(&id.lane(lane)).cloned() else { continue };
                let mut guard = self.lock()?;
                let Some(entry) = guard.queues.get(&id) else { return Ok(()) };
                let found = copied_and_unsettled(&copied.in_lane(lane), entry.machine.settled_in(lane));
                if !guard.dead_letter(id, &found, Reason::Rejected).is_empty() {
                    self.request_moves();
                }
            }
        }
        Ok(())
    }

    /// Sets how often the messages of queues may come back after a delivery; `None` is any number.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn limit_deliveries(
        &self,
        queues: impl IntoIterator<Item = (QueueId, Option<u32>)>,
    ) -> Result<(), EngineError> {
        for (id, limit) in queues {
            let set = |state: &mut State| match limit {
                Some(limit) => drop(state.delivery_limits.insert(id, limit)),
                None => drop(state.delivery_limits.remove(&id)),
            };
            match self.others.home(id) {
                Some(home) => set(&mut *home.lock()?),
                None => set(&mut *self.lock()?),
            }
        }
        Ok(())
    }

    /// Sets which queues count a delivery only when a consumer fails on a message: it rejects it, or is gone.
    ///
    /// # Errors
    /// `Stopped` when a bug poisoned the shard.
    pub fn count_failures(&self, queues: impl IntoIterator<Item = (QueueId, bool)>) -> Result<(), EngineError> {
        for (id, counts_failures) in queues {
            let set = |state: &mut State| {
                if let Some(entry) = state.queues.get_mut(&id) {
                    entry.machine.set_counts_failures(counts_failures);
                }
            };
            match self.others.home(id) {
                Some(home) => set(&mut *home.lock()?),
                None => set(&mut *self.lock()?),
            }
        }
        Ok(())
    }

    /// Has dead letters moved after some were added. While very many wait, it moves some of them itself.
    pub(crate) fn dead_letters_added(&self, run_count: usize) -> Result<(), EngineError> {
        self.request_moves();
        let mut left = run_count;
        // An error is the thread's: it finds it, too. Those that cannot leave must not hold the caller up.
        for _ in 0..ROUNDS_OF_A_CALLER {
            if left <= RUNS_MAX || !matches!(self.move_dead_letters(), Ok(Next::More)) {
                break;
            }
            left = self.lock()?.dying.run_count();
        }
        Ok(())
    }

    /// Has messages moved that queues refused. While many of a queue wait, the publisher moves some itself: else it would be faster
    /// than they leave.
    pub(crate) fn refused_added(&self, waiting_count: u64) {
        self.request_moves();
        if waiting_count > REFUSED_WAITING_MAX {
            let moved = (0..ROUNDS_OF_A_CALLER).map(|_| self.move_dead_letters());
            let _ = moved.take_while(|next| matches!(next, Ok(Next::More))).count();
        }
    }

    /// Has messages moved that queues refused before the start, once all queues are known.
    pub(crate) fn find_refused(&self) -> Result<(), EngineError> {
        let mut guard = self.lock()?;
        for Target { queue, sequence } in std::mem::take(&mut guard.refused) {
            let (id, lane) = guard.queue_of(queue);
            guard.dead_letter(id, &[sequence.in_lane(lane)], Reason::MaxLength);
        }
        Ok(())
    }

    /// Moves what can be moved before its log is closed: a start would deliver rejected messages again.
    pub(crate) fn end_dead_letters(&self) {
        // An error of the log shows when that is closed.
        let moved = (0..ROUNDS_AT_END).map(|_| self.move_dead_letters());
        let _ = moved.take_while(|next| matches!(next, Ok(Next::More))).count();
    }

    /// Copies kept messages that waited, and moves some dead letters.
    pub(crate) fn move_some(&self) -> Result<Next, EngineError> {
        self.dead_lettering.waits.swap(false, Ordering::AcqRel);
        let given = match self.give_some() {
            Err(EngineError::Closed(_) | EngineError::NotLeading(_)) => Next::Nothing,
            given => given?,
        };
        let moved = self.move_dead_letters()?;
        Ok(if moved == Next::More || given == Next::Nothing { moved } else { given })
    }

    /// Moves some dead letters.
    pub(crate) fn move_dead_letters(&self) -> Result<Next, EngineError> {
        let _alone = self.dead_lettering.alone.lock().unwrap_or_else(PoisonError::into_inner);
        self.dead_lettering.waits.store(false, Ordering::Release);
        let Some(vhost) = self.vhost().filter(|_| self.is_complete()) else { return Ok(Next::Nothing) };
        let Some(part) = self.find_part()? else { return Ok(Next::Nothing) };
        let now_ms = clock_ms();
        let mut letters = read_letters(&part, now_ms)?;
        letter::route_all(&vhost.routing(), part.settings.as_deref(), &mut letters, now_ms);
        self.store_elsewhere_first(&vhost, &part, &mut letters, now_ms)?;
        let settled = self.store_and_settle(&part, &letters, now_ms)?;
        if letters.iter().any(|letter| letter.is_elsewhere) {
            vhost.pass_source(self, part.id)?;
        }
        let mut guard = self.lock()?;
        guard.note_staying(&part, &letters);
        // Also when none could leave: those behind them may go elsewhere.
        match letters.last() {
            Some(last) => guard.dying.go_on_after(part.id, last.sequence),
            None => guard.dying.pass(part.id),
        }
        Ok(match guard.dying.is_empty() {
            true => Next::Nothing,
            false if settled == 0 && guard.dying.is_at_end() => Next::Later,
            false => Next::More,
        })
    }

    /// The next ones, and their records.
    fn find_part(&self) -> Result<Option<Part>, EngineError> {
        let mut guard = self.lock()?;
        if guard.closed || guard.stopped.is_some() {
            return Ok(None);
        }
        loop {
            let Some((id, mut dying)) = guard.dying.next_part(AT_ONCE) else { return Ok(None) };
            let Some(entry) = guard.queues.get(&id) else {
                guard.dying.forget(id);
                continue;
            };
            let name = entry.name.clone();
            let is_aside = |sequence| matches!(entry.machine.standing(sequence), Standing::Delayed);
            let (aside, gone): (Vec<_>, Vec<_>) = dying.drain(..).partition(|(sequence, _)| is_aside(*sequence));
            gone.iter().for_each(|(sequence, _)| guard.dying.remove(id, *sequence, None));
            if aside.is_empty() {
                continue;
            }
            let settings = guard.dead_letters.get(&id).map(Arc::clone);
            let ranges: Vec<SequenceRange> = aside.iter().map(|(sequence, _)| SequenceRange::of(*sequence)).collect();
            let found = guard.find_all(id, &ranges, 0)?;
            let uncommitted = guard.uncommitted_among(id, aside.iter().map(|(sequence, _)| *sequence), &found);
            if !uncommitted.is_empty() {
                guard.wait_for_next_commit(Waiting::Letters);
            }
            return Ok(Some(Part { id, name, settings, dying: aside, found, uncommitted }));
        }
    }

    /// Counts letters that have left, each with whether a queue has it.
    fn count_dead(&self, letters: &[(&Letter<'_>, bool)]) {
        for (metric, reason) in [
            (Metric::DeadLetteredRejected, Reason::Rejected),
            (Metric::DeadLetteredExpired, Reason::Expired),
            (Metric::DeadLetteredMaxLength, Reason::MaxLength),
            (Metric::DeadLetteredDeliveryLimit, Reason::DeliveryLimit),
        ] {
            let of_reason = letters.iter().filter(|(letter, is_moved)| letter.reason == reason && *is_moved);
            self.counters().add(metric, of_reason.count() as u64);
        }
        let dropped = letters.iter().filter(|(_, is_moved)| !is_moved).count();
        self.counters().add(Metric::DeadLettersDropped, dropped as u64);
    }
}

impl State {
    /// The messages without a record that may have one once more is committed: have them tried again with the next commit. All this
    /// and the search for the records are in one hold of the lock, or a commit in between would be missed.
    pub(crate) fn uncommitted_among(
        &self,
        id: QueueId,
        messages: impl Iterator<Item = Sequence>,
        found: &[Found],
    ) -> Vec<Sequence> {
        if !self.has_uncommitted() {
            return Vec::new();
        }
        let mut found = found.iter().map(|one| one.sequence).peekable();
        let without_record = messages.filter(|sequence| found.next_if_eq(sequence).is_none());
        // Records of earlier terms are committed with the first one of the term, and nothing is delivered before.
        let is_begun = !self.is_paused();
        without_record.filter(|sequence| !is_begun || self.is_uncommitted(id, *sequence)).collect()
    }

    /// Notes the sizes of letters that could not leave a queue whose length is limited.
    fn note_staying(&mut self, part: &Part, letters: &[Letter<'_>]) {
        if self.queues.get(&part.id).is_none_or(|entry| entry.head_limit.is_none()) {
            return;
        }
        let readable = letters.iter().filter(|letter| letter.view.is_some());
        readable.for_each(|letter| self.dying.note_size(part.id, letter.sequence, letter.body_bytes()));
        self.note_if_long(part.id);
    }

    fn route_dead_letters(&mut self, id: QueueId, settings: Option<DeadLetters>) {
        match settings {
            Some(settings) => drop(self.dead_letters.insert(id, Arc::new(settings))),
            None => drop(self.dead_letters.remove(&id)),
        }
    }

    /// Notes that messages that were put aside are about to leave their queue; returns how many runs there are now.
    pub(crate) fn note_dying(&mut self, queue: QueueId, ranges: &[SequenceRange], reason: Reason) -> usize {
        for range in
            ranges.chunk_by(|one, other| one.last.next() == other.first && one.first.lane() == other.first.lane())
        {
            if let (Some(first), Some(last)) = (range.first(), range.last()) {
                self.dying.add(queue, SequenceRange { first: first.first, last: last.last }, reason);
            }
        }
        self.dying.run_count()
    }

    /// Has messages leave their queue that no consumer has; returns which. Call [`Shard::dead_letters_added`] then, without
    /// the lock.
    pub(crate) fn dead_letter(&mut self, queue: QueueId, sequences: &[Sequence], reason: Reason) -> Vec<SequenceRange> {
        let State { queues, dying, .. } = self;
        let Some(entry) = queues.get_mut(&queue) else { return Vec::new() };
        let fresh = sequences.iter().copied().filter(|sequence| !dying.contains(queue, *sequence));
        let aside = entry.machine.set_aside(fresh);
        self.note_dying(queue, &aside, reason);
        aside
    }

    /// The same for those of some returned messages that were delivered too often.
    pub(crate) fn dead_letter_overdelivered(&mut self, queue: QueueId, ranges: &[SequenceRange]) -> u64 {
        if self.delivery_limits.is_empty() {
            return 0;
        }
        let (Some(&limit), Some(entry)) = (self.delivery_limits.get(&queue), self.queues.get(&queue)) else { return 0 };
        let over = entry.machine.delivered_more_often(ranges, limit);
        let aside = self.dead_letter(queue, &over, Reason::DeliveryLimit);
        aside.iter().map(SequenceRange::count).sum()
    }
}
