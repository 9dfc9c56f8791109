//! TLS for the listener: what certificate files say, as rustls wants it, and the names it is served under.
//!
//! What must stay true: a key that does not belong to its certificate, or bytes that are none, are refused here and never
//! at a handshake. It knows no files: whoever reads them gives their bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

const TLS13_ONLY: &[&SupportedProtocolVersion] = &[&TLS13];
const TLS12_AND_13: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// A certificate's chain, its own certificate first, and its key; both PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

/// What clients show.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    /// The authorities that sign them, PEM.
    pub authorities: Vec<u8>,
    /// Whether a client without one is refused.
    pub required: bool,
    /// Whether they say who the user is.
    pub name_users: bool,
}

/// Everything that a listener presents and asks for.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    pub certificate: Certificate,
    /// Further ones for clients that ask for a host by name (SNI); `*.` in front stands for one label.
    pub named: Vec<(String, Certificate)>,
    pub clients: Option<ClientCertificates>,
    /// Refuse TLS 1.2.
    pub only_13: bool,
}

/// Why options cannot be used: which of them, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct TlsError {
    what: String,
    why: String,
}

impl TlsError {
    fn new(what: &str, why: impl ToString) -> TlsError {
        TlsError { what: what.to_owned(), why: why.to_string() }
    }
}

/// Options that were checked and can be served.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// Whether the certificates of clients name users.
    pub(crate) names_users: bool,
}

impl Tls {
    /// # Errors
    /// Names the certificate, key or authorities that cannot be used.
    pub fn new(options: &TlsOptions) -> Result<Tls, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let names = Names::read(options, &provider)?;
        let versions = if options.only_13 { TLS13_ONLY } else { TLS12_AND_13 };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).map_err(|error| TlsError::new("the version", error))?;
        let builder = match &options.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities(clients)?, provider);
                let verifier = if clients.required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|error| TlsError::new("the authorities of clients", error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let names_users = options.clients.as_ref().is_some_and(|clients| clients.name_users);
        Ok(Tls { config: Arc::new(builder.with_cert_resolver(Arc::new(names))), names_users })
    }

    /// The same for a protocol of these names (ALPN).
    pub(crate) fn named(&self, alpn: &[&[u8]]) -> Tls {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Tls { config: Arc::new(config), names_users: self.names_users }
    }
}

fn authorities(clients: &ClientCertificates) -> Result<Arc<RootCertStore>, TlsError> {
    let what = "the authorities of clients";
    let mut roots = RootCertStore::empty();
    for found in certificates(what, &clients.authorities)? {
        roots.add(found).map_err(|error| TlsError::new(what, error))?;
    }
    Ok(Arc::new(roots))
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| TlsError::new(what, error))?;
    if found.is_empty() { Err(TlsError::new(what, "there is no PEM certificate in it")) } else { Ok(found) }
}

/// The certificates by the names that clients ask for.
#[derive(Debug)]
struct Names {
    unnamed: Arc<CertifiedKey>,
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
}

impl Names {
    fn read(options: &TlsOptions, provider: &CryptoProvider) -> Result<Names, TlsError> {
        let unnamed = certified("the certificate", &options.certificate, provider)?;
        let mut by_name = BTreeMap::new();
        for (name, certificate) in &options.named {
            let key = certified(&format!("the certificate for {name}"), certificate, provider)?;
            by_name.insert(name.to_ascii_lowercase(), key);
        }
        Ok(Names { unnamed, by_name })
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        self.by_name.get(name).or_else(wildcard).unwrap_or(&self.unnamed)
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = hello.server_name().map_or(&self.unnamed, |name| self.find(&name.to_ascii_lowercase()));
        Some(Arc::clone(found))
    }
}

fn certified(what: &str, certificate: &Certificate, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(what, &certificate.chain)?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key)
        .map_err(|error| TlsError::new(&format!("the key of {what}"), error))?;
    let found = CertifiedKey::from_der(chain, key, provider);
    found.map(Arc::new).map_err(|error| TlsError::new(what, error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};

    use super::*;

    fn made(name: &str) -> Certificate {
        let Made { cert, signing_key } = generate_simple_self_signed([name.to_owned()]).unwrap();
        Certificate { chain: cert.pem().into_bytes(), key: signing_key.serialize_pem().into_bytes() }
    }

    fn options(certificate: Certificate) -> TlsOptions {
        TlsOptions { certificate, named: Vec::new(), clients: None, only_13: false }
    }

    fn refusal(options: &TlsOptions) -> String {
        Tls::new(options).unwrap_err().to_string()
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let mixed = Certificate { key: made("localhost").key, ..made("localhost") };

        assert!(refusal(&options(mixed)).starts_with("the certificate: "));
    }

    #[test]
    fn what_is_no_certificate_or_key_is_refused_by_name() {
        let good = made("localhost");
        let no_chain = Certificate { chain: b"nothing".to_vec(), ..good.clone() };
        let no_key = Certificate { key: b"nothing".to_vec(), ..good.clone() };
        let clients = Some(ClientCertificates { authorities: Vec::new(), required: true, name_users: false });

        assert_eq!(refusal(&options(no_chain)), "the certificate: there is no PEM certificate in it");
        assert!(refusal(&options(no_key)).starts_with("the key of the certificate: "));
        assert!(refusal(&TlsOptions { clients, ..options(good) }).starts_with("the authorities of clients: "));
    }

    #[test]
    fn a_name_finds_its_certificate_then_a_wildcard_then_the_unnamed_one() {
        let named = ["a.example.com", "*.example.com"].map(|name| (name.to_owned(), made(name)));
        let options = TlsOptions { named: named.to_vec(), ..options(made("localhost")) };
        let names = Names::read(&options, &ring::default_provider()).unwrap();
        let of = |name: &str| names.find(name).cert.first().unwrap().clone();

        assert_eq!(of("a.example.com"), names.by_name["a.example.com"].cert[0]);
        assert_eq!(of("b.example.com"), names.by_name["*.example.com"].cert[0]);
        assert_eq!(of("b.c.example.com"), names.unnamed.cert[0]);
        assert_eq!(of("localhost"), names.unnamed.cert[0]);
    }
}
