//! DoPut: batches of rows come up and are published one after the other; how far that came goes down.
//!
//! What must stay true: publishing goes on while the client reads no results, because many read them at the end only. Results
//! therefore count all rows so far, and one that nobody read is replaced by the next.

use penstock_arrow::{PutDecoder, RecordBatch};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tonic::Status;

use super::asks::Put;
use super::info::check_caller;
use super::messages::{decode, first, of_arrow};
use super::protocol::{FlightData, PutResult, framed};
use super::publishing::{Progress, Publishing};
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::rights::Rights;
use crate::host::stopping::until_stopped;

pub(super) struct Results {
    progress: watch::Receiver<Progress>,
    publishing: Option<JoinHandle<Result<(), Status>>>,
}

/// Whoever went away is published for no longer.
impl Drop for Results {
    fn drop(&mut self) {
        if let Some(publishing) = self.publishing.take() {
            publishing.abort();
        }
    }
}

pub(super) async fn open(broker: Broker, caller: Caller, mut input: Input) -> Result<Results, Status> {
    // A first message may be large: nobody's is read before it is known who sends it.
    check_caller(&broker.calls, &caller).await?;
    let data: FlightData = first(&mut input).await?;
    let descriptor = data.descriptor.as_ref();
    let put = Put::of(descriptor.ok_or_else(|| Status::invalid_argument("the first message has no descriptor"))?)?;
    let stopping = broker.stopping.clone();
    let publishing = Publishing::open(broker, caller, put).await?;
    let (told, progress) = watch::channel(Progress::default());
    let publishing = tokio::spawn(publish(data, input, publishing, stopping, told));
    Ok(Results { progress, publishing: Some(publishing) })
}

impl Responder for Results {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        if self.progress.changed().await.is_ok() {
            let progress = *self.progress.borrow_and_update();
            // Numbers always have a JSON form.
            let app_metadata = serde_json::to_vec(&progress).unwrap_or_default().into();
            return Some(Ok(framed(&PutResult { app_metadata })));
        }
        // Nobody tells any more: publishing has ended.
        let ended = self.publishing.as_mut()?.await;
        self.publishing = None;
        ended.unwrap_or_else(|_| Err(Status::internal("publishing the rows failed"))).err().map(Err)
    }
}

async fn publish(
    first: FlightData,
    mut input: Input,
    (mut publishing, mut rights): (Publishing, Rights),
    mut stopping: watch::Receiver<bool>,
    told: watch::Sender<Progress>,
) -> Result<(), Status> {
    let mut decoder = PutDecoder::default();
    let mut data = first;
    loop {
        // A message may carry nothing but metadata.
        if !data.header.is_empty() {
            let batch;
            (decoder, batch) = read(decoder, data).await?;
            if let Some(batch) = batch {
                publishing.publish(&batch).await?;
                told.send_replace(publishing.progress());
            }
        }
        let message = tokio::select! {
            biased;
            message = input.message() => message?,
            () = until_stopped(&mut stopping) => return Err(status::stopping()),
            refused = rights.until_refused() => return Err(refused.into()),
        };
        let Some(message) = message else { return publishing.end() };
        data = decode(message)?;
    }
}

/// Checking a large batch takes its time, which other streams of this thread should not wait for. What Arrow's code cannot bear
/// ends there.
async fn read(mut decoder: PutDecoder, data: FlightData) -> Result<(PutDecoder, Option<RecordBatch>), Status> {
    let reading = spawn_blocking(move || {
        let read = decoder.read(&data.header, data.body);
        (decoder, read)
    });
    let (decoder, read) = reading.await.map_err(|_| Status::invalid_argument("a record batch cannot be read"))?;
    Ok((decoder, read.map_err(|error| of_arrow(&error))?))
}
