//! Headers that mean something to the gateway.

/// What a header is to the gateway: told once for each line, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: it is handed on as it is.
    Other,
    Connection,
    ContentLength,
    Expect,
    Host,
    TransferEncoding,
    Upgrade,
    /// Of one connection only (RFC 9110, section 7.6.1).
    HopByHop,
    /// Where programs look for the client's address. The gateway writes these itself.
    ClientAddress,
    /// Other headers in which a proxy describes the original request.
    ByProxies,
    /// Read by some as one of the above: programs that make variables of headers read `Content_Length` as `Content-Length`.
    Disguised,
}

impl Kind {
    pub(crate) fn of(name: &[u8]) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            2 if is("te") => Self::HopByHop,
            4 if is("host") => Self::Host,
            5 if is("proxy") => Self::ByProxies, // which becomes HTTP_PROXY where headers become variables
            6 if is("expect") => Self::Expect,
            7 if is("upgrade") => Self::Upgrade,
            7 if is("trailer") => Self::HopByHop,
            9 if is("forwarded") => Self::ClientAddress,
            10 if is("connection") => Self::Connection,
            10 if is("keep-alive") => Self::HopByHop,
            14 if is("content-length") => Self::ContentLength,
            14 if reads_as(name, "content-length") => Self::Disguised,
            14 if is("http2-settings") => Self::HopByHop,
            16 if is("proxy-connection") => Self::HopByHop,
            17 if is("transfer-encoding") => Self::TransferEncoding,
            17 if reads_as(name, "transfer-encoding") => Self::Disguised,
            18 if is("proxy-authenticate") => Self::HopByHop,
            19 if is("proxy-authorization") => Self::HopByHop,
            _ if is_client_address(name) => Self::ClientAddress,
            _ if is_told_by_proxies(name) => Self::ByProxies,
            _ => Self::Other,
        }
    }

    /// Whether it is of one connection only, or frames a message, which is done anew.
    pub(crate) const fn is_of_connection(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::ContentLength
                | Self::TransferEncoding
                | Self::Upgrade
                | Self::HopByHop
                | Self::Disguised
        )
    }
}

fn is_client_address(name: &[u8]) -> bool {
    let known: &[&str] = match name.first() {
        Some(b'x' | b'X') => &[
            "x-forwarded-for",
            "x-real-ip",
            "x-client-ip",
            "x-cluster-client-ip",
            "x-forwarded",
            "x-appengine-user-ip",
        ],
        Some(b'f' | b'F') => &["forwarded-for", "fastly-client-ip"],
        Some(b'c' | b'C') => &["client-ip", "cf-connecting-ip"],
        Some(b't' | b'T') => &["true-client-ip"],
        _ => &[],
    };
    known.iter().any(|known| reads_as(name, known))
}

fn is_told_by_proxies(name: &[u8]) -> bool {
    let begins = |known: &str| name.len() > known.len() && reads_as(&name[..known.len()], known);
    match name.first() {
        Some(b'x' | b'X') => {
            begins("x-forwarded-") || begins("x-original-") || reads_as(name, "x-rewrite-url")
        }
        _ => false,
    }
}

/// Whether a name is this one, also with `_` for `-`.
pub(crate) fn reads_as(name: &[u8], known: &str) -> bool {
    let same = |(written, known): (&u8, &u8)| {
        written.eq_ignore_ascii_case(known) || (*written == b'_' && *known == b'-')
    };
    name.len() == known.len() && name.iter().zip(known.as_bytes()).all(same)
}
