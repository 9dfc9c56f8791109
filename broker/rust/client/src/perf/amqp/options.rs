//! Options of a run over AMQP.

use serde::Deserialize;

/// Smallest share of the prefetch that a consumer leaves unacked at once, so that the broker never waits for an ack.
const ACK_SHARES: u64 = 2;

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Options {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub vhost: String,
    pub size: usize,
    pub publishers: usize,
    pub consumers: usize,
    pub queues: usize,
    pub quorum: bool,
    pub rate: Option<f64>,
    pub in_flight: u64,
    pub auto_ack: bool,
    pub ack_batch: u64,
    pub prefetch: u16,
    pub persistent: bool,
    pub seconds: Option<f64>,
    pub messages: Option<u64>,
    pub pid: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 5672,
            user: "guest".to_owned(),
            password: "guest".to_owned(),
            vhost: "/".to_owned(),
            size: 16,
            publishers: 1,
            consumers: 1,
            queues: 1,
            quorum: false,
            rate: None,
            in_flight: 1_000,
            auto_ack: false,
            ack_batch: 100,
            prefetch: 4_000,
            persistent: false,
            seconds: None,
            messages: None,
            pid: None,
        }
    }
}

impl Options {
    /// Parses options; meaningless numbers become the smallest valid ones.
    pub fn parse(json: &str) -> Result<Self, String> {
        let mut options: Self =
            serde_json::from_str(json).map_err(|error| format!("the options cannot be read: {error}"))?;
        options.queues = options.queues.max(1);
        let unacked_max = if options.prefetch == 0 { u64::MAX } else { u64::from(options.prefetch) };
        options.ack_batch = options.ack_batch.clamp(1, unacked_max.div_ceil(ACK_SHARES));
        options.rate = options.rate.filter(|rate| *rate > 0.0);
        if options.seconds.is_none() && options.messages.is_none() {
            options.seconds = Some(5.0);
        }
        Ok(options)
    }

    /// How many messages a publisher sends.
    pub fn quota(&self, index: usize) -> u64 {
        let Some(messages) = self.messages else { return u64::MAX };
        let publishers = self.publishers.max(1) as u64;
        messages / publishers + u64::from((index as u64) < messages % publishers)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::Options;

    #[test]
    fn a_consumer_acks_before_its_prefetch_is_used_up() {
        let parsed = |json: &str| Options::parse(json).unwrap().ack_batch;

        assert_eq!(parsed(r#"{"ack_batch": 100, "prefetch": 10}"#), 5);
        assert_eq!(parsed(r#"{"ack_batch": 100, "prefetch": 1}"#), 1);
        assert_eq!(parsed(r#"{"ack_batch": 100, "prefetch": 0}"#), 100);
        assert_eq!(parsed(r#"{"ack_batch": 0}"#), 1);
    }

    #[test]
    fn messages_are_shared_among_publishers() {
        let options = Options::parse(r#"{"messages": 10, "publishers": 3}"#).unwrap();

        assert_eq!((0..3).map(|index| options.quota(index)).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(options.seconds, None, "it is not cut short");
    }
}
