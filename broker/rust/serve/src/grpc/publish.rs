//! A publish stream: read what has arrived, store it, answer with ranges.
//!
//! The stream of responses drives everything: it is polled only while the client reads confirms, so a client that does not
//! is not read from either, and what it sent is not stored either. What came is stored round by round, and a few rounds share a
//! response.

use bytes::Bytes;
use futures_util::FutureExt;
use penstock_engine::EngineError;
use penstock_wire::grpc::publish::encode_publish_response;
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::Status;

use crate::grpc::arrived::Arrived;
use crate::grpc::input::Input;
use crate::grpc::responses::{FramedMessage, Responder};
use crate::grpc::status;
use crate::host::gather::Source;
use crate::host::outcomes::Decided;
use crate::host::publishing::Publishing;
use crate::host::refusal::Refusal;
use crate::host::stopping::until_stopped;

/// At most this many requests or bytes are taken in before they are stored.
const REQUESTS_MAX: usize = 512;
const REQUESTS_BYTES_MAX: usize = 1 << 20;

/// So many rounds share a response while more was sent than they store: one for each wakes the client too often.
const ROUNDS_ANSWERED_AT_ONCE: u32 = 8;

pub(crate) struct PublishStream {
    input: Input,
    stopping: watch::Receiver<bool>,
    publishing: Publishing,
    /// Rounds that were stored since the last response.
    unanswered: u32,
    /// Requests that came and are not stored yet. More are read once it is empty.
    arrived: Arrived,
    input_ended: bool,
    failed: Option<Status>,
}

/// An event that a stream waits for.
enum Event {
    Frame(Result<Option<Bytes>, Status>),
    Synced(Result<(), EngineError>),
    Stopping,
    Refused(Refusal),
    /// A pause is over.
    Resumed,
}

impl PublishStream {
    pub fn new(input: Input, stopping: watch::Receiver<bool>, publishing: Publishing) -> PublishStream {
        let (arrived, unanswered) = (Arrived::default(), 0);
        PublishStream { input, stopping, publishing, unanswered, arrived, input_ended: false, failed: None }
    }
}

impl Responder for PublishStream {
    async fn step(&mut self) -> Option<Result<FramedMessage, Status>> {
        loop {
            self.publishing.note_synced();
            if self.is_answer_due()
                && let Some(response) = self.publishing.tell(response)
            {
                self.unanswered = 0;
                return Some(Ok(response));
            }
            let waits = self.publishing.waits();
            if !waits && self.arrived.is_empty() {
                if let Some(failed) = self.failed.take() {
                    self.input_ended = true;
                    return Some(Err(failed));
                }
                if self.input_ended {
                    return None;
                }
            }
            let may_store = !self.arrived.is_empty() && !self.publishing.is_crowded();
            let advanced = if may_store { self.store().await } else { self.advance().await };
            if let Err(failed) = advanced {
                self.arrived.clear();
                self.input.done();
                self.failed.get_or_insert(failed);
                if waits && self.publishing.is_closed() {
                    self.publishing.forget_waiting();
                }
            }
        }
    }
}

impl PublishStream {
    fn is_answer_due(&self) -> bool {
        let is_long_ago = self.unanswered >= ROUNDS_ANSWERED_AT_ONCE;
        is_long_ago || self.arrived.is_empty() || self.publishing.is_crowded()
    }

    async fn store(&mut self) -> Result<(), Status> {
        self.unanswered = self.unanswered.saturating_add(1);
        self.publishing.store(&mut self.arrived).await?;
        if self.arrived.is_empty() {
            self.input.done();
        }
        Ok(())
    }

    /// Waits for the first of: more messages (unless it is paused), a sync, the broker's stop.
    async fn advance(&mut self) -> Result<(), Status> {
        if self.arrived.is_empty() {
            // Requests without messages are never stored.
            self.input.done();
        }
        let may_read = !self.input_ended && self.failed.is_none() && !self.publishing.is_crowded();
        let pause = if may_read { self.publishing.pause() } else { None };
        let reads = may_read && pause.is_none();
        let oldest = self.publishing.oldest_waiting();
        let synced = async {
            match &oldest {
                Some(places) => places.wait().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            frame = self.input.another(), if reads => Event::Frame(frame),
            result = synced => Event::Synced(result),
            () = until_stopped(&mut self.stopping), if may_read => Event::Stopping,
            refused = self.publishing.until_refused(), if may_read => Event::Refused(refused),
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => Event::Resumed,
        };
        match event {
            Event::Frame(frame) => {
                self.receive(frame);
                Ok(())
            }
            Event::Synced(Ok(())) | Event::Resumed => Ok(()),
            Event::Synced(Err(error)) => {
                self.publishing.forget_waiting();
                Err(status::of_engine(&error))
            }
            Event::Stopping => Err(status::stopping()),
            Event::Refused(refused) => Err(refused.into()),
        }
    }

    /// Takes in what has arrived.
    fn receive(&mut self, first: Result<Option<Bytes>, Status>) {
        let mut next = Some(first);
        let (mut count, mut bytes) = (0, 0);
        while let Some(frame) = next {
            match frame {
                Ok(Some(frame)) => {
                    count += 1;
                    bytes += frame.len();
                    if let Err(failed) = self.arrived.push(frame) {
                        self.failed.get_or_insert(failed);
                    }
                }
                Ok(None) => self.input_ended = true,
                Err(failed) => {
                    self.failed.get_or_insert(failed);
                }
            }
            let full = bytes >= REQUESTS_BYTES_MAX || count >= REQUESTS_MAX;
            if full || self.input_ended || self.failed.is_some() {
                break;
            }
            next = self.input.another().now_or_never();
        }
    }
}

fn response(decided: &Decided) -> FramedMessage {
    let rejected: Vec<(u64, u64, i32, &str)> = decided
        .rejected
        .iter()
        .map(|(first, last, refused)| (*first, *last, status::code_of(refused.kind) as i32, refused.text.as_str()))
        .collect();
    FramedMessage::of(16 + 16 * decided.confirmed.len(), |out| {
        encode_publish_response(out, &decided.confirmed, &decided.returned, &rejected);
    })
}
