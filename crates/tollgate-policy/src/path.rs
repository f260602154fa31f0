//! A path as applications see it, whatever way it was written.
//!
//! `/api/%74rips`, `/api//trips` and `/x/../api/trips` reach the same handler as `/api/trips` in most applications. If they did
//! not match the same limits, anybody could walk round them.

use std::borrow::Cow;
use std::fmt::Write as _;

use percent_encoding::percent_decode_str;

use crate::request_attributes::RequestFault;

/// The path of a request target, decoded and without detours: the query and the parameters of segments (`;v=1`) are cut off,
/// escapes are resolved, slashes merged, `.` and `..` followed. A slash at the end stays.
///
/// ```
/// use tollgate_policy::normal_path;
///
/// assert_eq!(normal_path("/api/trips?page=2"), "/api/trips");
/// assert_eq!(normal_path("//api/./x/../%74rips"), "/api/trips");
/// ```
pub fn normal_path(target: &str) -> Cow<'_, str> {
    let path = target.find(['?', '#']).map_or(target, |end| &target[..end]);
    let has_detour = path.contains(['%', ';']) || path.contains("//") || path.contains("/.");
    let is_plain = path.starts_with('/') && !has_detour;
    if is_plain {
        return Cow::Borrowed(path);
    }
    let decoded = decode(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut is_open = true; // whether the path ends in a slash
    for segment in decoded.split('/') {
        let segment = segment.split(';').next().unwrap_or_default();
        is_open = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let slash = if is_open && !segments.is_empty() { "/" } else { "" };
    Cow::Owned(format!("/{}{slash}", segments.join("/")))
}

/// Requires that all applications take the path of a target for the same one. The query is not looked at.
///
/// Applications that parse as browsers do (the URL standard of WHATWG) read what follows `//` as a host and a backslash as a slash. Others
/// drop control characters, or match up to the end of a line.
pub(crate) fn require_one_path(target: &str) -> Result<(), RequestFault> {
    let path = target.find(['?', '#']).map_or(target, |end| &target[..end]);
    if path.starts_with("//") {
        return Err(RequestFault::DoubleSlash);
    }
    let bytes = path.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'\\') || byte.is_ascii_control()) {
        return Ok(());
    }
    for (at, byte) in bytes.iter().enumerate() {
        let character = match byte {
            b'%' => bytes.get(at + 1..at + 3).and_then(hexadecimal),
            byte => Some(*byte),
        };
        match character {
            Some(b'\\') => return Err(RequestFault::Backslash),
            Some(byte) if byte.is_ascii_control() => return Err(RequestFault::ControlCharacter),
            _ => {}
        }
    }
    Ok(())
}

/// The byte that two digits stand for.
fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()
}

/// Whether a path has detours, `.` or `..`, also written with escapes: some applications follow them and others do not, so that nobody
/// can say which limits are meant.
///
/// ```
/// use tollgate_policy::has_detours;
///
/// assert!(has_detours("/api/../login") && has_detours("/api/%2e%2E%2flogin") && has_detours("/api/..;x/login"));
/// assert!(!has_detours("/.well-known/a..b/%20"));
/// ```
pub fn has_detours(path: &str) -> bool {
    if !path.contains('%') && !path.contains("/.") {
        return false;
    }
    let is_detour = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    decode(path).split('/').any(is_detour)
}

/// Resolves escapes, also of slashes, which separate for most applications once they are resolved. What is no escape, or no
/// text, stays as it is.
fn decode(path: &str) -> String {
    let decoded: Cow<'_, [u8]> = percent_decode_str(path).into();
    let mut text = String::with_capacity(decoded.len());
    for chunk in decoded.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_applications_read_in_two_ways_has_a_fault() {
        use RequestFault::{Backslash, ControlCharacter, DoubleSlash};
        for (target, fault) in [
            ("/login", None),
            ("/a//b", None),
            ("/a%20b%2f%80%ff", None),
            ("/login?x=//a\\%5c%00#\\", None),
            ("/100%", None),
            ("/%5", None),
            ("/%5g%0", None),
            ("*", None),
            ("", None),
            ("//", Some(DoubleSlash)),
            ("//x/login", Some(DoubleSlash)),
            ("/x\\login", Some(Backslash)),
            ("/x%5clogin", Some(Backslash)),
            ("/x%5Clogin", Some(Backslash)),
            ("/login%00", Some(ControlCharacter)),
            ("/login%0a", Some(ControlCharacter)),
            ("/login%1F", Some(ControlCharacter)),
            ("/login%7f", Some(ControlCharacter)),
            ("/log\tin", Some(ControlCharacter)),
            ("/%%0a", Some(ControlCharacter)),
        ] {
            assert_eq!(require_one_path(target).err(), fault, "{target}");
        }
    }

    #[test]
    fn every_way_to_write_a_path_is_one_path() {
        for (target, expected) in [
            ("/api/trips", "/api/trips"),
            ("/api/trips/", "/api/trips/"),
            ("/api/trips?x=/../y", "/api/trips"),
            ("/api/trips#x", "/api/trips"),
            ("/api/%74rips", "/api/trips"),
            ("/api/%74%72%69%70%73", "/api/trips"),
            ("//api///trips", "/api/trips"),
            ("/api/./trips", "/api/trips"),
            ("/x/../api/trips", "/api/trips"),
            ("/x/%2e%2E/api/trips", "/api/trips"),
            ("/../../api/trips", "/api/trips"),
            ("/api/trips/..", "/api/"),
            ("/api/trips/.", "/api/trips/"),
            ("/api%2Ftrips", "/api/trips"),
            ("/api%2f%2ftrips", "/api/trips"),
            ("/x%2f..%2fapi/trips", "/api/trips"),
            ("/api;v=1/trips;a=b;c", "/api/trips"),
            ("/api/..;/api/trips", "/api/trips"),
            ("/caf%C3%A9", "/café"),
            ("/caf%E9", "/caf%E9"), // no text
            ("/x%ff/../%61pi/trips", "/api/trips"),
            ("/%e9/%61", "/%E9/a"),
            ("/%2561", "/%61"), // once, as applications do
            ("/100%", "/100%"),
            ("/%zz", "/%zz"),
            ("/%2", "/%2"),
            ("", "/"),
            ("/", "/"),
            ("*", "/*"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(normal_path(target), expected, "{target}");
        }
    }
}
