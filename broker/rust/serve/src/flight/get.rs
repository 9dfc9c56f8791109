//! DoGet: a ticket's messages as record batches, built straight from the segments on a thread that may block.
//!
//! While one batch is on its way the next is built, and no more: a client that does not read holds two batches.

use bytes::Bytes;
use penstock_arrow::{BatchBuilder, Encoder, IpcMessage, MessageRow, Projection};
use penstock_engine::{Progress, QueueId, ReadFrom, ReadSettings, StreamReader};
use penstock_wire::grpc::read::{ReadOpen, Start, encode_read_open};
use penstock_wire::protobuf::{put_bytes, put_len_head};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tonic::{Status, Streaming};

use super::asks::Ticket;
use super::protocol::{DATA_BODY, DATA_HEADER, FlightTicket};
use super::{first, not_encoded, of_arrow};
use crate::calls::{Call, Kind};
use crate::connection::Caller;
use crate::deliveries::Pending;
use crate::messaging::Messaging;
use crate::responses::{FramedMessage, Responder};
use crate::server::until_stopped;
use crate::status;

/// A batch ends with the row that reaches one of these.
const BATCH_BYTES: usize = 2 << 20;
const BATCH_ROWS: usize = 32 << 10;

/// What a batch's last message may have beyond, without the body's room being made anew.
const BATCH_BYTES_SPARE: usize = 64 << 10;

/// Messages found under one hold of the shard's lock.
const FILL_MAX: u32 = 4096;

/// What building a batch gives: the builder back, and the batch unless the range has ended.
type Built = (Box<Batches>, Result<Option<IpcMessage>, Status>);

pub(super) struct GetStream {
    schema: Option<IpcMessage>,
    building: Option<JoinHandle<Built>>,
    stopping: watch::Receiver<bool>,
}

/// Reads a ticket, asks whether it may be read, and begins.
pub(super) async fn open(
    messaging: Messaging,
    caller: Caller,
    mut input: Streaming<Bytes>,
) -> Result<GetStream, Status> {
    let ticket = Ticket::parse(&first::<FlightTicket>(&mut input).await?.ticket)?;
    let projection = projection_of(ticket.columns.as_deref())?;
    let mut call = Call::new(Kind::Read, &caller);
    call.payload = read_open(&ticket).into();
    let (vhost, queue_id) = messaging.calls.admit(call).await?;
    let shard = messaging.shard(&vhost)?;
    let settings =
        ReadSettings { from: ReadFrom::Offset(ticket.from), end: ticket.to, group: None, single_active: false };
    let mut reader = shard
        .home_of(QueueId(queue_id))
        .read(QueueId(queue_id), settings)
        .map_err(|error| status::of_engine(&error))?;
    reader.end_at(reader.range().next);
    let mut encoder = Encoder::new(&projection.schema()).map_err(|error| not_encoded(&error))?;
    let schema = encoder.schema();
    let batches = Batches { reader, pending: Pending::default(), encoder, projection, partition: ticket.partition };
    Ok(GetStream { schema, building: Some(build(Box::new(batches))), stopping: messaging.stopping })
}

pub(super) fn projection_of(columns: Option<&[String]>) -> Result<Projection, Status> {
    let Some(columns) = columns else { return Ok(Projection::all()) };
    Projection::of(columns.iter().map(String::as_str)).map_err(|error| of_arrow(&error))
}

fn read_open(ticket: &Ticket) -> Vec<u8> {
    let mut open = Vec::new();
    encode_read_open(
        &mut open,
        &ReadOpen {
            vhost: &ticket.vhost,
            partition: &ticket.partition,
            start: Start::Offset(ticket.from),
            end: ticket.to,
            ..ReadOpen::default()
        },
    );
    open
}

fn build(mut batches: Box<Batches>) -> JoinHandle<Built> {
    spawn_blocking(move || {
        let built = batches.next();
        (batches, built)
    })
}

impl Responder for GetStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        if let Some(schema) = self.schema.take() {
            return Some(Ok(framed(schema)));
        }
        let building = self.building.as_mut()?;
        let built = tokio::select! {
            biased;
            built = building => built,
            () = until_stopped(&mut self.stopping) => {
                self.building = None;
                return Some(Err(status::stopping()));
            }
        };
        self.building = None;
        match built {
            Ok((batches, Ok(Some(message)))) => {
                self.building = Some(build(batches));
                Some(Ok(framed(message)))
            }
            Ok((_, Ok(None))) => None,
            Ok((_, Err(failed))) => Some(Err(failed)),
            Err(_) => Some(Err(Status::internal("building a record batch failed"))),
        }
    }
}

/// A `FlightData` whose body goes to the socket from where it is.
fn framed(message: IpcMessage) -> FramedMessage {
    let IpcMessage { header, body, body_bytes } = message;
    let framed = FramedMessage::of(header.len() + 32, |out| {
        put_bytes(out, DATA_HEADER, &header);
        if body_bytes > 0 {
            put_len_head(out, DATA_BODY, body_bytes);
        }
    });
    framed.with_tail(body)
}

/// The batches of a range, one after the other.
struct Batches {
    reader: StreamReader,
    pending: Pending,
    encoder: Encoder,
    projection: Projection,
    partition: String,
}

impl Batches {
    fn next(&mut self) -> Result<Option<IpcMessage>, Status> {
        let room = BATCH_BYTES + BATCH_BYTES_SPARE;
        let mut rows = BatchBuilder::new(&self.projection, &self.partition, BATCH_ROWS, room);
        while has_room(&rows) {
            if self.pending.is_empty() && !self.fill()? {
                break;
            }
            self.pending.take_here(&mut self.reader, &mut |view, picked| {
                rows.push(&MessageRow {
                    offset: picked.taken.sequence.0,
                    stored_at_ms: view.stored_at_ms,
                    key: view.key,
                    exchange: view.exchange,
                    routing_key: view.routing_key,
                    body: view.body,
                    properties: view.properties,
                });
                has_room(&rows)
            })?;
        }
        if rows.row_count() == 0 {
            return Ok(None);
        }
        let batch = rows.finish().map_err(|error| not_encoded(&error))?;
        self.encoder.batch(&batch).map(Some).map_err(|error| not_encoded(&error))
    }

    /// Says whether there is more. A range ends where the partition ended when it was opened: there is nothing to wait for.
    fn fill(&mut self) -> Result<bool, Status> {
        let mut filled = Vec::new();
        let progress = self.reader.fill(FILL_MAX, &mut filled).map_err(|error| status::of_engine(&error))?;
        self.pending.extend(filled);
        Ok(progress == Progress::Found)
    }
}

fn has_room(rows: &BatchBuilder) -> bool {
    rows.byte_count() < BATCH_BYTES && rows.row_count() < BATCH_ROWS
}
