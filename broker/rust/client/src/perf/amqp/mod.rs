//! The load generator for AMQP 0-9-1. It needs nothing but an address, and works with any broker: each publisher and each consumer is
//! a thread with a connection of its own.
//!
//! What must stay true: queues have names that no other run uses, and are deleted at the end, also after an interruption. Buffers have
//! fixed sizes, and what is kept of messages is bounded by the window of unconfirmed ones.
//!
//! Options: `host`, `port`, `user`, `password`, `vhost`, `size`, `publishers`, `consumers`, `queues`, `quorum` (whether they are quorum
//! queues), `rate` (messages a second of all publishers), `in_flight` (most unconfirmed messages of a publisher; 0: no confirms),
//! `auto_ack`, `ack_batch`, `prefetch`, `persistent`, `seconds`, `messages`, `pid` (of the broker, whose processor time is reported for
//! each message).

mod consume;
mod figures;
mod interruption;
mod link;
mod login;
mod options;
mod processor;
mod publish;
mod run;
mod template;
mod unconfirmed;

pub use interruption::interrupt;
use options::Options;

use super::report::failed;

/// Publishes and consumes over AMQP: JSON options in, JSON report out. `latency_us` is the confirm's round trip, `end_to_end_us` the
/// way from publisher to consumer.
pub fn amqp(options: &str) -> String {
    interruption::begin();
    match Options::parse(options).and_then(run::run) {
        Ok(report) => report,
        Err(error) => failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::amqp;

    #[test]
    fn a_broker_that_is_not_there_is_an_error_in_the_report() {
        // Nothing listens on the port of discard.
        let report = amqp(r#"{"host": "127.0.0.1", "port": 9}"#);

        assert!(report.contains("cannot connect to 127.0.0.1:9"), "{report}");
    }
}
