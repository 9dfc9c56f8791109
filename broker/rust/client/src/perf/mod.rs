//! The load generator for gRPC, and the one for AMQP below it: native publishers and consumers, each on a connection of its own, on raw streams. Options and
//! the report are JSON, so that the command line can pass both through. Queues `perf-1`, `perf-2`, ... must exist;
//! messages go to them by the default exchange.
//!
//! Options: `targets`, `follows`, `authorization`, `vhost`, `size`, `batch`, `publishers`, `consumers`, `queues`, `in_flight`,
//! `seconds`, `messages`, `until_empty`, `level` ("os", "disk" or empty), `prefetch`, `ack_batch`, `rate` (for
//! `latency`), `stream` (the queues are streams: consumers read from the first message on, and settle nothing), `tls`.

mod amqp;
mod consume;
mod latency;
mod load;
mod options;
mod publish;
mod report;

pub use amqp::{amqp, interrupt};

use crate::runtime;
use options::Options;
use report::failed;

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
    use super::throughput;

    #[test]
    fn an_unknown_level_is_named_in_the_report() {
        assert!(throughput(r#"{"level": "paper"}"#).contains("'paper' is unknown"));
    }
}
