//! A batch of a producer that numbers batches, row by row: rows that are stored must come again as they were.
//!
//! Invariants: a row counts as stored, and one behind the stored ones is taken, only once the digest of all rows up to the
//! last stored one has turned out the same. A batch below the newest ends where it ended the first time. Rows that reached
//! no queue are in the digest, though no record has them. Pure: it knows no shard.

use std::num::NonZeroU32;

use penstock_log::{Batches, Payload, Producer, RowsDigest, StoredBatch, sequence_in};

use crate::error::EngineError;

/// What the logs of a vhost know of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchStanding {
    /// Of each log that stored rows of it: the last one.
    stored: Vec<StoredBatch>,
    /// The newest batch of the producer, and of others in its group.
    newest: Option<u32>,
    /// The newest batch that a log has forgotten.
    forgotten: Option<u32>,
    /// Whether a log has higher sequences than those of its newest batch: the name numbered messages itself.
    has_own_sequences: bool,
}

impl BatchStanding {
    /// Add what one log knows; `highest` is the highest sequence that it stored.
    pub(crate) fn add(&mut self, batch: u32, batches: Option<&Batches>, newest_of_group: Option<u32>, highest: u64) {
        self.newest = self.newest.max(newest_of_group);
        let last = batches.and_then(Batches::last).map_or(0, |one| sequence_in(one.batch, one.row));
        self.has_own_sequences |= highest > last;
        let Some(batches) = batches else { return };
        self.stored.extend(batches.get(batch));
        self.newest = self.newest.max(batches.newest());
        self.forgotten = self.forgotten.max(batches.forgotten());
    }
}

/// Rows of a batch; see the module.
#[derive(Debug)]
pub struct Repetition {
    producer: String,
    batch: u32,
    /// Rows with their digests that are still to come, the next one last.
    expected: Vec<StoredBatch>,
    last_stored: u32,
    newest: Option<u32>,
    digest: RowsDigest,
    row: u32,
}

impl Repetition {
    /// Begin a batch of a producer, before its first row.
    ///
    /// # Errors
    /// `NoBatches` when the name has messages that belong to no batch; `BatchForgotten` when it cannot be compared any
    /// more.
    pub fn begin(producer: &str, batch: u32, standing: BatchStanding) -> Result<Repetition, EngineError> {
        if standing.has_own_sequences {
            return Err(EngineError::NoBatches(producer.to_owned()));
        }
        if standing.forgotten.is_some_and(|forgotten| batch <= forgotten) {
            return Err(EngineError::BatchForgotten { producer: producer.to_owned(), batch });
        }
        let mut expected = standing.stored;
        expected.sort_unstable_by_key(|one| std::cmp::Reverse(one.row));
        let last_stored = expected.first().map_or(0, |one| one.row);
        let (producer, newest) = (producer.to_owned(), standing.newest);
        Ok(Repetition { producer, batch, expected, last_stored, newest, digest: RowsDigest::default(), row: 0 })
    }

    /// Take the next row: its sequence, and the digest of the batch up to it.
    ///
    /// # Errors
    /// `BatchDiffers` when rows up to this one are not those that are stored; `TooMany` rows.
    pub fn next(&mut self, payload: &Payload<'_>) -> Result<(u64, NonZeroU32), EngineError> {
        let row = self.row.checked_add(1);
        self.row =
            row.ok_or(EngineError::TooMany { what: "rows in this batch of a producer", max: u32::MAX as usize })?;
        self.digest = self.digest.then(payload.row_digest());
        let digest = self.digest.short();
        while let Some(stored) = self.expected.pop_if(|stored| stored.row == self.row) {
            if stored.digest != digest.get() {
                return Err(self.differs(format!("one of its first {} rows is another one now", self.row)));
            }
        }
        Ok((sequence_in(self.batch, self.row), digest))
    }

    /// The row of a publication that has its sequence and its digest.
    ///
    /// # Errors
    /// As [`Repetition::next`].
    pub fn numbered<'a>(
        &mut self,
        payload: Payload<'a>,
        producer: std::num::NonZeroU64,
    ) -> Result<Payload<'a>, EngineError> {
        let (sequence, digest) = self.next(&payload)?;
        Ok(payload.with_producer(Producer { id: producer, sequence }).with_batch_digest(digest))
    }

    /// The sequence that the next row gets.
    #[must_use]
    pub fn next_sequence(&self) -> Option<u64> {
        self.row.checked_add(1).map(|row| sequence_in(self.batch, row))
    }

    /// Whether the last row is behind all stored ones of a batch below the newest: it may only be one that reaches no queue.
    #[must_use]
    pub fn is_beyond(&self) -> bool {
        self.row > self.last_stored && self.newest.is_some_and(|newest| self.batch < newest)
    }

    /// Why a row that is beyond is refused.
    #[must_use]
    pub fn beyond(&self) -> EngineError {
        let stored = self.last_stored;
        self.differs(format!("only its first {stored} rows are stored, batches above it are, and more rows come now"))
    }

    /// How many of the rows so far were stored before.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        u64::from(self.row.min(self.last_stored))
    }

    /// Whether the rows so far are known to be the same as before.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.expected.is_empty()
    }

    /// End the batch.
    ///
    /// # Errors
    /// `BatchDiffers` when more rows than came are stored of it.
    pub fn end(&self) -> Result<(), EngineError> {
        if self.is_sure() {
            return Ok(());
        }
        Err(self.differs(format!("{} of its rows are stored, and {} came now", self.last_stored, self.row)))
    }

    fn differs(&self, why: String) -> EngineError {
        EngineError::BatchDiffers { producer: self.producer.clone(), batch: self.batch, why }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use penstock_log::ProducerBatches;
    use proptest::prelude::*;

    use super::*;

    fn payload(body: &[u8]) -> Payload<'_> {
        Payload::new(b"", b"events", b"", body).unwrap()
    }

    /// What is known after these rows of batches were stored, each up to a row; later rows reached no queue.
    fn known(batches: &[(u32, &[&[u8]], usize)]) -> ProducerBatches {
        let mut known = ProducerBatches::default();
        for &(batch, rows, stored) in batches {
            let mut sending = begin(&known, batch).unwrap();
            for (place, row) in rows.iter().enumerate() {
                let (sequence, digest) = sending.next(&payload(row)).unwrap();
                if place < stored {
                    known.stored(1, sequence, digest);
                }
            }
        }
        known
    }

    fn begin(known: &ProducerBatches, batch: u32) -> Result<Repetition, EngineError> {
        let mut standing = BatchStanding::default();
        let last = known.get(1).and_then(Batches::last);
        standing.add(batch, known.get(1), None, last.map_or(0, |one| sequence_in(one.batch, one.row)));
        Repetition::begin("p", batch, standing)
    }

    /// How many rows count as repeated, once the batch has ended well.
    fn send(known: &ProducerBatches, batch: u32, rows: &[&[u8]]) -> Result<u64, EngineError> {
        let mut sending = begin(known, batch)?;
        for row in rows {
            sending.next(&payload(row))?;
            if sending.is_beyond() {
                return Err(sending.beyond());
            }
        }
        sending.end().map(|()| sending.repeated())
    }

    const ROWS: &[&[u8]] = &[b"a", b"b", b"c"];

    #[test]
    fn the_same_batch_is_repeated_and_a_part_of_it_continued() {
        let known = known(&[(0, ROWS, 3), (1, ROWS, 2)]);

        assert_eq!(send(&known, 0, ROWS).unwrap(), 3);
        assert_eq!(send(&known, 1, ROWS).unwrap(), 2);
        assert_eq!(send(&known, 2, ROWS).unwrap(), 0);
    }

    #[test]
    fn other_rows_fewer_and_more_are_refused() {
        let known = known(&[(0, ROWS, 3), (1, ROWS, 3)]);
        let refused = |batch, rows: &[&[u8]]| send(&known, batch, rows).unwrap_err().to_string();

        for batch in [0, 1] {
            assert!(refused(batch, &[b"a", b"x", b"c"]).contains("one of its first 3 rows is another one now"));
            assert!(refused(batch, &[b"b", b"a", b"c"]).contains("another one"), "another order");
            assert!(refused(batch, &[b"a", b"b"]).contains("3 of its rows are stored, and 2 came now"));
            assert!(refused(batch, &[]).contains("and 0 came now"));
        }
        assert!(refused(0, &[b"a", b"b", b"c", b"d"]).contains("more rows come now"));
        assert_eq!(send(&known, 1, &[b"a", b"b", b"c", b"d"]).unwrap(), 3, "the newest batch may go on");
    }

    #[test]
    fn a_batch_that_had_no_rows_has_none_again_once_later_ones_are_stored() {
        let known = known(&[(3, ROWS, 3)]);

        assert_eq!(send(&known, 1, &[]).unwrap(), 0);
        assert!(send(&known, 1, &[b"a"]).unwrap_err().to_string().contains("only its first 0 rows are stored"));
    }

    #[test]
    fn a_task_without_rows_learns_the_newest_batch_from_its_group() {
        let mut standing = BatchStanding::default();
        standing.add(1, None, Some(2), 0);
        let mut sending = Repetition::begin("p/1", 1, standing).unwrap();
        sending.end().unwrap();

        sending.next(&payload(b"a")).unwrap();

        assert!(sending.is_beyond());
    }

    #[test]
    fn a_name_that_numbered_messages_itself_sends_no_batches() {
        let known = known(&[(0, ROWS, 3)]);
        let mut standing = BatchStanding::default();
        standing.add(1, known.get(1), None, 1_700_000_000_000);

        let refused = Repetition::begin("p", 1, standing).unwrap_err();

        assert!(matches!(refused, EngineError::NoBatches(_)), "{refused}");
    }

    #[test]
    fn rows_that_reached_no_queue_come_again() {
        let known = known(&[(0, ROWS, 2), (1, ROWS, 3)]);
        let mut sending = begin(&known, 0).unwrap();

        for row in ROWS {
            sending.next(&payload(row)).unwrap();
        }

        // The caller looks whether the last one reaches a queue now.
        assert!(sending.is_beyond() && sending.is_sure());
        assert!(send(&known, 0, &[b"a", b"x", b"c"]).is_err());
    }

    #[test]
    fn a_batch_that_is_forgotten_is_refused_and_not_believed() {
        let mut known = ProducerBatches::default();
        for batch in 0..200 {
            known.stored(1, sequence_in(batch, 1), NonZeroU32::MIN);
        }

        assert!(matches!(begin(&known, 71), Err(EngineError::BatchForgotten { batch: 71, .. })));
        assert!(begin(&known, 72).is_ok());
    }

    #[test]
    fn rows_in_several_logs_are_compared_at_the_last_of_each() {
        let mut whole = begin(&ProducerBatches::default(), 0).unwrap();
        let digests: Vec<_> = ROWS.iter().map(|row| whole.next(&payload(row)).unwrap()).collect();
        let of_log = |place: usize| {
            let mut known = ProducerBatches::default();
            known.stored(1, digests[place].0, digests[place].1);
            known
        };
        let mut standing = BatchStanding::default();
        [2, 0].into_iter().for_each(|place| standing.add(0, of_log(place).get(1), None, 0));
        let mut sending = Repetition::begin("p", 0, standing.clone()).unwrap();
        assert!(sending.next(&payload(b"x")).is_err(), "the first log has another first row");

        let mut sending = Repetition::begin("p", 0, standing).unwrap();
        sending.next(&payload(b"a")).unwrap();
        assert!(!sending.is_sure());
        sending.next(&payload(b"b")).unwrap();
        sending.next(&payload(b"c")).unwrap();
        assert!(sending.is_sure() && sending.repeated() == 3);
    }

    proptest! {
        /// Whatever was stored of a batch when it was interrupted: only the same rows are taken for it.
        #[test]
        fn only_the_same_rows_pass_for_a_repetition(
            rows in prop::collection::vec(0..3_u8, 1..6),
            again in prop::collection::vec(0..3_u8, 0..7),
            stored in 1..6_usize,
            is_newest in any::<bool>(),
        ) {
            let bodies = |rows: &[u8]| rows.iter().map(|row| vec![*row]).collect::<Vec<_>>();
            let (first, second) = (bodies(&rows), bodies(&again));
            let (first, second): (Vec<_>, Vec<_>) = (first.iter().map(Vec::as_slice).collect(), second.iter().map(Vec::as_slice).collect());
            let stored = stored.min(rows.len());
            let later: &[&[u8]] = &[b"z"];
            let batches = [(4, &first[..], stored), (5, later, 1)];
            let known = known(&batches[..if is_newest { 1 } else { 2 }]);

            let begins_alike = again.len() >= stored && again[..stored] == rows[..stored];
            let passes = begins_alike && (is_newest || again.len() == stored);

            prop_assert_eq!(send(&known, 4, &second).is_ok(), passes);
        }
    }
}
