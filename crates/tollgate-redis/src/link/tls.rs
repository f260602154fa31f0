//! Certificates: those that we show and trust, and what is wrong with them, in words.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore, crypto};

use super::settings::{SettingsError, Tls, refused_file};

/// How TLS is spoken.
#[derive(Clone)]
pub(super) struct TlsClient {
    pub(super) connector: TlsConnector,
    pub(super) has_certificate: bool, // of its own
}

impl TlsClient {
    pub(super) fn new(tls: Option<&Tls>) -> Result<Self, SettingsError> {
        let none = Tls::default();
        let tls = tls.unwrap_or(&none);
        let roots = match &tls.ca_file {
            Some(file) => roots_of(file)?,
            None => system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused_file(Path::new("TLS"), &error))?
            .with_root_certificates(roots);
        let config = match (&tls.cert_file, &tls.key_file) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert_file), Some(key_file)) => {
                let key =
                    PrivateKeyDer::from_pem_file(key_file).map_err(|error| refused_file(key_file, &error))?;
                let built = builder.with_client_auth_cert(certificates(cert_file)?, key);
                built.map_err(|error| refused_pair(cert_file, key_file, &error))?
            }
            _ => {
                return Err(SettingsError::Contradiction(
                    "a certificate needs its key, and a key its certificate",
                ));
            }
        };
        let has_certificate = tls.cert_file.is_some();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), has_certificate })
    }

    /// Why there is no TLS with a server.
    pub(super) fn refused(&self, error: &io::Error) -> String {
        match error.get_ref().and_then(|error| error.downcast_ref()) {
            Some(Error::InvalidCertificate(error)) => {
                format!("TLS: the server's certificate {}", fault(error))
            }
            Some(Error::InvalidMessage(_)) => {
                "TLS: the server speaks something else; without TLS its URL begins with `redis://`".to_owned()
            }
            _ => format!("TLS: {error}{}", self.hint()),
        }
    }

    /// What may be wrong when a server breaks off: some tell only afterwards that they ask for a certificate, or not at all.
    pub(super) fn hint(&self) -> &'static str {
        if self.has_certificate {
            ""
        } else {
            "; does the server ask for a certificate? `cert_file` and `key_file` name ours"
        }
    }
}

fn refused_pair(cert_file: &Path, key_file: &Path, error: &Error) -> SettingsError {
    match error {
        Error::InvalidCertificate(error) => {
            refused_file(cert_file, &format!("the certificate {}", fault(error)))
        }
        Error::InconsistentKeys(_) => {
            let cert_file = cert_file.display();
            refused_file(key_file, &format!("`key_file` is not the key of `cert_file`, {cert_file}"))
        }
        error => refused_file(key_file, error),
    }
}

/// What is wrong with a certificate.
fn fault(error: &CertificateError) -> String {
    match error {
        // The latter where an authority of ours has the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is signed by nobody whom we trust; `ca_file` names who may".to_owned()
        }
        // The library tells these by their names only.
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "is that of an authority (`basicConstraints=CA:TRUE`); a server's, also one that \
                 has signed itself, needs `CA:FALSE`"
                    .to_owned()
            }
            "UnsupportedCertVersion" => {
                "is not of X.509 version 3; `openssl x509 -req` makes such with `-extfile`".to_owned()
            }
            other => format!("is refused: {other}"),
        },
        error => format!("is refused: {error}"),
    }
}

fn roots_of(file: &Path) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| refused_file(file, &error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    // Some that cannot be used are usual, and others are enough.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(SettingsError::Contradiction(
            "the system trusts no certificates; a CA file must be given",
        ));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| refused_file(file, &error))?;
    if certificates.is_empty() {
        return Err(refused_file(file, &"no certificate in it; it should have some in PEM"));
    }
    Ok(certificates)
}
