//! The node of a broker in a test: on the loopback address, without TLS, with the settings that all these tests share.
#![allow(dead_code)]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_cluster::{Events, Node, NodeOptions};
use penstock_log::LogOptions;
use penstock_peers::{Secrets, Settings as PeerSettings, Timeouts};
use penstock_replica::{Boot, BrokerId, Settings};

pub fn start(broker: BrokerId, boot: Boot, replication: Settings, events: Arc<dyn Events>) -> Node {
    let peers = PeerSettings {
        broker,
        cluster: [1; 16],
        versions: Node::versions(),
        secrets: Secrets::new(vec!["secret".into()]),
        tls: None,
        frame_bytes_max: 4 << 20,
        timeouts: Timeouts::default(),
    };
    let options = NodeOptions { peers, boot, replication, disk_threads: 2, scrub_every: None };
    Node::start(options, TcpListener::bind("127.0.0.1:0").unwrap(), events).unwrap()
}

/// Small segments, so that a test can delete some.
pub fn log_options() -> LogOptions {
    LogOptions { segment_bytes_min: 4096, segment_bytes_max: 32 << 10, ..LogOptions::default() }
}

/// The time in microseconds: a number that is larger after each start.
pub fn micros() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}
