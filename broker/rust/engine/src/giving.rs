//! Exchanges that keep their last messages, and the copies of these for whatever they are bound to.
//!
//! Invariants: a route is added, and messages that are on their way are routed again, in the hold of the lock that fixes which
//! kept messages are to be copied, so a receiver gets each message by its route or as a copy. Copies are in one envelope with
//! the mark that they are given, in each log that has some; shard 0, which has the history, is the last. So a start copies what
//! a crash left uncopied, and nothing twice. Records are read, and routes found, without the lock. In a replicated log a kept message
//! is copied once it is committed; until then newer ones may take its place.

mod waiting;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use penstock_log::{Attributes, EnvelopeSizes, MarkView, MessageView, Operation, Payload, Position, marks};
use penstock_queue::{Destination, ExchangeSettings, Matched, QueueId, Routable, Routing, Sequence, SequenceRange};
use penstock_wire::amqp::deaths::further_keys;
use penstock_wire::amqp::properties::{delivery_mode_of, headers_of};
use rustc_hash::FxHashMap;

use crate::clock::clock_ms;
use crate::counters::Metric;
use crate::error::EngineError;
use crate::expiry::{Found, view_of};
use crate::histories::{Given, Receiver, Receives, receiver_exchange, receiver_queue, receives};
use crate::length::{LengthLimit, Overflow};
use crate::log_number::LogNumber;
use crate::publication::Publication;
use crate::shard::Shard;
use crate::state::State;
use crate::term::Waiting;
use crate::topology::RouteSettings;

/// The bytes of bodies that an exchange keeps: copies of all are stored in one hold of the lock.
const BYTES_MAX: u64 = 64 << 20;

/// Random exchanges choose by the place of a message in the history, so that one that is copied again goes the same way.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How far copying the kept messages to a receiver got.
enum Gave {
    /// It has all, but for what is not committed yet.
    AllThatIsThere,
    /// The copies in these logs are not synced.
    ToOthers(Vec<Arc<Shard>>),
    /// There is no space, or another log does not sync.
    Nothing,
}

/// A message that an exchange has kept, as it will be copied.
struct Kept<'a> {
    sequence: Sequence,
    view: MessageView<'a>,
    attributes: Attributes,
    queues: Vec<QueueId>,
}

impl Kept<'_> {
    fn publication(&self) -> Result<Publication<'_>, EngineError> {
        let MessageView { exchange, routing_key, properties, body, key, .. } = self.view;
        let mut payload = Payload::new(exchange, routing_key, properties, body)?;
        if let Some(key) = key {
            payload = payload.with_key(key)?;
        }
        if self.attributes != Attributes::default() {
            payload = payload.with_attributes(&self.attributes);
        }
        let persistent = delivery_mode_of(properties).is_ok_and(|mode| mode == 2);
        Ok(Publication { payload, exchange, key: routing_key, headers: None, persistent, mandatory: false })
    }
}

impl Shard {
    /// Adds a fanout exchange that keeps its last messages, at most so many, or changes how many.
    ///
    /// # Errors
    /// `TooMany` when there is no number for its history; `Log` when the disk failed; `Stopped` and `Closed`.
    pub fn put_keeping_exchange(
        &self,
        name: &str,
        settings: &ExchangeSettings<'_>,
        messages_max: u64,
    ) -> Result<(), EngineError> {
        let history = {
            let mut guard = self.lock()?;
            guard.check(self.name())?;
            let history = guard.history_for(name)?;
            self.note_later(&guard);
            history
        };
        let limit = LengthLimit { messages_max, bytes_max: BYTES_MAX, overflow: Overflow::DropHead };
        self.limit_lengths([(history, Some(limit))])?;
        self.put_exchange_as(name, &ExchangeSettings { history: Some(history), ..settings.clone() })
    }

    /// Deletes what a deleted exchange kept.
    pub(crate) fn forget_history(&self, exchange: &str) -> Result<(), EngineError> {
        let _alone = self.giving.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let history = {
            let mut guard = self.lock()?;
            if guard.closed {
                return Ok(());
            }
            let Some(history) = guard.histories.forget(exchange.as_bytes()) else { return Ok(()) };
            guard.note_mark(marks::HISTORIES, exchange.as_bytes(), &[])?;
            self.note_later(&guard);
            guard.write()?;
            history
        };
        match self.delete_here(history, Some(0)) {
            Err(EngineError::NoQueue(..)) => Ok(()),
            deleted => deleted.map(drop),
        }
    }

    /// Adds a route. If its exchange keeps messages, the destination gets these, unless it had a route before.
    pub(crate) fn add_route_with_history(&self, route: RouteSettings<'_>) -> Result<(), EngineError> {
        let RouteSettings { exchange, key, matching, destination } = route;
        let waits = {
            let _alone = self.giving.alone.lock().unwrap_or_else(PoisonError::into_inner);
            let mut guard = self.lock()?;
            self.change_routing(|routing| routing.add_route(exchange, key, matching, destination))?;
            if guard.closed {
                return Ok(());
            }
            let table = self.routing();
            let receiver = receiver_of(&table, destination);
            let Some((history, receiver)) = table.history_of(exchange).zip(receiver) else { return Ok(()) };
            drop(table);
            guard.begin_giving(history, &receiver)?;
            self.note_later(&guard);
            let removals = self.change_routing(|routing| {
                routing.reroute();
                routing.removals()
            });
            guard.removals = guard.removals.max(removals);
            (history, receiver)
        };
        self.give_first(&[waits])
    }

    /// Forgets that a destination had the kept messages, once an exchange has no route to it.
    /// That is committed, or in another log synced, before the answer if it does not take long: when the next leader, or start, does
    /// not know it, one that is bound again gets no copies.
    pub(crate) fn end_giving(&self, exchange: &str, destination: Destination<'_>) -> Result<(), EngineError> {
        // Copies that are on their way are noted before that is forgotten.
        let alone = self.giving.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.routing();
        let Some(history) = table.history_of(exchange) else { return Ok(()) };
        let Some(receiver) = receiver_of(&table, destination) else { return Ok(()) };
        if leads_to(&table, exchange, &receiver) {
            return Ok(());
        }
        drop(table);
        let mut told = Vec::new();
        for log in self.vhost().iter().flat_map(Shard::family) {
            let end = log.forget_given(history, &receiver)?;
            let is_waited_for = log.is_replicated() || log.number() != self.number();
            told.extend(end.filter(|_| is_waited_for).map(|end| (log, end)));
        }
        drop(alone);
        told.iter().for_each(|(log, end)| log.wait_a_while(*end));
        Ok(())
    }

    /// Returns the end of the log if there was something to forget.
    fn forget_given(&self, history: QueueId, receiver: &[u8]) -> Result<Option<Position>, EngineError> {
        let mut guard = self.lock()?;
        if guard.closed || guard.histories.given(history, receiver).is_none() {
            return Ok(None);
        }
        guard.note_given(history, receiver, None)?;
        self.note_later(&guard);
        guard.write()?;
        Ok(Some(guard.log.end()))
    }

    /// Forgets what is not bound any more, once the vhost has its exchanges, queues and routes.
    pub(crate) fn forget_unbound(self: &Arc<Self>) -> Result<(), EngineError> {
        let unclaimed = self.lock()?.histories.unclaimed();
        for name in unclaimed {
            self.forget_history(&String::from_utf8_lossy(&name))?;
        }
        let table = self.routing();
        for log in self.family() {
            let receivers = log.lock()?.histories.receivers();
            for (history, receiver) in receivers {
                let exchange = self.lock()?.histories.exchange_of(history).map(<[u8]>::to_vec);
                let exchange = exchange.and_then(|name| String::from_utf8(name).ok());
                if !exchange.is_some_and(|exchange| leads_to(&table, &exchange, &receiver)) {
                    log.forget_given(history, &receiver)?;
                }
            }
        }
        Ok(())
    }

    /// Ends what a crash left half done.
    pub(crate) fn complete_histories(&self) -> Result<(), EngineError> {
        let pending = self.lock()?.histories.pending_after(None, usize::MAX);
        self.give_first(&pending)
    }

    /// Copies what a receiver waits for. Copies for other logs are stored first: they have to be synced before it is called again.
    fn give(self: &Arc<Self>, history: QueueId, receiver: &[u8]) -> Result<Gave, EngineError> {
        let now_ms = clock_ms();
        let is_home_behind = match receives(receiver) {
            Some(Receives::Queue(id)) => self.others.home(id).is_some_and(|home| home.is_behind()),
            _ => false,
        };
        let found = {
            let mut guard = self.lock()?;
            let given = guard.histories.given(history, receiver).filter(|_| !guard.closed);
            let Some(Given::Below(below)) = given else { return Ok(Gave::AllThatIsThere) };
            if is_home_behind || self.is_full() {
                return Ok(Gave::Nothing);
            }
            let Some(found) = guard.find_kept_below(history, Sequence(below))? else { return Ok(Gave::AllThatIsThere) };
            found
        };
        let mut kept = read_kept(history, &found, now_ms)?;
        let table = self.routing();
        kept.iter_mut().for_each(|one| one.queues = queues_for(&table, receiver, one));
        drop(table);
        let mut by_log: BTreeMap<LogNumber, Vec<(&Kept<'_>, Vec<QueueId>)>> = BTreeMap::new();
        for one in &kept {
            let mut queues: BTreeMap<LogNumber, Vec<QueueId>> = BTreeMap::new();
            one.queues.iter().for_each(|&queue| queues.entry(self.home_of(queue).number()).or_default().push(queue));
            queues.into_iter().for_each(|(log, queues)| by_log.entry(log).or_default().push((one, queues)));
        }
        let own = by_log.remove(&self.number()).unwrap_or_default();
        let (mut unsynced, mut is_left) = (Vec::new(), false);
        for (log, copies) in by_log {
            // One that was deleted with its queue takes nothing.
            let Some(home) = self.others.log(log) else { continue };
            if home.is_behind() {
                is_left = true;
            } else if home.lock()?.histories.given(history, receiver) != Some(Given::All) {
                // Its errors are its own. It may have stored some before one, and is asked again.
                let _ = home.store_given((history, receiver), &copies, now_ms);
                unsynced.push(home);
            }
        }
        if !unsynced.is_empty() {
            return Ok(Gave::ToOthers(unsynced));
        }
        if is_left {
            return Ok(Gave::Nothing);
        }
        match self.store_given((history, receiver), &own, now_ms) {
            Err(error) if error.is_full() => Ok(Gave::Nothing),
            stored => stored.map(|()| Gave::AllThatIsThere),
        }
    }

    /// Stores copies in their queues of this log, with the mark that they are given.
    fn store_given(
        &self,
        (history, receiver): (QueueId, &[u8]),
        copies: &[(&Kept<'_>, Vec<QueueId>)],
        now_ms: u64,
    ) -> Result<(), EngineError> {
        let publications = copies.iter().map(|(kept, queues)| kept.publication().map(|one| (one, queues.clone())));
        let mut publications = publications.collect::<Result<Vec<_>, EngineError>>()?;
        let (has_sealed, too_long) = {
            let mut guard = self.lock()?;
            let state = &mut *guard;
            state.check(self.name())?;
            if state.histories.given(history, receiver) == Some(Given::All) {
                return Ok(());
            }
            state.stored_at_ms = state.stored_at_ms.max(now_ms);
            state.leave_out_refusing(&mut publications);
            if self.is_full() && !publications.is_empty() {
                return Err(self.full());
            }
            state.append_given((history, receiver), &mut publications)?;
            self.note_later(state);
            state.write()?;
            state.wake_touched();
            (state.has_sealed(), state.take_touched_long())
        };
        let bytes = publications.iter().map(|(publication, _)| publication.payload.body_bytes()).sum();
        self.counters().add(Metric::Published, publications.len() as u64);
        self.counters().add(Metric::PublishedBytes, bytes);
        if has_sealed {
            self.request_fold();
        }
        self.shorten_after(&too_long)
    }
}

impl State {
    /// The history of an exchange, which is begun if there is none.
    fn history_for(&mut self, exchange: &str) -> Result<QueueId, EngineError> {
        let name = exchange.as_bytes();
        let history = if let Some(found) = self.histories.claim(name) {
            found
        } else {
            let max = (QueueId::HISTORY_MAX.0 - QueueId::DECLARED_MAX.0) as usize;
            let history = self.histories.begin(name).ok_or(EngineError::TooMany { what: "histories", max })?;
            for key in [b"", name] {
                self.note_mark(marks::HISTORIES, key, &history.0.to_le_bytes())?;
            }
            self.write()?;
            history
        };
        let entry = self.entry_of(history);
        entry.name = format!("history of exchange '{exchange}'");
        entry.is_history = true;
        Ok(history)
    }

    /// Fixes which kept messages a receiver gets, unless it has some.
    fn begin_giving(&mut self, history: QueueId, receiver: &[u8]) -> Result<(), EngineError> {
        if self.histories.given(history, receiver).is_some() {
            return Ok(());
        }
        let machine = self.queues.get(&history).map(|entry| &entry.machine);
        let next = machine.filter(|machine| machine.ready_count() > 0).map(|machine| machine.next().0);
        self.note_given(history, receiver, Some(next.map_or(Given::All, Given::Below)))?;
        self.write()
    }

    fn note_given(&mut self, history: QueueId, receiver: &[u8], given: Option<Given>) -> Result<(), EngineError> {
        let value = given.map(Given::value);
        let value = value.as_ref().map_or(&[][..], |value| value.as_slice());
        self.note_mark(&marks::owner_of_given(history), receiver, value)?;
        self.histories.set_given(history, receiver, given);
        Ok(())
    }

    /// Appends a mark. If the disk is full, it is appended once there is space. A start before that goes by the definitions, and
    /// copies messages again that a receiver had got by its route.
    fn note_mark(&mut self, owner: &[u8], key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let noted = self.log.append_mark(owner, key, value).map(|_| ());
        if matches!(&noted, Err(error) if error.is_full()) {
            self.unnoted.insert((owner.to_vec(), key.to_vec()), value.to_vec());
            return Ok(());
        }
        self.unnoted.remove(&(owner.to_vec(), key.to_vec()));
        Ok(noted?)
    }

    /// Appends the marks for which the disk was full; returns whether some are left.
    pub(crate) fn note_again(&mut self) -> Result<bool, EngineError> {
        let mut count = self.unnoted.len();
        while let Some(((owner, key), value)) = self.unnoted.pop_first() {
            self.note_mark(&owner, &key, &value)?;
            if self.unnoted.len() == count {
                break;
            }
            count = self.unnoted.len();
        }
        self.write()?;
        Ok(!self.unnoted.is_empty())
    }

    /// `None` while some of them are not committed.
    fn find_kept_below(&mut self, history: QueueId, below: Sequence) -> Result<Option<Vec<Found>>, EngineError> {
        let Some(entry) = self.queues.get(&history) else { return Ok(Some(Vec::new())) };
        let ready = entry.machine.ready_from(Sequence(0), u64::MAX);
        let last = Sequence(below.0.saturating_sub(1));
        let ranges = ready.into_iter().filter_map(|range| SequenceRange::new(range.first, range.last.min(last)));
        let ranges: Vec<SequenceRange> = ranges.collect();
        let found = self.find_all(history, &ranges, 0)?;
        let kept = ranges.iter().flat_map(|range| range.first.0..=range.last.0).map(Sequence);
        if self.uncommitted_among(history, kept, &found).is_empty() {
            return Ok(Some(found));
        }
        self.wait_for_next_commit(Waiting::Kept);
        Ok(None)
    }

    /// Leaves out queues that take no more, and messages without a queue.
    fn leave_out_refusing(&self, publications: &mut Vec<(Publication<'_>, Vec<QueueId>)>) {
        let mut given: FxHashMap<QueueId, (u64, u64)> = FxHashMap::default();
        publications.retain_mut(|(publication, queues)| {
            let body_bytes = publication.payload.body_bytes();
            queues.retain(|queue| {
                let (count, bytes) = given.get(queue).copied().unwrap_or_default();
                let takes = self.queues.contains_key(queue) && self.takes_letter(*queue, (count, bytes), body_bytes);
                if takes {
                    given.insert(*queue, (count + 1, bytes + body_bytes));
                }
                takes
            });
            !queues.is_empty()
        });
    }

    /// Appends the newest of the copies that one envelope has, with the mark. An error that comes after the space was reserved
    /// stops the shard, whose queues are then ahead of its log.
    fn append_given(
        &mut self,
        (history, receiver): (QueueId, &[u8]),
        publications: &mut Vec<(Publication<'_>, Vec<QueueId>)>,
    ) -> Result<(), EngineError> {
        let owner = marks::owner_of_given(history);
        let value = Given::All.value();
        let mark = MarkView { owner: &owner, key: receiver, value: &value };
        let mut sizes = EnvelopeSizes::default();
        sizes.add_mark(&mark);
        let mut first = publications.len();
        for (publication, queues) in publications.iter().rev() {
            let mut more = sizes;
            more.add_message(&publication.payload, queues.len());
            if !self.log.takes_envelope(&more) {
                break;
            }
            sizes = more;
            first -= 1;
        }
        publications.drain(..first);
        publications.iter().for_each(|(publication, queues)| self.assign_keys(queues, &publication.payload));
        if !publications.is_empty() {
            self.log.reserve_envelope(&sizes)?;
        }
        let (mut targets, mut ends) = (Vec::new(), Vec::new());
        self.assigned = None;
        for (publication, queues) in publications.iter() {
            self.assign_sequences(queues, &publication.payload, 0);
            if !self.targets.is_empty() {
                targets.extend_from_slice(&self.targets);
                ends.push((publication, targets.len()));
            }
        }
        let mut operations = self.messages(&ends, &targets);
        operations.push(Operation::Mark(mark));
        match self.log.append_together(&operations) {
            // Without messages there was no space to reserve.
            Err(error) if error.is_full() && ends.is_empty() => {
                self.unnoted.insert((owner.to_vec(), receiver.to_vec()), value.to_vec());
            }
            Err(error) => {
                self.stopped = Some(error.to_string());
                return Err(error.into());
            }
            Ok(_) => drop(self.unnoted.remove(&(owner.to_vec(), receiver.to_vec()))),
        }
        self.histories.set_given(history, receiver, Some(Given::All));
        Ok(())
    }
}

/// The messages of a history that can be read and did not expire.
fn read_kept<'a>(history: QueueId, found: &'a [Found], now_ms: u64) -> Result<Vec<Kept<'a>>, EngineError> {
    let mut kept = Vec::with_capacity(found.len());
    for one in found {
        let Some(view) = view_of(history, one)? else { continue };
        let Attributes { expires_at_ms, due_at_ms, priority, created_at_ms, is_tombstone, .. } = view.attributes();
        if expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            continue;
        }
        let attributes =
            Attributes { expires_at_ms, due_at_ms, priority, created_at_ms, is_tombstone, ..Attributes::default() };
        kept.push(Kept { sequence: one.sequence, view, attributes, queues: Vec::new() });
    }
    Ok(kept)
}

/// The queues of a receiver that a kept message goes to.
fn queues_for(table: &Routing, receiver: &[u8], kept: &Kept<'_>) -> Vec<QueueId> {
    match receives(receiver) {
        Some(Receives::Queue(id)) => vec![id],
        Some(Receives::Exchange(name)) => {
            let MessageView { routing_key, properties, key, .. } = kept.view;
            let more_keys = further_keys(properties);
            let headers = headers_of(properties).ok().flatten();
            let draw = kept.sequence.0.wrapping_mul(STEP);
            let message = Routable { key: routing_key, more_keys: &more_keys, own_key: key, headers, properties, draw };
            let mut matched = Matched::default();
            // One that is gone has no route from here either.
            let _ = table.route_message(name.as_bytes(), &message, &mut matched);
            matched.queues
        }
        None => Vec::new(),
    }
}

fn receiver_of(table: &Routing, destination: Destination<'_>) -> Option<Receiver> {
    match destination {
        Destination::Queue(name) => table.queue(name.as_bytes()).map(receiver_queue),
        Destination::Exchange(name) => Some(receiver_exchange(name)),
    }
}

fn leads_to(table: &Routing, exchange: &str, receiver: &[u8]) -> bool {
    match receives(receiver) {
        Some(Receives::Queue(id)) => table.leads_to_queue(exchange, id),
        Some(Receives::Exchange(name)) => table.leads_to_exchange(exchange, name),
        None => false,
    }
}
