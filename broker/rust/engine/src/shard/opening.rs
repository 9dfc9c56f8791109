//! Opening a shard, on a directory or for a term: its state as the log has it, and the corruption that was found.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use penstock_log::{Begun, FoldState, FoldedQueue, Log, LogOptions, Opened, REFUSED_AT_MS, Recovery, Target, marks};
use penstock_queue::{AckSet, Queue, QueueId};
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::stalls::Stalls;
use super::{Copies, Opener, Shard, Surroundings};
use crate::alarms::Alarm;
use crate::corruption::{Corruptions, aside_line, corruption_line};
use crate::counters::Metric;
use crate::dead_letters::Moving;
use crate::decision::{Stage, decisions_in};
use crate::error::EngineError;
use crate::fair_keys::keys_in;
use crate::histories::{Giving, Histories};
use crate::identity::identities_in;
use crate::lease::leases_in;
use crate::log_number::{LogNumber, shard_count_in};
use crate::other_logs::OtherLogs;
use crate::producers::Producers;
use crate::queue_entry::QueueEntry;
use crate::state::State;
use crate::stream::groups_in;
use crate::term::{Led, Replication};
use crate::windows::Windows;

/// A log with everything that a start knows of it.
struct Found {
    log: Log,
    state: FoldState,
    stored_at_ms: u64,
    corruptions: Corruptions,
    recovery: Recovery,
    recovery_ms: f64,
    replication: Option<Arc<dyn Replication>>,
}

impl Shard {
    pub(crate) fn open(
        (name, number): (&str, LogNumber),
        directory: &Path,
        options: LogOptions,
        around: Surroundings,
        opener: Option<Opener>,
    ) -> Result<Arc<Shard>, EngineError> {
        let started = Instant::now();
        let mut opened = Log::open(directory, options)?;
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        opened.begin_epoch(Begun { at_ms, ..Begun::default() })?;
        let recovery_ms = started.elapsed().as_secs_f64() * 1e3;
        let stored_at_ms = opened.log.newest_time()?;
        let corruptions = Corruptions::of_start(&opened.quarantined);
        for found in corruptions.files() {
            around.counters.add(Metric::CorruptRecords, found.records);
            around.notices.warn(corruption_line(name, &number.place_of(&found.file), found));
        }
        for file in &opened.set_aside {
            around.notices.warn(aside_line(name, &number.place_of(file)));
        }
        for file in &opened.removed_indexes {
            let file = number.place_of(file);
            around.notices.tell(format!("vhost '{name}': {file} was removed: its segment was removed before"));
        }
        let Opened { log, state, recovery, .. } = opened;
        let found = Found { log, state, stored_at_ms, corruptions, recovery, recovery_ms, replication: None };
        Ok(Shard::with(found, (name, number), directory, around, opener))
    }

    /// A shard of a replicated log for the term that has begun.
    pub(crate) fn of_term(place: (&str, LogNumber), directory: &Path, led: Led, around: Surroundings) -> Arc<Shard> {
        let Led { log, state, stored_at_ms, replication } = led;
        let (corruptions, recovery) = (Corruptions::default(), Recovery::default());
        let replication = Some(replication);
        let found = Found { log, state, stored_at_ms, corruptions, recovery, recovery_ms: 0.0, replication };
        Shard::with(found, place, directory, around, None)
    }

    fn with(
        found: Found,
        (name, number): (&str, LogNumber),
        directory: &Path,
        around: Surroundings,
        opener: Option<Opener>,
    ) -> Arc<Shard> {
        let Found { log, state: folded, replication, recovery, recovery_ms, .. } = found;
        let synced = if replication.is_some() { log.bound() } else { log.synced() };
        // At a start all that a log of this broker alone has is on the disk; of a replicated one some may not be committed.
        let dead_lettering = Moving::new(if replication.is_some() { log.end() } else { synced });
        let next_expiry = Arc::new(Alarm::new(&around.alarms));
        let mut state = State::new(log, folded.first_sequence, Arc::clone(&next_expiry));
        state.stored_at_ms = found.stored_at_ms;
        state.corruptions = found.corruptions;
        let highest_queue_id = folded.highest_queue_id.0;
        recover(&mut state, folded);
        if let Some(replication) = &replication {
            state.begin_term(Arc::clone(replication));
        }
        let shard = Arc::new_cyclic(|me| Shard {
            me: Weak::clone(me),
            name: name.to_owned(),
            number,
            directory: directory.to_owned(),
            next: Mutex::new(()),
            source_count: Arc::clone(&state.source_count),
            state: Mutex::new(state),
            routing: Mutex::default(),
            closed: AtomicBool::new(false),
            deposed: AtomicBool::new(false),
            stalls: Stalls::default(),
            synced: AtomicU64::new(synced.0),
            sync_done: Notify::new(),
            sync_waits: AtomicBool::new(false),
            fold_waits: AtomicBool::new(false),
            freed_until: AtomicU64::new(0),
            retained_until: AtomicU64::new(0),
            next_expiry,
            expiring: Mutex::default(),
            dead_lettering,
            giving: Giving::default(),
            around,
            replication,
            copies: Mutex::new(Copies::default()),
            opener,
            of_vhost: OnceLock::new(),
            others: OtherLogs::default(),
            recovery,
            recovery_ms,
            highest_queue_id,
        });
        // Recovered records are held in memory until they are folded.
        shard.request_fold();
        shard.next_expiry.begin(Arc::<Shard>::downgrade(&shard));
        shard
    }
}

fn recover(state: &mut State, found: FoldState) {
    recover_queues(state, found.queues);
    state.windows = Windows::of_start(found.windows);
    recover_sources(state, found.sources);
    recover_deliveries(state, &found.marks);
    leases_in(&found.marks).into_iter().for_each(|(queue, leases)| state.hold_leases(queue, leases));
    recover_marks(state, &found.marks);
    state.producers = Producers::of_start(&found.marks, &found.producers, found.batches);
}

fn recover_sources(state: &mut State, sources: FxHashMap<QueueId, AckSet>) {
    state.sources = sources;
    state.count_sources();
}

/// Tells queues up to which message they were delivered.
fn recover_deliveries(state: &mut State, found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) {
    for ((owner, _), value) in found {
        let entry = marks::queue_of_deliveries(owner).and_then(|queue| state.queues.get_mut(&queue));
        entry.into_iter().for_each(|entry| entry.recover_deliveries(value));
    }
}

/// Adds the queues, of which requeued messages may wait.
fn recover_queues(state: &mut State, queues: FxHashMap<QueueId, FoldedQueue>) {
    for (id, folded) in queues {
        let mut machine =
            Queue::recovered(folded.next, folded.settled, folded.count, folded.bytes, folded.delivery_counts);
        for (sequence, at_ms) in folded.due_at_ms {
            machine.delay_recovered(sequence);
            if at_ms == REFUSED_AT_MS {
                state.refused.push(Target { queue: id, sequence });
            } else {
                state.retries.push(Reverse((at_ms, id, sequence)));
            }
        }
        if let Some((queue, lane)) = id.of_turn() {
            state.turn_lanes.entry(queue).or_default().push(lane);
        }
        let (recovered_below, skipped) = (machine.next(), folded.skipped);
        state.queues.insert(id, QueueEntry { recovered_below, skipped, ..QueueEntry::new("", machine, false) });
    }
}

fn recover_marks(state: &mut State, found: &BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>) {
    state.own_logs = found.keys().filter_map(|(owner, _)| marks::queue_of_own_log(owner)).collect();
    state.shard_count = shard_count_in(found);
    state.recovered_groups = groups_in(found);
    state.identities = identities_in(found);
    state.found_keys = keys_in(found);
    state.histories = Histories::of_start(found, state.queues.keys().copied());
    let decided = decisions_in(found).into_iter();
    state.stages = decided.map(|(queue, decision)| (queue, Stage::of_start(decision))).collect();
}
