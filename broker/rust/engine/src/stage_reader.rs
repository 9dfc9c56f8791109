//! Reading a stage from its first row on, in parts that are read without the shard's lock. A row with an unreadable
//! record is dropped from the stage, as from every stream, and a row count detects it.

use std::sync::Arc;

use penstock_log::{LogError, MessageView, Target};
use penstock_queue::{QueueId, Sequence};

use crate::cursor::ReadFrom;
use crate::decision::StageTag;
use crate::error::EngineError;
use crate::reader::{Progress, ReadSettings, StreamReader};
use crate::shard::Shard;
use crate::subscription::Filled;

/// The most rows passed at once.
const ROWS_MAX: u32 = 4096;

/// A row of a stage; without a tag when it was not staged.
pub(crate) struct Row<'a> {
    pub sequence: Sequence,
    pub tag: Option<StageTag>,
    pub view: MessageView<'a>,
}

/// Where a part ends early, and why.
type Corrupt = Option<(Sequence, LogError)>;

/// A reader; see the module.
pub(crate) struct StageReader {
    queue: QueueId,
    reader: StreamReader,
    end: u64,
}

impl StageReader {
    /// Reads up to `end`, or to the present end.
    pub fn open(shard: &Arc<Shard>, queue: QueueId, end: Option<u64>) -> Result<StageReader, EngineError> {
        let settings = ReadSettings { from: ReadFrom::First, end, group: None, single_active: false };
        let mut reader = shard.read(queue, settings)?;
        let end = end.unwrap_or(reader.range().next);
        reader.end_at(end);
        Ok(StageReader { queue, reader, end })
    }

    /// The first offset, and the end (exclusive).
    pub fn range(&self) -> (u64, u64) {
        (self.reader.range().first, self.end)
    }

    /// Passes the next rows to `take`; false when there are no more.
    pub fn next(&mut self, mut take: impl FnMut(&[Row<'_>]) -> Result<(), EngineError>) -> Result<bool, EngineError> {
        let mut filled = Vec::new();
        if self.reader.fill(ROWS_MAX, &mut filled)? != Progress::Found {
            return Ok(false);
        }
        for part in &filled {
            let corrupt = {
                let (rows, corrupt) = rows_of(self.queue, part)?;
                take(&rows)?;
                corrupt
            };
            if let Some((sequence, error)) = corrupt {
                self.reader.drop_corrupt(sequence, &error)?;
            }
        }
        Ok(true)
    }

    /// Passes all rows at once to `take`; `None` when there are more than so many, or one is unreadable.
    pub fn all<T>(
        &mut self,
        rows_max: usize,
        take: impl FnOnce(&[Row<'_>]) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        let mut filled = Vec::new();
        while self.reader.fill(ROWS_MAX, &mut filled)? == Progress::Found {
            if filled.iter().map(|part| part.picked.len()).sum::<usize>() > rows_max {
                return Ok(None);
            }
        }
        let mut rows = Vec::new();
        for part in &filled {
            let (some, corrupt) = rows_of(self.queue, part)?;
            if corrupt.is_some() {
                return Ok(None);
            }
            rows.extend(some);
        }
        take(&rows).map(Some)
    }
}

/// The rows of a part, up to the first unreadable one.
fn rows_of(queue: QueueId, part: &Filled) -> Result<(Vec<Row<'_>>, Corrupt), EngineError> {
    let segment = &part.segment;
    let (Some(first), Some(last)) = (part.picked.first(), part.picked.last()) else { return Ok((Vec::new(), None)) };
    // Unreadable sectors are found one row at a time.
    let is_there = segment.populate(first.offset, last.offset).is_ok();
    let mut rows = Vec::with_capacity(part.picked.len());
    for picked in &part.picked {
        let sequence = picked.taken.sequence;
        let populated = if is_there { Ok(()) } else { segment.populate(picked.offset, picked.offset) };
        match populated.and_then(|()| segment.message_for(picked.offset, Target { queue, sequence })) {
            Ok(view) => rows.push(Row { sequence, tag: StageTag::parse(view.exchange), view }),
            Err(error @ LogError::Corrupt { .. }) => return Ok((rows, Some((sequence, error)))),
            Err(error) => return Err(error.into()),
        }
    }
    Ok((rows, None))
}
