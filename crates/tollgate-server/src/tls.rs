//! TLS for all listeners.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tollgate_policy::Tls;

/// What each listener greets with: the same certificate, and its own protocol.
#[derive(Clone)]
pub(crate) struct Acceptors {
    pub(crate) http: TlsAcceptor,
    pub(crate) grpc: TlsAcceptor,
    pub(crate) resp: TlsAcceptor,
    pub(crate) gateway: TlsAcceptor,
}

/// Reads the certificate and its key.
pub(crate) fn acceptors(tls: &Tls) -> Result<Acceptors, String> {
    let refused = |file: &str, error: &dyn std::fmt::Display| format!("tls {file}: {error}");
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&tls.cert_file)
        .and_then(Iterator::collect)
        .map_err(|error| refused(&tls.cert_file, &error))?;
    if certificates.is_empty() {
        return Err(refused(
            &tls.cert_file,
            &"no certificate in it; it should have a PEM chain, the server's own first",
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key_file).map_err(|error| refused(&tls.key_file, &error))?;
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&tls.cert_file, &error))?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(|error| refused(&tls.key_file, &error))?;
    let resp = TlsAcceptor::from(Arc::new(config.clone()));
    let [http, grpc] = ["http/1.1", "h2"].map(|protocol| {
        config.alpn_protocols = vec![protocol.into()];
        TlsAcceptor::from(Arc::new(config.clone()))
    });
    config.alpn_protocols = vec!["h2".into(), "http/1.1".into()];
    let gateway = TlsAcceptor::from(Arc::new(config));
    Ok(Acceptors { http, grpc, resp, gateway })
}
