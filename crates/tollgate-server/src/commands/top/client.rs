//! How the service is called: HTTP/1.1, over TLS for `https://`.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::text::shown;

/// How long a connection and the head of an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest answer that is not a stream.
const MOST_BYTES: usize = 8 << 20;

/// The largest token file.
const MOST_TOKEN_BYTES: u64 = 64 << 10;

/// Where the service is.
#[derive(Clone)]
pub(super) struct Server {
    /// The URL without a slash at its end.
    pub(super) url: String,
    host: String,
    port: u16,
    authority: String,
    prefix: String,
    tls: Option<TlsConnector>,
    token_file: Option<PathBuf>,
}

/// The body of an answer with an error status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Problem {
    detail: String,
}

impl Server {
    /// Reads a URL such as `http://127.0.0.1:8080`.
    pub(super) fn new(url: &str, token_file: Option<PathBuf>) -> Result<Self, String> {
        let refused = |why: &str| {
            format!(
                "--url {}: {why}. Write a URL such as http://127.0.0.1:8080 or https://limits.example.com",
                shown(url)
            )
        };
        let uri: Uri = url.parse().map_err(|_| refused("this is not a URL"))?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| refused("it has no host"))?;
        if authority.as_str().contains('@') {
            // The URL may have a password, which is not printed.
            return Err("--url: the URL must not have a user: pass a token with --token-file".to_owned());
        }
        if uri.query().is_some() {
            return Err(refused("the URL must not have a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let tls = if is_https { Some(tls_connector()?) } else { None };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            host,
            port,
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls,
            token_file,
        })
    }

    /// The host and the port.
    pub(super) fn address(&self) -> &str {
        &self.authority
    }

    /// A GET, and an answer with a status of 200.
    pub(super) async fn get(&self, target: &str) -> Result<Response<Incoming>, String> {
        let late = || format!("{} does not answer within {} seconds", self.url, PATIENCE.as_secs());
        let response = timeout(PATIENCE, self.send(target)).await.map_err(|_| late())??;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let body = timeout(PATIENCE, Limited::new(response.into_body(), MOST_BYTES).collect()).await;
        let body =
            body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let detail = serde_json::from_slice::<Problem>(&body).unwrap_or_default().detail;
        Err(self.refusal(status, &shown(&detail)))
    }

    /// A GET whose answer is JSON.
    pub(super) async fn json<T: DeserializeOwned>(&self, target: &str) -> Result<T, String> {
        let response = self.get(target).await?;
        let body = timeout(PATIENCE, Limited::new(response.into_body(), MOST_BYTES).collect()).await;
        let body = body.map_err(|_| format!("{}: the answer did not end in time", self.url))?;
        let body = body.map_err(|error| shown(&format!("{}{target}: {error}", self.url)))?;
        serde_json::from_slice(&body.to_bytes())
            .map_err(|error| shown(&format!("{}{target}: {error}", self.url)))
    }

    /// Opens the stream of events.
    pub(super) async fn events(&self) -> Result<Incoming, String> {
        let response = self.get("/v1/events").await?;
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("nothing");
        if !kind.starts_with("text/event-stream") {
            return Err(format!(
                "{}/v1/events answers with {}, not with text/event-stream: is this the HTTP listener of Tollgate?",
                self.url,
                shown(kind)
            ));
        }
        Ok(response.into_body())
    }

    /// Why an answer is not what was wanted, and what helps.
    fn refusal(&self, status: StatusCode, detail: &str) -> String {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        let help = match status.as_u16() {
            401 if self.token_file.is_some() => {
                "\nhelp: --token-file must have the token of `admin: { token_file: … }`"
            }
            401 => "\nhelp: pass --token-file",
            403 => "\nhelp: use a loopback address, or add the name of the host to `listen: { hosts: […] }`",
            404 => "\nhelp: use the HTTP listener of a `tollgate serve` that has GET /v1/events",
            _ => "",
        };
        format!("{} answers {}{detail}{help}", self.url, status.as_u16())
    }

    async fn send(&self, target: &str) -> Result<Response<Incoming>, String> {
        let token = self.token()?;
        let stream = self.connect(token.is_some()).await?;
        match &self.tls {
            None => self.send_over(stream, target, token).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|_| format!("`{}` cannot be the name of a certificate", shown(&self.host)))?;
                let stream = tls.connect(name, stream).await.map_err(|error| {
                    let text = error.to_string();
                    let help = match text.contains("certificate") {
                        true => "\nhelp: SSL_CERT_FILE names the certificates to trust instead of those of the system",
                        false => "",
                    };
                    // The part behind a brace is details in numbers.
                    let text = text.split(" {").next().unwrap_or_default();
                    format!("{}: TLS: {}{help}", self.url, shown(text))
                })?;
                self.send_over(stream, target, token).await
            }
        }
    }

    async fn connect(&self, has_token: bool) -> Result<TcpStream, String> {
        let address = (self.host.as_str(), self.port);
        let found = tokio::net::lookup_host(address).await;
        let found: Vec<SocketAddr> =
            found.map_err(|error| format!("{}: {error}", shown(&self.authority)))?.collect();
        if has_token && self.tls.is_none() && !found.iter().all(|address| address.ip().is_loopback()) {
            return Err(format!(
                "{}: a token is not sent unencrypted to another machine. Use https://, or forward a local port, as \
                 with `ssh -L` or `kubectl port-forward`",
                shown(&self.url)
            ));
        }
        let mut refused = String::from("the name has no address");
        for address in found {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    refused = format!(
                        "nothing listens on {address}: start the service with `tollgate serve`, or pass its address \
                         with --url"
                    );
                }
                Err(error) => refused = format!("{address}: {error}"),
            }
        }
        Err(refused)
    }

    async fn send_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        target: &str,
        token: Option<String>,
    ) -> Result<Response<Incoming>, String> {
        let failed = |error: hyper::Error| {
            let source =
                std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            shown(&format!("{}: no answer in HTTP: {error}{source}", self.url))
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // It ends with the answer.
        tokio::spawn(connection);
        let mut request = Request::get(format!("{}{target}", self.prefix))
            .header(HOST, &self.authority)
            .header(ACCEPT, "text/event-stream, application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| match self.token_file {
            Some(_) => format!("--token-file: the token cannot be sent in a header: {error}"),
            None => format!("{}: {error}", shown(&self.url)),
        })?;
        sender.send_request(request).await.map_err(failed)
    }

    /// The token. Each call reads the file again, because the token may have changed.
    fn token(&self) -> Result<Option<String>, String> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let refused = |why: &dyn std::fmt::Display| format!("--token-file {}: {why}", file.display());
        let opened = File::open(file).map_err(|error| refused(&error))?;
        let mut token = String::new();
        opened.take(MOST_TOKEN_BYTES).read_to_string(&mut token).map_err(|error| refused(&error))?;
        match token.trim() {
            "" => Err(refused(&"the file has no token")),
            token => Ok(Some(token.to_owned())),
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish_non_exhaustive()
    }
}

/// TLS that trusts the certificates of the system.
fn tls_connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be used are common, and the others suffice.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(
            "the system trusts no certificates: set SSL_CERT_FILE to a file of them in PEM".to_owned()
        );
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
