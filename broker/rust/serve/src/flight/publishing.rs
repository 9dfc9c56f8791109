//! Rows into the log: permits asked for, rounds stored, the disk waited for where the level says so.
//!
//! What must stay true: rows are counted as confirmed only once they are stored at their level, and a row that is refused ends
//! everything behind it.

use std::sync::Arc;

use penstock_arrow::{PutRow, PutRows, RecordBatch};
use penstock_engine::{Fate, Level, Metric, Payload, Places, Publication, QueueId, Shard, StageTag};
use penstock_wire::NAME_BYTES_MAX;
use penstock_wire::amqp::properties::{PERSISTENT_ONLY, delivery_mode_of, headers_of, properties_to_amqp, user_id_of};
use penstock_wire::grpc::staging::StageTarget;
use serde::Serialize;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::asks::{Put, PutDurability};
use super::info::streams;
use super::messages::of_arrow;
use super::numbering::Numbering;
use crate::grpc::staging::{self, Place};
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest};
use crate::host::permits::{Asker, Permits, times_denial, user_id_denial};
use crate::host::publishing::{now_ms, require_replicas};
use crate::host::quotas::Allowance;
use crate::host::refusal::Refusal;
use crate::host::rights::{Question, Rights};
use crate::host::stalls::{at, until_free, when_free};

/// One round stores at most this much, so that other publishers get their turn.
const ROUND_ROWS_MAX: usize = 4096;
const ROUND_BYTES_MAX: usize = 1 << 20;

/// AMQP's delivery mode of messages that ask to survive.
const PERSISTENT: u8 = 2;

/// The JSON of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Progress {
    /// Rows so far that are published, at the level that was asked for.
    pub confirmed: u64,
    /// Those of them that no queue wanted: nothing was stored.
    pub unroutable: u64,
    /// Those of them that were stored by an earlier call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
    /// The producer's sequence of the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// The attempt that staged rows belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
}

/// See the module.
pub(super) struct Publishing {
    broker: Broker,
    caller: Caller,
    shard: Arc<Shard>,
    /// Who publishes.
    user: String,
    allowance: Allowance,
    exchange: String,
    routing_key: String,
    /// Given for a stream that is a queue: a routing key would take rows past it.
    stream: Option<String>,
    level: Option<Level>,
    /// Given for a producer.
    numbering: Option<Numbering>,
    permits: Permits,
    /// Given when rows are staged.
    staging: Option<Attempt>,
    progress: Progress,
}

/// Rows of a put are one attempt, at a part of a batch.
struct Attempt {
    queue: QueueId,
    tag: String,
}

/// Rows with their properties as they are stored, and the bytes of all.
type Round<'a> = (Vec<(PutRow<'a>, Vec<u8>)>, usize);

/// Where a round ended, and whether its rows have to be on the disk.
struct Stored {
    row_count: usize,
    unroutable: u64,
    wait_for: Option<Places>,
}

impl Publishing {
    /// Also gives the right to go on, for whoever waits for rows.
    pub async fn open(broker: Broker, caller: Caller, put: Put) -> Result<(Publishing, Rights), Status> {
        if put.stage.is_some() {
            return Self::open_stage(broker, caller, put).await;
        }
        let level = put.durability.map(|level| match level {
            PutDurability::Os => Level::Os,
            PutDurability::Disk | PutDurability::Replicated => Level::Disk,
        });
        let call = Call::new(CallRequest::OpenPublish { vhost: put.vhost.clone() }, &caller);
        let mut question = Question::of(&broker.calls, &call);
        let admitted = broker.calls.admit(call).await?;
        let (shard, allowance) = broker.enter(&admitted)?;
        if put.durability == Some(PutDurability::Replicated) {
            require_replicas(&shard)?;
        }
        let (exchange, routing_key) = match &put.stream {
            Some(name) => place_of(&broker, &caller, &put.vhost, name.clone()).await?,
            None => (put.exchange.clone(), put.routing_key.clone()),
        };
        if put.producer.len() > NAME_BYTES_MAX {
            return Err(Status::invalid_argument("a producer's name has at most 255 bytes; choose a shorter one"));
        }
        let stream = put.stream.clone().filter(|_| exchange.is_empty());
        let numbering = Numbering::open(&mut question, &shard, &put, (&admitted.user, &admitted.vhost)).await?;
        let publishing = Publishing {
            broker,
            caller,
            shard,
            user: admitted.user,
            allowance,
            exchange,
            routing_key,
            stream,
            level,
            numbering,
            permits: Permits::default(),
            staging: None,
            progress: Progress::default(),
        };
        let rights = question.watch(&publishing.user, publishing.shard.name(), || ());
        Ok((publishing, rights))
    }

    async fn open_stage(broker: Broker, caller: Caller, put: Put) -> Result<(Publishing, Rights), Status> {
        let target = StageTarget {
            vhost: &put.vhost,
            stage: put.stage.as_deref().unwrap_or_default(),
            stream: put.stream.as_deref().unwrap_or_default(),
            exchange: &put.exchange,
            routing_key: &put.routing_key,
        };
        let question = Question::of(&broker.calls, &staging::call(&caller, &target));
        let place = Place::find(&broker, &caller, &target).await?;
        let allowance = place.allowance(&broker)?;
        let Place { shard, queue, exchange, routing_key, user } = place;
        let attempt = when_free(&shard, || shard.new_attempt()).await.map_err(|error| status::of_engine(&error))?;
        let tag = StageTag { batch: put.batch.unwrap_or_default(), attempt }.to_text();
        let publishing = Publishing {
            broker,
            caller,
            shard,
            user,
            stream: put.stream.filter(|_| exchange.is_empty()),
            exchange,
            routing_key,
            level: None,
            numbering: None,
            allowance,
            permits: Permits::default(),
            staging: Some(Attempt { queue, tag }),
            progress: Progress { attempt: Some(attempt), ..Progress::default() },
        };
        let rights = question.watch(&publishing.user, publishing.shard.name(), || ());
        Ok((publishing, rights))
    }

    pub fn progress(&self) -> Progress {
        let Some(numbering) = &self.numbering else { return self.progress };
        let sure = if numbering.is_sure() { self.progress } else { Progress::default() };
        let repeated = if numbering.is_sure() { numbering.repeated() } else { 0 };
        Progress { repeated: Some(repeated), sequence: numbering.last_sequence(), ..sure }
    }

    /// The client has sent all rows.
    pub fn end(&self) -> Result<(), Status> {
        self.numbering.as_ref().map_or(Ok(()), Numbering::end)
    }

    /// Publishes all rows of a batch, in order. What is not stored holds back what its producer would send behind it.
    pub async fn publish(&mut self, batch: &RecordBatch) -> Result<(), Status> {
        let mut next = self.numbering.as_ref().and_then(Numbering::next_sequence);
        let published = self.publish_all(batch, &mut next).await;
        if let (Err(_), Some(numbering)) = (&published, &self.numbering) {
            numbering.hold_back(&self.shard, next).await;
        }
        published
    }

    /// `next` is the sequence of the first row that is not stored.
    async fn publish_all(&mut self, batch: &RecordBatch, next: &mut Option<u64>) -> Result<(), Status> {
        let rows = PutRows::of(batch).map_err(|error| of_arrow(&error))?;
        if let (Some(stream), Some(row)) = (&self.stream, rows.first_routed()) {
            return Err(Status::invalid_argument(format!(
                "row {row} has a routing key, which would take it past stream '{stream}'; drop the column 'routing_key', or name an \
                 exchange in `exchange` instead of `stream`"
            )));
        }
        let (mut from, mut wait_for) = (0, Places::default());
        let mut unroutable = 0;
        while from < rows.row_count() {
            self.permit(&rows, from).await?;
            while let Some(pause) = self.allowance.publish_pause() {
                sleep(pause).await;
            }
            until_free(&self.shard).await;
            let Some(stored) = self.store(&rows, from)? else {
                let asker = Asker {
                    calls: &self.broker.calls,
                    caller: &self.caller,
                    user: &self.user,
                    vhost: self.shard.name(),
                };
                asker.impersonation(&mut self.permits).await?;
                continue;
            };
            *next = self.numbering.as_ref().and_then(Numbering::next_sequence);
            from += stored.row_count;
            unroutable += stored.unroutable;
            stored.wait_for.iter().for_each(|places| wait_for.add_all(places));
            // Other streams' turn.
            tokio::task::yield_now().await;
        }
        wait_for.request_sync();
        wait_for.wait().await.map_err(|error| status::of_engine(&error))?;
        self.shard.counters().add(Metric::Confirmed, rows.row_count() as u64);
        self.progress.confirmed += rows.row_count() as u64;
        self.progress.unroutable += unroutable;
        Ok(())
    }

    /// Asks whether the exchange may be written with the routing keys of a round, where that is not known.
    async fn permit(&mut self, rows: &PutRows<'_>, from: usize) -> Result<(), Status> {
        let mut keys = Vec::new();
        for at in from..rows.row_count().min(from + ROUND_ROWS_MAX) {
            let row = rows.row(at).map_err(|error| of_arrow(&error))?;
            keys.push(row.routing_key.unwrap_or(self.routing_key.as_bytes()));
        }
        let asker =
            Asker { calls: &self.broker.calls, caller: &self.caller, user: &self.user, vhost: self.shard.name() };
        Ok(asker.admit(&mut self.permits, self.exchange.as_bytes(), &keys).await?)
    }

    /// Store a round of rows from one on; return nothing when it has to be asked first whether the user may publish with
    /// another user's name.
    fn store(&mut self, rows: &PutRows<'_>, from: usize) -> Result<Option<Stored>, Status> {
        let Some((round, bytes)) = self.round_of(rows, from)? else { return Ok(None) };
        if let Some(attempt) = &self.staging {
            return self.stage(attempt, &round).map(Some);
        }
        self.publish_rows(&round, bytes).map(Some)
    }

    /// The next rows, with their properties as they are stored, and their bytes; none as `store` has it.
    fn round_of<'a>(&self, rows: &'a PutRows<'_>, from: usize) -> Result<Option<Round<'a>>, Status> {
        let limits = (rows.row_count() - from).min(ROUND_ROWS_MAX);
        let mut round: Vec<(PutRow<'_>, Vec<u8>)> = Vec::with_capacity(limits);
        let mut bytes = 0;
        for at in from..from + limits {
            let row = rows.row(at).map_err(|error| of_arrow(&error))?;
            let block = self.block_of(rows, at, &row)?;
            if !self.knows_user_id(&block)? {
                return Ok(None);
            }
            bytes += row.body.len() + block.len();
            round.push((row, block));
            if bytes >= ROUND_BYTES_MAX {
                break;
            }
        }
        Ok(Some((round, bytes)))
    }

    fn publish_rows(&mut self, round: &[(PutRow<'_>, Vec<u8>)], bytes: usize) -> Result<Stored, Status> {
        let mut numbering = self.numbering.take();
        let stored = self.publish_numbered(round, numbering.as_mut());
        self.numbering = numbering;
        self.allowance.published(round.len() as u64, bytes as u64, None);
        stored
    }

    fn publish_numbered(
        &self,
        round: &[(PutRow<'_>, Vec<u8>)],
        mut numbering: Option<&mut Numbering>,
    ) -> Result<Stored, Status> {
        let mut publications = Vec::with_capacity(round.len());
        for (row, block) in round {
            publications.extend(self.publication(row, block, numbering.as_deref_mut())?);
        }
        let mut fates = Vec::with_capacity(round.len());
        let (shard, level) = (&self.shard, self.level);
        let producer = numbering.as_ref().and_then(|numbering| numbering.session());
        let published = at(shard, || shard.publish_as(producer, &publications, level, now_ms(), &mut fates));
        let published = published.map_err(|error| status::of_engine(&error))?;
        if let Some(refused) = published.refused {
            return Err(status::of_engine(&refused));
        }
        if fates.contains(&Fate::NoExchange) {
            let text = format!("exchange '{}' is not there; declare it first", self.exchange);
            return Err(Status::not_found(text));
        }
        if let Some(held_back) = fates.iter().find_map(Fate::held_back) {
            return Err(status::of_engine(&held_back));
        }
        let unroutable = fates.iter().filter(|fate| matches!(fate, Fate::Unroutable | Fate::Returned)).count();
        let unroutable = (unroutable + round.len() - fates.len()) as u64;
        let wait_for = fates.contains(&Fate::Stored(Level::Disk)).then(|| published.places(&self.shard));
        Ok(Stored { row_count: round.len(), unroutable, wait_for })
    }

    /// Stores a round of rows in the stage.
    fn stage(&self, attempt: &Attempt, round: &[(PutRow<'_>, Vec<u8>)]) -> Result<Stored, Status> {
        let mut rows = Vec::with_capacity(round.len());
        for (row, block) in round {
            let block = if block.is_empty() { &PERSISTENT_ONLY[..] } else { block };
            rows.push(payload(row, block, attempt.tag.as_bytes(), row.routing_key.unwrap_or_default())?);
        }
        let shard = &self.shard;
        let end = at(shard, || shard.stage(attempt.queue, &rows, now_ms()));
        let end = end.map_err(|error| status::of_engine(&error))?;
        let mut places = Places::default();
        places.add(&self.shard, end);
        Ok(Stored { row_count: round.len(), unroutable: 0, wait_for: Some(places) })
    }

    /// Say whether it is known that a row's `user_id` is the user's name, or that the user may use another.
    fn knows_user_id(&self, block: &[u8]) -> Result<bool, Status> {
        let user = self.user.as_bytes();
        let user_id = user_id_of(block).map_err(|error| status::of_wire(&error))?;
        let Some(user_id) = user_id.filter(|user_id| *user_id != user) else { return Ok(true) };
        match self.permits.impersonation() {
            Some(false) => Err(user_id_denial(user_id, user).into()),
            known => Ok(known.is_some()),
        }
    }

    /// The properties of a row as they are stored. What is too large is refused here.
    fn block_of(&self, rows: &PutRows<'_>, at: usize, row: &PutRow<'_>) -> Result<Vec<u8>, Status> {
        let (max, whose) = self.allowance.message_bytes_max(self.broker.message_bytes_max);
        if row.body.len() > max {
            let limit = whose.map_or("message_bytes_max".to_owned(), |whose| format!("max-message-bytes of {whose}"));
            let text = format!("row {at}: a body of {} bytes is larger than {limit}, {max}", row.body.len());
            return Err(Status::new(Code::ResourceExhausted, text));
        }
        let mut block = Vec::new();
        if rows.has_properties() {
            let mut properties = Vec::new();
            rows.put_properties(at, &mut properties).map_err(|error| of_arrow(&error))?;
            if !properties.is_empty() {
                let delay_ms =
                    properties_to_amqp(Some(&properties), &mut block).map_err(|error| status::of_wire(&error))?;
                let times = times_denial(&block, delay_ms).map_err(|error| status::of_wire(&error))?;
                if let Some(denial) = times {
                    return Err(Refusal::new(denial.kind, format!("row {at}: {}", denial.text)).into());
                }
            }
        }
        Ok(block)
    }

    /// The message of a row; none for one that is left out.
    fn publication<'a>(
        &'a self,
        row: &PutRow<'a>,
        block: &'a [u8],
        numbering: Option<&mut Numbering>,
    ) -> Result<Option<Publication<'a>>, Status> {
        let (headers, persistent) = match block {
            [] => (None, true),
            block => (
                headers_of(block).map_err(|error| status::of_wire(&error))?,
                delivery_mode_of(block).map_err(|error| status::of_wire(&error))? == PERSISTENT,
            ),
        };
        let block = if block.is_empty() { &PERSISTENT_ONLY[..] } else { block };
        let (exchange, key) = (self.exchange.as_bytes(), row.routing_key.unwrap_or(self.routing_key.as_bytes()));
        let payload = payload(row, block, exchange, key)?;
        let mut publication = Publication { payload, exchange, key, headers, persistent, mandatory: false };
        if let Some(numbering) = numbering {
            publication.payload = numbering.number(payload)?;
            if numbering.is_left_out(&self.shard, &publication)? {
                return Ok(None);
            }
        }
        Ok(Some(publication))
    }
}

fn payload<'a>(row: &PutRow<'a>, block: &'a [u8], exchange: &'a [u8], key: &'a [u8]) -> Result<Payload<'a>, Status> {
    let payload = Payload::new(exchange, key, block, row.body);
    let payload = payload.and_then(|payload| row.key.map_or(Ok(payload), |key| payload.with_key(key)));
    payload.map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Exchange and routing key by which a stream is written: the exchange of its name when it has partitions, or when it is no
/// stream at all; else its queue by the default exchange.
async fn place_of(broker: &Broker, caller: &Caller, vhost: &str, name: String) -> Result<(String, String), Status> {
    match streams(&broker.calls, caller, vhost, Some(&name)).await {
        Ok(found) if found.iter().any(|stream| stream.name == name && stream.partitions == [name.as_str()]) => {
            Ok((String::new(), name))
        }
        Ok(_) => Ok((name, String::new())),
        Err(refused) if refused.code() == Code::NotFound => Ok((name, String::new())),
        Err(refused) => Err(refused),
    }
}
