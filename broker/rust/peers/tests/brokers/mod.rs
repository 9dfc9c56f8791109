//! Brokers of a cluster that only have connections: they record what they hear.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_peers::{BrokerId, Frame, Link, Peers, Secrets, Settings, Timeouts, Tls, Traffic, Versions};
use tokio::runtime::Runtime;

/// Only ends a test that would otherwise never end.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Link(BrokerId, Link),
    Failed(BrokerId, String),
    Frame(BrokerId, Bytes),
}

#[derive(Default)]
pub struct Recorder {
    pub heard: Mutex<Vec<Heard>>,
    changed: Condvar,
    to_send: Mutex<HashMap<BrokerId, VecDeque<Frame>>>,
    pub asked: Mutex<usize>,
    /// While true, frames that come are not taken.
    pub holds: Mutex<bool>,
    released: Condvar,
}

impl Recorder {
    fn hear(&self, heard: Heard) {
        self.heard.lock().unwrap().push(heard);
        self.changed.notify_all();
    }

    /// Waits until `found` in all that was heard.
    pub fn wait<T>(&self, mut found: impl FnMut(&[Heard]) -> Option<T>) -> T {
        let until = Instant::now() + LIMIT;
        let mut heard = self.heard.lock().unwrap();
        loop {
            if let Some(found) = found(&heard) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it did not come; heard: {heard:?}");
            heard = self.changed.wait_timeout(heard, left).unwrap().0;
        }
    }

    pub fn wait_for(&self, expected: &Heard) {
        self.wait(|heard| heard.contains(expected).then_some(()));
    }

    pub fn wait_for_failure(&self, part: &str) {
        self.wait(|heard| {
            heard.iter().any(|heard| matches!(heard, Heard::Failed(_, text) if text.contains(part))).then_some(())
        });
    }

    /// Waits until a link has been in a state so many times.
    pub fn wait_for_links(&self, expected: Link, count: usize) {
        self.wait(|heard| {
            let came = heard.iter().filter(|heard| matches!(heard, Heard::Link(_, link) if *link == expected)).count();
            (came >= count).then_some(())
        });
    }

    pub fn release(&self) {
        *self.holds.lock().unwrap() = false;
        self.released.notify_all();
    }
}

impl Traffic for Recorder {
    fn next(&self, to: BrokerId) -> Option<Frame> {
        let frame = self.to_send.lock().unwrap().get_mut(&to)?.pop_front()?;
        *self.asked.lock().unwrap() += 1;
        Some(frame)
    }

    fn received(&self, from: BrokerId, frame: Bytes) {
        let mut holds = self.holds.lock().unwrap();
        while *holds {
            holds = self.released.wait(holds).unwrap();
        }
        self.hear(Heard::Frame(from, frame));
    }

    fn link(&self, broker: BrokerId, link: Link) {
        self.hear(Heard::Link(broker, link));
    }

    fn failed(&self, broker: BrokerId, reason: &str) {
        self.hear(Heard::Failed(broker, reason.to_owned()));
    }
}

/// A broker with threads of its own, so that dropping it ends all of it as a killed process does.
pub struct Broker {
    pub recorder: Arc<Recorder>,
    pub peers: Option<Peers>,
    pub runtime: Option<Runtime>,
    pub address: SocketAddr,
}

impl Broker {
    pub fn start(settings: Settings) -> Self {
        Self::start_at(settings, "127.0.0.1:0".parse().unwrap())
    }

    pub fn start_at(settings: Settings, address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let recorder = Arc::new(Recorder::default());
        let traffic: Arc<dyn Traffic> = Arc::clone(&recorder) as _;
        let listener = TcpListener::bind(address).unwrap();
        let peers = Peers::start(settings, 1, listener, traffic, runtime.handle()).unwrap();
        let address = peers.address();
        Self { recorder, peers: Some(peers), runtime: Some(runtime), address }
    }

    pub fn knows(&self, broker: BrokerId, other: &Broker) {
        self.peers.as_ref().unwrap().set(broker, &other.address.to_string());
    }

    pub fn send(&self, to: BrokerId, frames: impl IntoIterator<Item = Frame>) {
        self.recorder.to_send.lock().unwrap().entry(to).or_default().extend(frames);
        self.peers.as_ref().unwrap().wake(to);
    }

    /// Ends all of it at once, without a word to the others but what the kernel says for it.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(LIMIT);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.recorder.release();
        self.kill();
    }
}

pub fn settings(broker: BrokerId) -> Settings {
    let versions = Versions { protocol_lowest: 1, protocol_highest: 1, format: 2 };
    let secrets = Secrets::new(vec!["a secret".into()]);
    let timeouts = Timeouts { retry: Duration::from_millis(20), ..Timeouts::default() };
    Settings { broker, cluster: [3; 16], versions, secrets, tls: None, frame_bytes_max: 4 << 20, timeouts }
}

/// Two brokers that know each other.
pub fn pair(first: Settings, second: Settings) -> (Broker, Broker) {
    let (first_id, second_id) = (first.broker, second.broker);
    let (first, second) = (Broker::start(first), Broker::start(second));
    first.knows(second_id, &second);
    second.knows(first_id, &first);
    (first, second)
}

/// An authority, with what it has signed for the name `penstock`.
pub fn certificates() -> Tls {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["penstock".into()]).unwrap().signed_by(&key, &issuer).unwrap();
    Tls {
        authority: authority_certificate.pem(),
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        server_name: Some("penstock".into()),
    }
}
