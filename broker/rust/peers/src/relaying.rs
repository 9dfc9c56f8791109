//! Relays to other brokers: connections of their own, so that no client holds up a frame, each for some of the relays.

pub(crate) mod codec;
pub(crate) mod seats;
pub(crate) mod service;
pub(crate) mod tunnel;

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::dialing::{Ended, open};
use crate::links::{Addresses, lock};
use crate::relaying::codec::{ENCODED_BYTES_MAX, RELAY_PATH, RelayCodec, RelayedClient, put_headers};
use crate::relaying::seats::Seats;
use crate::relaying::tunnel::{Tunnel, tunnel};
use crate::session::text_of;
use crate::settings::{BrokerId, Settings};

/// Relays that share a connection. The next one makes another connection.
const RELAYS_OF_CONNECTION: usize = 128;

/// The connections for relays to one broker, at one address. Whoever opens one waits for those before.
#[derive(Default)]
struct Lines {
    address: String,
    lines: Vec<Line>,
}

/// A connection, and the relays on it.
#[derive(Clone)]
struct Line {
    channel: Channel,
    count: Arc<AtomicUsize>,
}

/// A relay's place on a connection, until this is dropped.
struct OnLine(Arc<AtomicUsize>);

impl Drop for OnLine {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the module.
pub(crate) struct Relaying {
    pub settings: Arc<Settings>,
    pub addresses: Addresses,
    pub seats: Arc<Seats>,
    brokers: Mutex<HashMap<BrokerId, Arc<tokio::sync::Mutex<Lines>>>>,
}

impl Relaying {
    pub fn new(settings: Arc<Settings>, addresses: Addresses, seats: Arc<Seats>) -> Self {
        Self { settings, addresses, seats, brokers: Mutex::default() }
    }

    /// The broker is not of the cluster any more.
    pub fn forget(&self, broker: BrokerId) {
        lock(&self.brokers).remove(&broker);
    }

    /// Begins a relay. Its tasks run where this is called.
    pub async fn open(&self, broker: BrokerId, client: RelayedClient) -> Result<Tunnel> {
        let address = self.addresses.of(broker).ok_or_else(|| Error::new(ErrorKind::NotFound, "no such broker"))?;
        let seat = self
            .seats
            .take()
            .ok_or_else(|| Error::new(ErrorKind::QuotaExceeded, "this broker relays as many connections as it may"))?;
        let limit = self.settings.timeouts.connect;
        let unanswered = || Error::new(ErrorKind::TimedOut, format!("{address} did not answer"));
        let (line, place) = timeout(limit, self.line(broker, &address)).await.map_err(|_| unanswered())??;
        let (tunnel, outgoing, receiver) = tunnel(seat);
        let mut request = Request::new(outgoing);
        put_headers(request.metadata_mut(), &self.settings, &client)
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the cluster's secret cannot be sent in a header"))?;
        let mut grpc = Grpc::new(line.channel.clone()).max_decoding_message_size(ENCODED_BYTES_MAX);
        let begun = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(RELAY_PATH);
            Ok::<_, Status>(grpc.streaming(request, path, RelayCodec).await?.into_inner())
        };
        let messages = match timeout(limit, begun).await {
            Ok(Ok(messages)) => messages,
            Ok(Err(status)) => {
                if status.code() == Code::Unavailable {
                    self.leave(broker, &line).await;
                }
                return Err(failed(&address, &status));
            }
            Err(_) => {
                self.leave(broker, &line).await;
                return Err(unanswered());
            }
        };
        tokio::spawn(async move {
            let _place = place;
            receiver.run(messages).await;
        });
        Ok(tunnel)
    }

    /// A connection with a place for one more relay, and that place.
    async fn line(&self, broker: BrokerId, address: &str) -> Result<(Line, OnLine)> {
        let lines = Arc::clone(lock(&self.brokers).entry(broker).or_default());
        let mut lines = lines.lock().await;
        if lines.address != address {
            *lines = Lines { address: address.to_owned(), lines: Vec::new() };
        }
        let free = |line: &&Line| line.count.load(Ordering::Acquire) < RELAYS_OF_CONNECTION;
        let line = match lines.lines.iter().find(free) {
            Some(line) => line.clone(),
            None => {
                let channel = open(&self.settings, address).await.map_err(|ended| match ended {
                    Ended::Refused(reason) => Error::new(ErrorKind::ConnectionRefused, reason),
                    Ended::Failed(reason) => Error::other(reason),
                })?;
                let line = Line { channel, count: Arc::default() };
                // Connections that no relay is on any more are closed.
                lines.lines.retain(|line| line.count.load(Ordering::Acquire) > 0);
                lines.lines.push(line.clone());
                line
            }
        };
        line.count.fetch_add(1, Ordering::AcqRel);
        let place = OnLine(Arc::clone(&line.count));
        Ok((line, place))
    }

    /// Uses a connection for no other relay.
    async fn leave(&self, broker: BrokerId, line: &Line) {
        let lines = lock(&self.brokers).get(&broker).map(Arc::clone);
        if let Some(lines) = lines {
            lines.lock().await.lines.retain(|other| !Arc::ptr_eq(&other.count, &line.count));
        }
    }
}

fn failed(address: &str, status: &Status) -> Error {
    let kind = match status.code() {
        Code::Unimplemented => ErrorKind::Unsupported,
        Code::ResourceExhausted => ErrorKind::QuotaExceeded,
        Code::Unauthenticated | Code::FailedPrecondition | Code::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::ConnectionAborted,
    };
    Error::new(kind, format!("{address}: {}", text_of(status)))
}
