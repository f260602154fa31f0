//! Which calls come from web pages of other sites.
//!
//! A page can have its browser send a POST to any address that the browser reaches, and a name of the page's own site can be made to
//! lead to the loopback (DNS rebinding). Browsers name the page's site in `Origin` and the name they called in `Host`.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, Request, header};

/// Where a proxy asks with the headers of its client, `Host` and `Origin` among them.
const FORWARD_AUTH: &str = "/v1/forward-auth";

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CrossSite {
    #[error(
        "`{0}` is not a name of this service: call a loopback listener by a loopback address or as localhost, or list the name in `listen: {{ hosts: […] }}` of the policy file"
    )]
    Host(String),
    #[error(
        "a page of `{0}` cannot make this call: send it without `Origin`, or list the name of the page in `listen: {{ hosts: […] }}` of the policy file"
    )]
    Origin(String),
}

/// Refuses calls by a name that is not the service's, on a listener that is bound to the loopback, and calls of pages of another
/// site that may change something, on every listener. `is_listed` looks a name up in `listen.hosts`.
pub(crate) fn require_own_site<B>(
    request: &Request<B>,
    is_loopback: bool,
    is_listed: impl Fn(&str) -> bool,
) -> Result<(), CrossSite> {
    let path = request.uri().path();
    if path == FORWARD_AUTH {
        return Ok(());
    }
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()), // RFC 9112, section 3.2.2: it counts instead of `Host`
        None => host(request.headers()),
    };
    if is_loopback
        && (path.starts_with("/v1/") || path == "/json")
        && let Some(host) = host
        && !is_loopback_name(name(host))
        && !is_listed(name(host))
    {
        return Err(CrossSite::Host(shown(name(host))));
    }
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    match foreign_origin(request.headers(), host, is_listed) {
        Some(origin) => Err(CrossSite::Origin(shown(&origin))),
        None => Ok(()),
    }
}

/// Whether a call came from a page of this service's own site, or from none, by a name of this machine.
pub(crate) fn is_local(headers: &HeaderMap) -> bool {
    let host = host(headers);
    host.is_none_or(|host| is_loopback_name(name(host))) && foreign_origin(headers, host, |_| false).is_none()
}

/// `Host`. A client from before it was invented has none.
fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"))
}

/// A host without its port, and an IPv6 address without its brackets.
fn name(host: &str) -> &str {
    let host = host.rsplit_once('@').map_or(host, |(_user, host)| host);
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    }
}

fn is_loopback_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The site of the page that made a call, where that is neither the one that was called nor listed.
fn foreign_origin(
    headers: &HeaderMap,
    host: Option<&str>,
    is_listed: impl Fn(&str) -> bool,
) -> Option<String> {
    let is_own = |origin: &str| {
        let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        site.is_some_and(|site| {
            host.is_some_and(|host| host.eq_ignore_ascii_case(site)) || is_listed(name(site))
        })
    };
    let origins = headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().unwrap_or("?"));
    origins.into_iter().find(|origin| !is_own(origin)).map(str::to_owned)
}

/// As much of a header as an error shows.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, target: &str, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri(target);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
    }

    fn listed(name: &str) -> bool {
        name.eq_ignore_ascii_case("limits.example")
    }

    #[test]
    fn a_loopback_listener_is_called_by_its_own_names_only() {
        for (host, is_own) in [
            ("127.0.0.1:8080", true),
            ("127.8.9.1", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost:8080", true),
            ("LOCALHOST", true),
            ("limits.example", true),
            ("Limits.Example:8080", true),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("limits.example.evil.example", false),
            ("10.0.0.1:8080", false),
            ("", false),
            ("[", false),
        ] {
            for (target, is_checked) in [
                ("/v1/check", true),
                ("/v1/limits", true),
                ("/v1/hot?limit=a", true),
                ("/json", true),
                ("/v1/forward-auth?deny=403", false),
                ("/metrics", false),
                ("/livez", false),
            ] {
                let call = call("POST", target, &[("host", host)]);
                let passes = require_own_site(&call, true, listed).is_ok();
                assert_eq!(passes, is_own || !is_checked, "{host} {target}");
                assert_eq!(require_own_site(&call, false, listed), Ok(()), "{host} {target}");
            }
        }
        assert_eq!(require_own_site(&call("POST", "/v1/check", &[]), true, listed), Ok(()));
    }

    /// RFC 9112, section 3.2.2.
    #[test]
    fn the_name_in_the_target_counts_instead_of_host() {
        let call = call("POST", "http://evil.example/v1/check", &[("host", "localhost")]);
        assert_eq!(require_own_site(&call, true, listed), Err(CrossSite::Host("evil.example".into())));
    }

    #[test]
    fn pages_of_another_site_change_nothing_on_any_listener() {
        for (host, origin, is_own) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("localhost:8080", "https://LOCALHOST:8080", true),
            ("localhost:8080", "https://limits.example:444", true),
            ("localhost:8080", "http://localhost:3000", false),
            ("localhost:8080", "https://evil.example", false),
            ("localhost:8080", "null", false),
            ("localhost:8080", "file://localhost:8080", false),
            ("localhost:8080", "", false),
        ] {
            for is_loopback in [true, false] {
                for (method, target, is_checked) in [
                    ("POST", "/v1/check", true),
                    ("PUT", "/v1/pressure", true),
                    ("DELETE", "/v1/keys", true),
                    ("POST", "/json", true),
                    ("GET", "/v1/limits", false),
                    ("HEAD", "/v1/limits", false),
                    ("POST", "/v1/forward-auth", false),
                ] {
                    let call = call(method, target, &[("host", host), ("origin", origin)]);
                    let passes = require_own_site(&call, is_loopback, listed).is_ok();
                    assert_eq!(passes, is_own || !is_checked, "{method} {target} {origin} {is_loopback}");
                }
            }
        }
        let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert!(require_own_site(&call("POST", "/v1/check", &two), true, listed).is_err());
    }
}
