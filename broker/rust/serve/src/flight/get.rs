//! DoGet: a ticket's messages as record batches, from the archive what the log has given up, from the log the rest.
//!
//! While one batch is on its way the next is built, and no more: a client that does not read holds two batches, or a piece of
//! the archive.

use std::sync::Arc;

use penstock_arrow::{Encoder, Filter, IpcMessage, Projection};
use penstock_engine::LeaseReader;
use penstock_wire::protobuf::{put_bytes, put_len_head};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::Status;

use super::asks::{Reading, Ticket};
use super::batches::{Batches, Report, Shape};
use super::lease;
use super::messages::{first, not_encoded, of_arrow};
use super::protocol::{DATA_APP_METADATA, DATA_BODY, DATA_HEADER, FlightTicket};
use super::source::Source;
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Call, CallRequest};
use crate::host::memory::Outgoing;
use crate::host::rights::{Question, Rights};
use crate::host::stopping::until_stopped;

/// What a ticket asks for.
enum Rows {
    Range(Box<Source>),
    Lease(Box<Batches<LeaseReader>>),
}

impl Rows {
    /// The next batch, with the rest, unless all is told.
    async fn next(self) -> Built {
        match self {
            Rows::Range(mut source) => {
                Ok(source.next().await?.map(|(message, report)| (Rows::Range(source), message, Some(report))))
            }
            Rows::Lease(batches) => {
                let (batches, built) = batches.next().await?;
                Ok(built.map(|(message, _)| (Rows::Lease(batches), message, None)))
            }
        }
    }
}

type Built = Result<Option<(Rows, IpcMessage, Option<Report>)>, Status>;

pub(super) struct GetStream {
    schema: Option<IpcMessage>,
    building: Option<JoinHandle<Built>>,
    stopping: watch::Receiver<bool>,
    rights: Rights,
    outgoing: Outgoing,
}

/// Reads a ticket, asks whether it may be read, and begins.
pub(super) async fn open(broker: Broker, caller: Caller, mut input: Input) -> Result<GetStream, Status> {
    let account = Arc::clone(&caller.state.account);
    let reading = Reading::parse(&first::<FlightTicket>(&mut input).await?.ticket)?;
    let projection = projection_of(reading.columns())?;
    let call = match &reading {
        Reading::Range(ticket) => admission(&caller, ticket),
        Reading::Lease(ticket) => lease::admission(&caller, ticket),
    };
    let question = Question::of(&broker.calls, &call);
    let Admitted { vhost, queue_id, user, .. } = broker.calls.admit(call).await?;
    let shard = broker.shard(&vhost)?;
    let mut encoder = Encoder::new(&projection.schema()).map_err(|error| not_encoded(&error))?;
    let schema = encoder.schema();
    let outgoing = Outgoing::new(&account);
    let shape = |partition: &str, filter| Shape { encoder, projection, partition: partition.to_owned(), filter };
    let rows = match reading {
        Reading::Range(ticket) => {
            let shape = shape(&ticket.partition, ticket.filter());
            Rows::Range(Box::new(Source::open(broker.calls, caller, shard, queue_id, ticket, shape).await?))
        }
        Reading::Lease(ticket) => {
            let reader = lease::read(&shard, queue_id, &ticket).await?;
            Rows::Lease(Box::new(Batches::new(reader, 0, shape(&ticket.queue, Filter::default()))))
        }
    };
    let (building, rights) = (Some(tokio::spawn(rows.next())), question.watch(&user, &vhost, || ()));
    Ok(GetStream { schema, building, stopping: broker.stopping, rights, outgoing })
}

fn admission(caller: &Caller, ticket: &Ticket) -> Call {
    let (vhost, partition) = (ticket.vhost.clone(), ticket.partition.clone());
    let request =
        CallRequest::OpenRead { vhost, partition, group: String::new(), single_active: false, from_replica: false };
    Call::new(request, caller)
}

pub(super) fn projection_of(columns: Option<&[String]>) -> Result<Projection, Status> {
    let Some(columns) = columns else { return Ok(Projection::all()) };
    Projection::of(columns.iter().map(String::as_str)).map_err(|error| of_arrow(&error))
}

impl Responder for GetStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        if let Some(schema) = self.schema.take() {
            return Some(Ok(framed(schema, None)));
        }
        let building = self.building.as_mut()?;
        let built = tokio::select! {
            biased;
            refused = self.rights.until_refused() => {
                self.building = None;
                return Some(Err(refused.into()));
            }
            built = async {
                // No other batch is built until this one has gone.
                self.outgoing.until_room().await;
                building.await
            } => built,
            () = until_stopped(&mut self.stopping) => {
                self.building = None;
                return Some(Err(status::stopping()));
            }
        };
        self.building = None;
        match built {
            Ok(Ok(Some((rest, message, report)))) => {
                self.building = Some(tokio::spawn(rest.next()));
                Some(Ok(framed(message, report)))
            }
            Ok(Ok(None)) => None,
            Ok(Err(failed)) => Some(Err(failed)),
            Err(_) => Some(Err(Status::internal("building a record batch failed"))),
        }
    }
}

/// A `FlightData` whose body goes to the socket from where it is.
fn framed(message: IpcMessage, report: Option<Report>) -> FramedMessage {
    let IpcMessage { header, body, body_bytes } = message;
    // Numbers always have a JSON form.
    let report = report.and_then(|report| serde_json::to_vec(&report).ok()).unwrap_or_default();
    let framed = FramedMessage::of(header.len() + report.len() + 32, |out| {
        put_bytes(out, DATA_HEADER, &header);
        if !report.is_empty() {
            put_bytes(out, DATA_APP_METADATA, &report);
        }
        if body_bytes > 0 {
            put_len_head(out, DATA_BODY, body_bytes);
        }
    });
    framed.with_tail(body)
}
