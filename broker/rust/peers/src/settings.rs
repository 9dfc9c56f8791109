//! Settings of the connections, and the secrets of the cluster.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ring::digest::{Digest, SHA256, digest};

/// The number of a broker in its cluster.
pub type BrokerId = u64;

/// Drawn when the cluster was made, so that brokers of two clusters do not mix by a wrong address.
pub type ClusterId = [u8; 16];

/// The versions that a broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub protocol_lowest: u16,
    pub protocol_highest: u16,
    /// The newest format of the log that it reads and writes.
    pub format: u16,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub broker: BrokerId,
    pub cluster: ClusterId,
    pub versions: Versions,
    pub secrets: Secrets,
    /// Plaintext if absent, which is possible on loopback addresses only.
    pub tls: Option<Tls>,
    pub frame_bytes_max: usize,
    pub timeouts: Timeouts,
}

/// Certificates as PEM. Each side shows its own, and asks for one that the authority has signed.
#[derive(Clone, Debug)]
pub struct Tls {
    pub authority: String,
    pub certificate: String,
    pub key: String,
    /// The name that certificates of the brokers have; the host that is dialled if absent.
    pub server_name: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection with its handshakes and greetings.
    pub connect: Duration,
    /// Between two attempts to connect.
    pub retry: Duration,
    /// A ping when nothing else came for that long.
    pub keepalive: Duration,
    /// A connection ends when a ping is not answered for that long.
    pub keepalive_timeout: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            retry: Duration::from_millis(100),
            // A broker that stands still loses its lead within three seconds or so: relayed clients should hear of it soon after.
            keepalive: Duration::from_secs(1),
            keepalive_timeout: Duration::from_secs(3),
        }
    }
}

/// The secrets of the cluster: the first is shown, all are accepted. To change one without a gap, accept the new one on all brokers,
/// show it on all, then drop the old one.
#[derive(Clone)]
pub struct Secrets(Arc<RwLock<Arc<[String]>>>);

impl Secrets {
    #[must_use]
    pub fn new(secrets: Vec<String>) -> Self {
        Self(Arc::new(RwLock::new(secrets.into())))
    }

    /// Replaces them for connections that are made from now on.
    pub fn set(&self, secrets: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = secrets.into();
    }

    pub(crate) fn shown(&self) -> Option<String> {
        self.all().first().cloned()
    }

    /// Compares digests, so that the time says nothing about the secret.
    pub(crate) fn accept(&self, shown: &[u8]) -> bool {
        let shown = hashed(shown);
        self.all().iter().any(|secret| hashed(secret.as_bytes()).as_ref() == shown.as_ref())
    }

    fn all(&self) -> Arc<[String]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Secrets({})", self.all().len())
    }
}

fn hashed(secret: &[u8]) -> Digest {
    digest(&SHA256, secret)
}
