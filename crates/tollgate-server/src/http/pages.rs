//! The pages of the dashboard and the playground, and the files that they load.
//!
//! All files are in the binary, compressed by `build.rs`. A page is never cached. The files it loads have a hash of all their contents in
//! their path, so that a browser keeps them for as long as it likes.

use std::io::Read as _;
use std::sync::Arc;

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

/// A page, or a file that pages load.
struct File {
    name: &'static str,
    gzip: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/web.rs"));

impl File {
    fn content_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// The file as it is in `web/`. Browsers take it compressed, so this is for other callers.
    fn plain(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = flate2::read::GzDecoder::new(self.gzip).read_to_end(&mut plain);
        read.expect("`build.rs` has compressed it");
        plain
    }

    fn response(&self, headers: &HeaderMap, cache: &'static str) -> Response {
        let takes_gzip = accepts(headers, header::ACCEPT_ENCODING, "gzip");
        let body = if takes_gzip { Bytes::from_static(self.gzip) } else { self.plain().into() };
        let mut response = Response::new(Body::from(body));
        let mut set = |name, value| _ = response.headers_mut().insert(name, HeaderValue::from_static(value));
        set(header::CONTENT_TYPE, self.content_type());
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
            let (listed, parameters) = part.split_once(';').unwrap_or((part, ""));
            let is_zero = |parameter: &str| {
                let (name, weight) = parameter.split_once('=').unwrap_or((parameter, ""));
                name.trim().eq_ignore_ascii_case("q") && weight.trim().parse() == Ok(0.0_f32)
            };
            listed.trim().eq_ignore_ascii_case(value) && !parameters.split(';').any(is_zero)
        },
    )
}

fn page(name: &str, headers: &HeaderMap) -> Response {
    let page = PAGES.iter().find(|page| page.name == name);
    page.expect("a page of this file").response(headers, "no-cache")
}

/// `GET /`: the dashboard for browsers, and a few lines of text for other callers.
pub(super) async fn front(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let dashboard = service.engine.policy().dashboard;
    if dashboard == Dashboard::On && accepts(&headers, header::ACCEPT, "text/html") {
        return page("dashboard.html", &headers);
    }
    let pages = match dashboard {
        Dashboard::On => {
            "In a browser, this address is a dashboard, and /playground shows how the algorithms differ."
        }
        Dashboard::Off => "The policy turns the dashboard and the playground off (`dashboard: off`).",
    };
    let text = format!(
        "Tollgate is running.\n\n\
        POST /v1/check      decide a request\n\
        GET  /v1/limits     the policy in force\n\
        GET  /v1/hot        hot keys\n\
        GET  /metrics       for Prometheus\n\
        GET  /openapi.json  everything else\n\n\
        {pages}\n"
    );
    let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::VARY, "accept")];
    (plain, text).into_response()
}

/// `GET /playground`.
pub(super) async fn playground(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    require_dashboard(&service)?;
    Ok(page("playground.html", &headers))
}

/// `GET /assets/HASH/NAME`: a file that a page loads.
pub(super) async fn asset(
    Path((hash, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let file = FILES.iter().find(|file| file.name == name && HASH == hash);
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
        let bytes: usize = PAGES.iter().chain(FILES).map(|file| file.gzip.len()).sum();
        assert!(bytes < 250_000, "{bytes} bytes");
    }

    #[test]
    fn pages_and_modules_refer_to_files_that_exist() {
        for page in PAGES {
            let text = String::from_utf8(page.plain()).unwrap();
            let references =
                text.split('"').filter(|part| part.contains("/assets/") || part.ends_with(".js"));
            for reference in references {
                let name = reference.strip_prefix(&format!("/assets/{HASH}/"));
                assert!(FILES.iter().any(|file| Some(file.name) == name), "{}: {reference}", page.name);
            }
            assert!(!text.contains("{files}") && !text.contains("style=") && !text.contains("onclick="));
        }
        for module in FILES.iter().filter(|file| file.name.ends_with(".js") && !file.name.contains("vendor/"))
        {
            let text = String::from_utf8(module.plain()).unwrap();
            for import in text.lines().filter_map(|line| line.split_once(" from \"")).map(|(_, path)| path) {
                let (path, _) = import.split_once('"').unwrap();
                let directory = module.name.rsplit_once('/').map_or("", |(directory, _)| directory);
                let name = match path.strip_prefix("../") {
                    Some(name) => name.to_owned(),
                    None => format!("{directory}/{}", path.trim_start_matches("./")),
                };
                let name = name.trim_start_matches('/');
                assert!(FILES.iter().any(|file| file.name == name), "{}: {path}", module.name);
            }
        }
    }

    #[test]
    fn a_weight_of_0_refuses_an_encoding() {
        let accepts_gzip = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            accepts(&headers, header::ACCEPT_ENCODING, "gzip")
        };
        assert!(accepts_gzip("gzip, deflate") && accepts_gzip("br, GZIP;q=0.5"));
        assert!(!accepts_gzip("gzip;Q=0.0") && !accepts_gzip("gzip; level=1; q = 0"));
        assert!(!accepts_gzip("identity") && !accepts_gzip("gzip;q=0") && !accepts_gzip("x-gzip2"));
    }
}
