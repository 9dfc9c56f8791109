//! Options of a run, and the methods that it calls.

use std::sync::Arc;
use std::time::Duration;

use penstock_wire::grpc::encode_settle_request;
use serde::Deserialize;

use crate::channel::{Channel, ChannelSettings, ChannelTls};
use crate::error::RpcError;

pub(crate) const PUBLISH: &str = "/penstock.v1.MessagingService/Publish";
pub(crate) const CONSUME: &str = "/penstock.v1.MessagingService/Consume";
pub(crate) const READ: &str = "/penstock.v1.StreamService/Read";
const SETTLE: &str = "/penstock.v1.MessagingService/Settle";
/// The outcome's number in a settlement.
const ACK: u32 = 1;
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    pub targets: Vec<String>,
    pub follows: bool,
    pub authorization: String,
    pub vhost: String,
    pub size: usize,
    pub batch: u64,
    pub publishers: usize,
    pub consumers: usize,
    pub queues: usize,
    pub in_flight: u64,
    pub seconds: Option<f64>,
    pub messages: Option<u64>,
    pub until_empty: bool,
    pub level: Option<String>,
    pub prefetch: u32,
    pub ack_batch: u64,
    pub rate: f64,
    pub tls: Option<ChannelTls>,
    pub stream: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            targets: vec!["127.0.0.1:5680".to_owned()],
            follows: true,
            authorization: String::new(),
            vhost: "/".to_owned(),
            size: 16,
            batch: 100,
            publishers: 1,
            consumers: 1,
            queues: 1,
            in_flight: 1_000,
            seconds: None,
            messages: None,
            until_empty: false,
            level: None,
            prefetch: 4_000,
            ack_batch: 1,
            rate: 1_000.0,
            tls: None,
            stream: false,
        }
    }
}

impl Options {
    /// Parses options; meaningless numbers become the smallest valid ones.
    pub fn parse(json: &str) -> Result<Self, String> {
        let mut options: Self =
            serde_json::from_str(json).map_err(|error| format!("the options cannot be read: {error}"))?;
        options.batch = options.batch.max(1);
        options.in_flight = options.in_flight.max(1);
        options.queues = options.queues.max(1);
        options.prefetch = options.prefetch.max(1);
        options.ack_batch = options.ack_batch.clamp(1, u64::from(options.prefetch).div_ceil(2));
        if options.seconds.is_none() && options.messages.is_none() && !options.until_empty {
            options.seconds = Some(5.0);
        }
        options.level_number()?;
        Ok(options)
    }

    pub fn level_number(&self) -> Result<u32, String> {
        match self.level.as_deref() {
            None | Some("" | "default") => Ok(0),
            Some("os") => Ok(1),
            Some("disk") => Ok(2),
            Some(other) => Err(format!("the level '{other}' is unknown; it is os or disk")),
        }
    }

    /// The same, with the target first that leads the virtual host: a stream of this module begins once.
    pub async fn at_leader(mut self) -> Self {
        let Ok(channel) = self.channel() else { return self };
        let mut nothing = Vec::new();
        encode_settle_request(&mut nothing, &self.vhost, &self.queue(0), ACK, []);
        let leader = channel.find_leader(SETTLE, nothing, LEADER_TIMEOUT).await;
        self.targets.retain(|target| *target != leader);
        self.targets.insert(0, leader);
        self
    }

    pub fn channel(&self) -> Result<Arc<Channel>, RpcError> {
        let settings = ChannelSettings {
            targets: self.targets.clone(),
            follows: self.follows,
            vhost: self.vhost.clone(),
            authorization: self.authorization.clone(),
            connect_timeout_ms: 5_000,
            message_bytes_max: self.size.max(1 << 20) * 2,
            tls: self.tls.clone(),
        };
        Channel::new(&settings).map(Arc::new)
    }

    pub fn queue(&self, index: usize) -> String {
        format!("perf-{}", index % self.queues + 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Options;

    #[test]
    fn options_left_out_have_defaults() {
        let options = Options::parse(r#"{"size": 100, "seconds": null, "level": "os"}"#).unwrap();

        assert_eq!((options.size, options.batch, options.seconds), (100, 100, Some(5.0)));
        assert_eq!(options.level_number(), Ok(1));
        assert_eq!((options.queue(0), options.queue(1)), ("perf-1".to_owned(), "perf-1".to_owned()));
    }
}
