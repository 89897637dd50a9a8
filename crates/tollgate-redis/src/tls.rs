//! TLS to a store: who vouches for its servers. It brings its own cryptography (`ring`), so it
//! neither needs nor disturbs what a process has chosen for others.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::options::{StoreError, Tls};

/// Reads the certificates, once: a file that is changed later is read by the next process.
pub(crate) fn connector(tls: &Tls) -> Result<TlsConnector, StoreError> {
    let roots = match &tls.ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has all that these versions need")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots_of(path: &Path) -> Result<RootCertStore, StoreError> {
    let error = |why: String| StoreError::CaFile { path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|problem| error(problem.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|problem| error(problem.to_string()))?;
        roots.add(certificate).map_err(|problem| error(problem.to_string()))?;
    }
    if roots.is_empty() {
        return Err(error("it has no certificate".to_owned()));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, StoreError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some systems have certificates that rustls can't read; one that it can is enough.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(StoreError::NoRoots(why.join(", ")));
    }
    Ok(roots)
}
