//! A read stream: deliveries go down while the client's stream has room and credit, stored offsets come up.
//!
//! The stream of responses drives everything, as with consumers: while the client does not read, nothing more is looked for.
//! A client that has nothing more to say goes on reading.

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::Progress;
use penstock_wire::grpc::read::{
    ReadFrame, encode_active, encode_read_cancelled, encode_read_opened, parse_read_request,
};
use tokio::sync::watch;
use tonic::Status;

use crate::grpc::deliveries::Responses;
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::deliveries::Pending;
use crate::host::rights::Rights;
use crate::host::stopping::until_stopped;
use crate::host::stream_source::StreamSource;

/// Messages found under one hold of a lock.
const FILL_MAX: u32 = 1024;

/// Requests read in a row before deliveries get their turn.
const REQUESTS_MAX: usize = 256;

pub(crate) struct ReadStream {
    input: Input,
    stopping: watch::Receiver<bool>,
    rights: Rights,
    source: StreamSource,
    /// Responses with deliveries that may still go; without a bound when absent.
    credit: Option<u32>,
    pending: Pending,
    responses: Responses,
    opened: Option<FramedMessage>,
    input_ended: bool,
    ended: bool,
}

impl ReadStream {
    pub fn new(
        input: Input,
        stopping: watch::Receiver<bool>,
        rights: Rights,
        source: StreamSource,
        credit: Option<u32>,
        responses: Responses,
    ) -> ReadStream {
        let range = source.range();
        let opened = FramedMessage::of(64, |out| encode_read_opened(out, range.first, range.begin, range.next));
        ReadStream {
            input,
            stopping,
            rights,
            source,
            credit,
            pending: Pending::default(),
            responses,
            opened: Some(opened),
            input_ended: false,
            ended: false,
        }
    }
}

impl Responder for ReadStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        if let Some(opened) = self.opened.take() {
            return Some(Ok(opened));
        }
        if self.ended {
            return None;
        }
        let next = self.next().await.transpose();
        self.ended |= !matches!(next, Some(Ok(_)));
        next
    }
}

impl ReadStream {
    async fn next(&mut self) -> Result<Option<FramedMessage>, Status> {
        loop {
            self.read_waiting().await?;
            if let Some(reason) = self.source.signal().cancelled() {
                if self.source.goes_on_elsewhere() {
                    return Err(status::led_elsewhere(reason));
                }
                self.ended = true;
                return Ok(Some(FramedMessage::of(64, |out| encode_read_cancelled(out, reason))));
            }
            if let Some(refused) = self.rights.refused() {
                return Err(refused.into());
            }
            if *self.stopping.borrow() {
                return Err(status::stopping());
            }
            let turn = self.source.turn().await;
            if let Some(turn) = turn.map_err(|error| status::of_engine(&error))? {
                return Ok(Some(FramedMessage::of(32, |out| encode_active(out, turn.active, turn.begin))));
            }
            if self.pending.is_empty() && self.fill().await? == Progress::Ended {
                return Ok(None);
            }
            if !self.pending.is_empty() && self.credit != Some(0) && !self.responses.waits() {
                let response = self.responses.encode(&mut self.pending, &mut self.source).await?;
                let Some(response) = response else { continue };
                self.credit = self.credit.map(|credit| credit - 1);
                return Ok(Some(response));
            }
            if self.input_ended && self.credit == Some(0) {
                return Ok(None);
            }
            let request = tokio::select! {
                biased;
                request = self.input.message(), if !self.input_ended => request,
                () = self.source.signal().heard() => continue,
                refused = self.rights.until_refused() => return Err(refused.into()),
                () = self.responses.until_room(), if self.responses.waits() => continue,
                () = until_stopped(&mut self.stopping) => continue,
            };
            self.apply(request).await?;
        }
    }

    async fn fill(&mut self) -> Result<Progress, Status> {
        let (progress, filled) = self.source.fill(FILL_MAX).await?;
        self.pending.extend(filled);
        Ok(progress)
    }

    /// Takes the requests that have arrived.
    async fn read_waiting(&mut self) -> Result<(), Status> {
        for _ in 0..REQUESTS_MAX {
            if self.input_ended {
                return Ok(());
            }
            let Some(request) = self.input.message().now_or_never() else { return Ok(()) };
            self.apply(request).await?;
        }
        Ok(())
    }

    async fn apply(&mut self, request: Result<Option<Bytes>, Status>) -> Result<(), Status> {
        let Some(request) = request? else {
            self.input_ended = true;
            return Ok(());
        };
        match parse_read_request(&request).map_err(|error| status::of_wire(&error))? {
            ReadFrame::Open(_) => return Err(status::opened_twice()),
            ReadFrame::Credit { responses } => {
                self.credit = self.credit.map(|credit| credit.saturating_add(responses));
            }
            ReadFrame::Stored { offset } => {
                let stored = self.source.store(offset).await;
                stored.map_err(|error| status::of_engine(&error))?;
            }
        }
        Ok(())
    }
}
