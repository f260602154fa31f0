//! The host of a request: one name, however it is written and whatever port is added to it.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// The attributes that are hosts.
pub(crate) fn is_host_attribute(name: &str) -> bool {
    name == "host" || name.strip_prefix("header.").is_some_and(|name| name.eq_ignore_ascii_case("host"))
}

/// A host in its normal form: the name in small letters, without the dot that a whole name may end with, and its port without
/// zeros before it. An empty port and the usual ones, 80 and 443, are left out, and so is a user before an `@`.
///
/// ```
/// use tollgate_policy::normal_host;
///
/// assert_eq!(normal_host("API.example.com.:00080".into()), "api.example.com");
/// assert_eq!(normal_host("api.example.com:8443".into()), "api.example.com:8443");
/// ```
pub fn normal_host(host: Cow<'_, str>) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if host.bytes().all(is_plain) && !host.ends_with('.') {
        return host;
    }
    let written = host.rsplit_once('@').map_or(&*host, |(_, host)| host);
    let (name, port) = host_parts(written);
    let mut normal = name.trim_end_matches('.').to_ascii_lowercase();
    if let Some(port) = port {
        normal.push(':');
        normal.push_str(port);
    }
    normal.into()
}

/// The name of a host, without its port.
///
/// ```
/// use tollgate_policy::host_name;
///
/// assert_eq!(host_name("api.example.com:8443"), "api.example.com");
/// assert_eq!(host_name("[2001:db8::1]:8443"), "[2001:db8::1]");
/// ```
pub fn host_name(host: &str) -> &str {
    host_parts(host).0
}

/// The name of a host and its port, without zeros before it. None for an empty port and the usual ones, 80 and 443.
pub(crate) fn host_parts(host: &str) -> (&str, Option<&str>) {
    let name_end = match host.find(']') {
        Some(end) if host.starts_with('[') => end + 1,
        // An IPv6 address without its brackets has no port.
        _ if host.parse::<Ipv6Addr>().is_ok() => host.len(),
        _ => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    let port = port.strip_prefix(':').unwrap_or(port);
    let number = port.trim_start_matches('0');
    let port = if number.is_empty() && !port.is_empty() { "0" } else { number };
    (name, Some(port).filter(|port| !matches!(*port, "" | "80" | "443")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_normal_form_and_one_name() {
        for (written, normal, name) in [
            ("api.example.com", "api.example.com", "api.example.com"),
            ("API.Example.com", "api.example.com", "api.example.com"),
            ("api.example.com:", "api.example.com", "api.example.com"),
            ("api.example.com:80", "api.example.com", "api.example.com"),
            ("api.example.com:00080", "api.example.com", "api.example.com"),
            ("api.example.com:443", "api.example.com", "api.example.com"),
            ("api.example.com.:1", "api.example.com:1", "api.example.com"),
            ("api.example.com:08443", "api.example.com:8443", "api.example.com"),
            ("api.example.com:0", "api.example.com:0", "api.example.com"),
            ("api.example.com:1:2", "api.example.com:1:2", "api.example.com"),
            ("user:x@api.example.com:8080", "api.example.com:8080", "api.example.com"),
            ("[::1]", "[::1]", "[::1]"),
            ("[2001:DB8::1]:080", "[2001:db8::1]", "[2001:db8::1]"),
            ("[::1]:8080", "[::1]:8080", "[::1]"),
            ("::1", "::1", "::1"),
            ("", "", ""),
        ] {
            assert_eq!(normal_host(written.into()), normal, "{written}");
            assert_eq!(host_name(normal), name, "{written}");
        }
    }
}
