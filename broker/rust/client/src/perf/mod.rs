//! The load generator: native publishers and consumers, each on a connection of its own, on raw streams. Options and
//! the report are JSON, so that the command line can pass both through. Queues `perf-1`, `perf-2`, ... must exist;
//! messages go to them by the default exchange.
//!
//! Options: `target`, `authorization`, `vhost`, `size`, `batch`, `publishers`, `consumers`, `queues`, `in_flight`,
//! `seconds`, `messages`, `until_empty`, `level` ("os", "disk" or empty), `prefetch`, `ack_batch`, `rate` (for
//! `latency`), `stream` (the queues are streams: consumers read from the first message on, and settle nothing), `tls`.

mod consume;
mod latency;
mod load;
mod publish;
mod report;

use serde::Deserialize;

use crate::channel::{Channel, ChannelSettings, ChannelTls};
use crate::error::RpcError;
use crate::runtime;
use report::failed;

pub(crate) const PUBLISH: &str = "/penstock.v1.MessagingService/Publish";
pub(crate) const CONSUME: &str = "/penstock.v1.MessagingService/Consume";
pub(crate) const READ: &str = "/penstock.v1.StreamService/Read";

#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
struct Options {
    target: String,
    authorization: String,
    vhost: String,
    size: usize,
    batch: u64,
    publishers: usize,
    consumers: usize,
    queues: usize,
    in_flight: u64,
    seconds: Option<f64>,
    messages: Option<u64>,
    until_empty: bool,
    level: Option<String>,
    prefetch: u32,
    ack_batch: u64,
    rate: f64,
    tls: Option<ChannelTls>,
    stream: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            target: "127.0.0.1:5680".to_owned(),
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
    fn parse(json: &str) -> Result<Self, String> {
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

    fn level_number(&self) -> Result<u32, String> {
        match self.level.as_deref() {
            None | Some("" | "default") => Ok(0),
            Some("os") => Ok(1),
            Some("disk") => Ok(2),
            Some(other) => Err(format!("the level '{other}' is unknown; it is os or disk")),
        }
    }

    fn channel(&self) -> Result<Channel, RpcError> {
        Channel::new(&ChannelSettings {
            target: self.target.clone(),
            authorization: self.authorization.clone(),
            connect_timeout_ms: 5_000,
            message_bytes_max: self.size.max(1 << 20) * 2,
            tls: self.tls.clone(),
        })
    }

    fn queue(&self, index: usize) -> String {
        format!("perf-{}", index % self.queues + 1)
    }
}

/// Publishes and consumes as fast as possible: JSON options in, JSON report out.
pub fn throughput(options: &str) -> String {
    let options = match Options::parse(options) {
        Ok(options) => options,
        Err(error) => return failed(error),
    };
    match runtime::handle() {
        Ok(runtime) => runtime.block_on(load::run(options)),
        Err(error) => failed(error.to_string()),
    }
}

/// Publishes one message at a time, `rate` a second: JSON options in, JSON report out. `latency_us` is the confirm's round
/// trip, `end_to_end_us` the way to a consumer (when there is one).
pub fn latency(options: &str) -> String {
    let options = match Options::parse(options) {
        Ok(options) => options,
        Err(error) => return failed(error),
    };
    match runtime::handle() {
        Ok(runtime) => runtime.block_on(latency::run(options)),
        Err(error) => failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_left_out_have_defaults() {
        let options = Options::parse(r#"{"size": 100, "seconds": null, "level": "os"}"#).unwrap();

        assert_eq!((options.size, options.batch, options.seconds), (100, 100, Some(5.0)));
        assert_eq!(options.level_number(), Ok(1));
        assert_eq!((options.queue(0), options.queue(1)), ("perf-1".to_owned(), "perf-1".to_owned()));
    }

    #[test]
    fn an_unknown_level_is_named_in_the_report() {
        assert!(throughput(r#"{"level": "paper"}"#).contains("'paper' is unknown"));
    }
}
