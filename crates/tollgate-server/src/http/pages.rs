//! The pages of the dashboard and the playground, and the files that they load.
//!
//! All files are in the binary. A page is never cached. The files it loads have a hash of all their contents in their path, so
//! that a browser keeps them for as long as it likes.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use tollgate_policy::Dashboard;

use super::problem::Problem;
use crate::service::Service;

/// What a page may load and connect to: its own origin only. There are no inline scripts or styles.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Stands for the directory of the files in pages.
const FILES: &str = "{files}";

/// A page or a file, as it is and compressed.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    plain: Bytes,
    gzip: Bytes,
}

/// Everything that browsers load.
struct Web {
    pages: Vec<Asset>,
    files: Vec<Asset>,
    hash: String, // of all files
}

/// A file of `web/`: its name and its contents.
macro_rules! web {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../web/", $name)).as_slice())
    };
}

static PAGES: &[(&str, &[u8])] = &[web!("dashboard.html"), web!("playground.html")];

static ASSETS: &[(&str, &[u8])] = &[
    web!("theme.css"),
    web!("theme.js"),
    web!("dashboard.css"),
    web!("dashboard.js"),
    web!("playground.css"),
    web!("playground.js"),
    web!("vendor/uPlot.iife.min.js"),
    web!("vendor/uPlot.min.css"),
    web!("vendor/uPlot.LICENSE"),
];

impl Web {
    fn new() -> Self {
        let mut hasher = DefaultHasher::new();
        for (name, content) in ASSETS {
            hasher.write(name.as_bytes());
            hasher.write(content);
        }
        let hash = format!("{:016x}", hasher.finish());
        let page = |(name, content): &(&'static str, &'static [u8])| {
            let text = std::str::from_utf8(content).expect("pages are UTF-8");
            Asset::new(name, text.replace(FILES, &format!("/assets/{hash}")).into())
        };
        Self {
            pages: PAGES.iter().map(page).collect(),
            files: ASSETS
                .iter()
                .map(|(name, content)| Asset::new(name, Bytes::from_static(content)))
                .collect(),
            hash,
        }
    }
}

impl Asset {
    fn new(name: &'static str, plain: Bytes) -> Self {
        let content_type = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("json") => "application/json",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&plain).expect("a vector takes everything");
        let gzip = gzip.finish().expect("a vector takes everything").into();
        Self { name, content_type, plain, gzip }
    }

    fn response(&self, headers: &HeaderMap, cache: &'static str) -> Response {
        let takes_gzip = accepts(headers, header::ACCEPT_ENCODING, "gzip");
        let body = if takes_gzip { self.gzip.clone() } else { self.plain.clone() };
        let mut response = Response::new(Body::from(body));
        let mut set = |name, value| _ = response.headers_mut().insert(name, HeaderValue::from_static(value));
        set(header::CONTENT_TYPE, self.content_type);
        set(header::CACHE_CONTROL, cache);
        set(header::VARY, "accept, accept-encoding");
        set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::REFERRER_POLICY, "no-referrer");
        set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        if takes_gzip {
            set(header::CONTENT_ENCODING, "gzip");
        }
        response
    }
}

/// Whether a header lists a value. A weight of 0 refuses it.
fn accepts(headers: &HeaderMap, name: header::HeaderName, value: &str) -> bool {
    headers.get_all(name).iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).any(
        |part| {
            let (listed, weight) = part.split_once(';').unwrap_or((part, ""));
            listed.trim().eq_ignore_ascii_case(value)
                && !matches!(weight.trim().strip_prefix("q="), Some("0" | "0.0" | "0.00" | "0.000"))
        },
    )
}

/// Compresses all files when the first of them is asked for: a few milliseconds, once.
static WEB: LazyLock<Web> = LazyLock::new(Web::new);

async fn web() -> &'static Web {
    tokio::task::spawn_blocking(|| &*WEB).await.expect("the files can be compressed")
}

async fn page(name: &str, headers: &HeaderMap) -> Response {
    let page = web().await.pages.iter().find(|page| page.name == name);
    page.expect("a page of this file").response(headers, "no-cache")
}

/// `GET /`: the dashboard for browsers, and a few lines of text for other callers.
pub(super) async fn front(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    if service.engine.policy().dashboard == Dashboard::On && accepts(&headers, header::ACCEPT, "text/html") {
        return page("dashboard.html", &headers).await;
    }
    let text = "Tollgate is running.\n\n\
        POST /v1/check      decide a request\n\
        GET  /v1/limits     the policy in force\n\
        GET  /v1/hot        hot keys\n\
        GET  /metrics       for Prometheus\n\
        GET  /openapi.json  everything else\n\n\
        In a browser, this address is a dashboard, and /playground shows how the algorithms differ.\n";
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::VARY, "accept")];
    (plain, text).into_response()
}

/// `GET /playground`.
pub(super) async fn playground(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    require_dashboard(&service)?;
    Ok(page("playground.html", &headers).await)
}

/// `GET /assets/HASH/NAME`: a file that a page loads.
pub(super) async fn asset(
    Path((hash, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let web = web().await;
    let file = web.files.iter().find(|file| file.name == name && web.hash == hash);
    let file = file.ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no file {name} of this version: load the page again"),
        )
    })?;
    Ok(file.response(&headers, "public, max-age=31536000, immutable"))
}

/// Refuses calls that belong to the dashboard where the policy turns it off.
pub(super) fn require_dashboard(service: &Service) -> Result<(), Problem> {
    match service.engine.policy().dashboard {
        Dashboard::On => Ok(()),
        Dashboard::Off => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "the policy turns this off: remove `dashboard: off` to have the dashboard and the playground",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_take_less_than_250_kb() {
        let bytes: usize = PAGES.iter().chain(ASSETS).map(|(_, content)| content.len()).sum();
        assert!(bytes < 250_000, "{bytes} bytes");
    }

    #[test]
    fn pages_refer_to_files_by_their_hash_only() {
        for page in &WEB.pages {
            let text = std::str::from_utf8(&page.plain).unwrap();
            let references =
                text.split('"').filter(|part| part.contains("/assets/") || part.ends_with(".js"));
            for reference in references {
                let name = reference.strip_prefix(&format!("/assets/{}/", WEB.hash));
                assert!(WEB.files.iter().any(|file| Some(file.name) == name), "{}: {reference}", page.name);
            }
            assert!(!text.contains(FILES) && !text.contains("style=") && !text.contains("onclick="));
        }
    }

    #[test]
    fn a_weight_of_0_refuses_an_encoding() {
        let accepts_gzip = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            accepts(&headers, header::ACCEPT_ENCODING, "gzip")
        };
        assert!(accepts_gzip("gzip, deflate") && accepts_gzip("br, GZIP;q=0.5"));
        assert!(!accepts_gzip("identity") && !accepts_gzip("gzip;q=0") && !accepts_gzip("x-gzip2"));
    }
}
