//! Executing a decision about a stage: rows are published in rounds, and leave the stage with their copies or after them.

use std::num::NonZeroU64;
use std::sync::Arc;

use penstock_log::{Attributes, Payload, Position, Producer, Target};
use penstock_queue::{QueueId, SequenceRange};
use penstock_wire::amqp::properties::headers_of;
use rustc_hash::FxHashSet;

use crate::clock::clock_ms;
use crate::decision::{Copying, Decision, StageTag, StagedOutcome};
use crate::error::EngineError;
use crate::level::Level;
use crate::producers::ProducerSession;
use crate::publication::{Fate, Publication};
use crate::shard::Shard;
use crate::stage_reader::{Row, StageReader};
use crate::storing::{Along, Sent};

/// The most bytes and rows copied in one round, so that other publishers get their turn. A smaller batch becomes visible at
/// once. An envelope has the rows of a round, with two more records.
const ROUND_BYTES_MAX: usize = 1 << 20;
const ROUND_ROWS_MAX: usize = 4_000;

/// A decision that is being executed.
pub(super) struct Copy<'a> {
    shard: &'a Arc<Shard>,
    queue: QueueId,
    batch: u64,
    pub copying: Copying,
    chosen: FxHashSet<u64>,
    session: ProducerSession,
    pub outcome: StagedOutcome,
}

impl Copy<'_> {
    pub fn of(
        shard: &Arc<Shard>,
        (queue, batch): (QueueId, u64),
        copying: Copying,
        session: ProducerSession,
    ) -> Copy<'_> {
        let chosen = copying.attempts.iter().copied().collect();
        Copy { shard, queue, batch, copying, chosen, session, outcome: StagedOutcome::default() }
    }

    /// Publishes all rows and makes the decision in one step, when the batch is small; returns where its record ends.
    pub fn at_once(&mut self, rows_count: u64, decision: &Decision) -> Result<Option<Position>, EngineError> {
        if rows_count > ROUND_ROWS_MAX as u64 {
            return Ok(None);
        }
        let mut reader = StageReader::open(self.shard, self.queue, Some(self.copying.end))?;
        let copied = reader.all(ROUND_ROWS_MAX, |rows| {
            let bytes: usize = rows.iter().map(|row| row.view.body.len()).sum();
            let batch = self.chosen_of(rows)?;
            if bytes > ROUND_BYTES_MAX || batch.len() as u64 != rows_count {
                return Ok(None);
            }
            self.whole(rows, &batch, Some(decision.clone()))
        })?;
        Ok(copied.flatten().map(|(outcome, end)| {
            self.outcome = outcome;
            end
        }))
    }

    /// Publishes the chosen rows of a round together, and removes from the stage all of it that no later batch needs.
    pub fn round(&mut self, round: &[Row<'_>]) -> Result<(), EngineError> {
        let rows = self.chosen_of(round)?;
        if let Some((outcome, _)) = self.whole(round, &rows, None)? {
            self.add(outcome);
            return Ok(());
        }
        // Another log may have rows from before a crash: it knows them by their sequences in the stage.
        let sources: Vec<Attributes> = self.chosen(round).map(|row| self.source_of(row)).collect();
        let sourced = rows.into_iter().zip(&sources);
        let rows: Vec<Publication<'_>> = sourced.map(|(row, source)| row.with_attributes(source)).collect();
        let mut fates = Vec::with_capacity(rows.len());
        let shard = self.shard;
        let published = shard.publish_as(Some(&self.session), &rows, Some(Level::Os), clock_ms(), &mut fates)?;
        if let Some(refused) = published.refused {
            return Err(refused);
        }
        if fates.contains(&Fate::NoExchange) {
            let name = String::from_utf8_lossy(&self.copying.exchange).into_owned();
            return Err(EngineError::NoExchange(name, shard.name().to_owned()));
        }
        if let Some(held_back) = fates.iter().find_map(Fate::held_back) {
            return Err(held_back);
        }
        self.add(outcome_of(&fates));
        // In this log rows are removed after their copies; another log may lag behind on the disk.
        published.elsewhere.sync()?;
        shard.settle_staged(self.queue, &self.done_of(round)).map(|_| ())
    }

    /// In one step, if that is possible.
    fn whole(
        &self,
        rows: &[Row<'_>],
        batch: &[Publication<'_>],
        decision: Option<Decision>,
    ) -> Result<Option<(StagedOutcome, Position)>, EngineError> {
        let runs = self.done_of(rows);
        let along = Along { stage: self.queue, runs: &runs, decision };
        let (producer, level) = (Some(&self.session), Some(Level::Os));
        let sent = Sent { producer, batch, level, now_ms: clock_ms(), with_sequences: false };
        let mut fates = Vec::with_capacity(batch.len());
        let published = self.shard.send_whole(sent, along, &mut fates)?;
        Ok(published.map(|published| (outcome_of(&fates), published.end)))
    }

    /// What the rows of the chosen attempts are published as.
    fn chosen_of<'a>(&'a self, rows: &'a [Row<'a>]) -> Result<Vec<Publication<'a>>, EngineError> {
        self.chosen(rows).map(|row| publication(row, &self.copying, self.session.id())).collect()
    }

    fn chosen<'a>(&self, rows: &'a [Row<'a>]) -> impl Iterator<Item = &'a Row<'a>> {
        let is_chosen = |tag: StageTag| tag.batch == self.batch && self.chosen.contains(&tag.attempt);
        rows.iter().filter(move |row| row.tag.is_some_and(is_chosen))
    }

    fn source_of(&self, row: &Row<'_>) -> Attributes {
        Attributes { source: Some(Target { queue: self.queue, sequence: row.sequence }), ..Attributes::default() }
    }

    /// The rows that no later batch needs.
    fn done_of(&self, rows: &[Row<'_>]) -> Vec<(SequenceRange, u64)> {
        runs_of(rows.iter().filter(|row| row.tag.is_none_or(|tag| tag.batch <= self.batch)))
    }

    fn add(&mut self, outcome: StagedOutcome) {
        self.outcome.stored += outcome.stored;
        self.outcome.unroutable += outcome.unroutable;
    }
}

/// How many of some rows are stored.
fn outcome_of(fates: &[Fate]) -> StagedOutcome {
    let unroutable = fates.iter().filter(|fate| matches!(fate, Fate::Unroutable | Fate::Returned)).count() as u64;
    StagedOutcome { was_decided: false, stored: fates.len() as u64 - unroutable, unroutable }
}

/// Rows as runs, with the bytes of their bodies.
pub(super) fn runs_of<'a>(rows: impl Iterator<Item = &'a Row<'a>>) -> Vec<(SequenceRange, u64)> {
    let mut runs: Vec<(SequenceRange, u64)> = Vec::new();
    for row in rows {
        let (sequence, bytes) = (row.sequence, row.view.body.len() as u64);
        match runs.last_mut() {
            Some((range, total)) if range.last.next() == sequence => {
                range.last = sequence;
                *total += bytes;
            }
            _ => runs.push((SequenceRange { first: sequence, last: sequence }, bytes)),
        }
    }
    runs
}

/// Rows in parts for one round each.
pub(super) fn rounds_of<'a>(rows: &'a [Row<'a>]) -> impl Iterator<Item = &'a [Row<'a>]> {
    parts_of(rows, (ROUND_ROWS_MAX, ROUND_BYTES_MAX), |row| row.view.body.len())
}

/// Parts of at most so many rows; one that reaches so many bytes ends.
pub(super) fn parts_of<T>(
    rows: &[T],
    (count_max, bytes_max): (usize, usize),
    bytes_of: impl Fn(&T) -> usize,
) -> impl Iterator<Item = &[T]> {
    let (mut count, mut bytes) = (0, 0);
    rows.chunk_by(move |before, _| {
        count += 1;
        bytes += bytes_of(before);
        let goes_on = bytes < bytes_max && count < count_max;
        if !goes_on {
            (count, bytes) = (0, 0);
        }
        goes_on
    })
}

fn publication<'a>(row: &Row<'a>, copying: &'a Copying, id: NonZeroU64) -> Result<Publication<'a>, EngineError> {
    let view = &row.view;
    let has_own_key = !copying.exchange.is_empty() && !view.routing_key.is_empty();
    let key = if has_own_key { view.routing_key } else { &copying.routing_key };
    let exchange = &copying.exchange;
    let mut payload = Payload::new(exchange, key, view.properties, view.body)?;
    if let Some(key) = view.key {
        payload = payload.with_key(key)?;
    }
    let sequence = copying.base + (row.sequence.0.saturating_sub(copying.first)) + 1;
    let payload = payload.with_producer(Producer { id, sequence });
    // Checked when it was staged.
    let headers = headers_of(view.properties).unwrap_or_default();
    Ok(Publication { payload, exchange, key, headers, persistent: true, mandatory: false })
}
