//! The way to the collector: HTTP requests on a runtime of their own, so that an export never takes a thread that decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use tokio::runtime::{Handle, Runtime};

/// How long an export may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The most bytes of an answer that are read.
const MOST_ANSWER: usize = 64 << 10;

/// Sends exports to the collector.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    url: Arc<str>,
    is_failing: Arc<AtomicBool>,
}

impl Collector {
    pub(super) fn new(url: &str, runtime: &Runtime) -> Result<Self, String> {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| format!("`telemetry.otlp`: no certificates to trust: {error}"))?
            .https_or_http()
            .enable_http1()
            .build();
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(2).build(connector);
        Ok(Self { http, runtime: runtime.handle().clone(), url: url.into(), is_failing: Arc::default() })
    }

    /// Logs when the collector begins to fail, and when it accepts exports again: one line each, however long it is down.
    fn report(&self, result: &Result<Response<Bytes>, HttpError>) {
        let failure = match result {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(failure) if !was_failing => tracing::warn!(
                collector = &*self.url,
                "telemetry is lost, because the collector does not accept it: {failure}"
            ),
            None if was_failing => {
                tracing::info!(collector = &*self.url, "the collector accepts telemetry again")
            }
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let http = self.http.clone();
        let call = async move {
            let (parts, body) = http.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, MOST_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        // The thread that exports has no runtime.
        let call = self.runtime.spawn(async move { tokio::time::timeout(WITHIN, call).await });
        let result = match call.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(format!("no answer within {} s", WITHIN.as_secs()).into()),
            Err(ended) => Err(ended.to_string().into()),
        };
        self.report(&result);
        result
    }
}
