//! The header `traceparent` of W3C Trace Context.

use std::fmt;

/// The header with the trace.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The header with what tracing systems add to a trace.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The trace that a request belongs to, and the span that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// Whether the caller exports its spans of the trace.
    pub(crate) is_sampled: bool,
}

/// The length of `00-<32 digits>-<16 digits>-<2 digits>`.
const LENGTH: usize = 55;

impl TraceParent {
    /// The trace of a request with these values of the header. None if there is no value, more than one, or one that cannot be read.
    pub(crate) fn of<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Option<Self> {
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::parse(value)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
        let (version, rest) = (value.get(..2)?, value.get(LENGTH..)?);
        // A later version may add fields behind a dash.
        let is_known = version == "00" && rest.is_empty();
        let is_later = version != "00" && version != "ff" && (rest.is_empty() || rest.starts_with('-'));
        let mut fields = value[..LENGTH].split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let has_digits = |field: &str, count: usize| {
            field.len() == count && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_valid =
            has_digits(version, 2) && has_digits(trace, 32) && has_digits(span, 16) && has_digits(flags, 2);
        if !is_valid || !(is_known || is_later) {
            return None;
        }
        let parent = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (parent.trace != 0 && parent.span != 0).then_some(parent)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(value: &str) -> Option<String> {
        TraceParent::parse(value.as_bytes()).map(|parent| parent.to_string())
    }

    #[test]
    fn a_trace_parent_is_read_and_written_as_the_standard_has_it() {
        assert_eq!(parse(SAMPLED).as_deref(), Some(SAMPLED));
        let unsampled = SAMPLED.replace("-01", "-00");
        assert_eq!(parse(&unsampled), Some(unsampled));
        // Other flags than the first have no meaning here.
        assert_eq!(parse(&SAMPLED.replace("-01", "-03")).as_deref(), Some(SAMPLED));
        // A later version is read as this one.
        assert_eq!(parse(&SAMPLED.replacen("00", "cc", 1)).as_deref(), Some(SAMPLED));
        assert_eq!(parse(&format!("cc{}-what-comes-later", &SAMPLED[2..])).as_deref(), Some(SAMPLED));
    }

    #[test]
    fn invalid_trace_parents_are_ignored() {
        let zeros = |count: usize| "0".repeat(count);
        for value in [
            String::new(),
            "00".to_owned(),
            SAMPLED[..54].to_owned(),
            format!("{SAMPLED}-more"),
            format!("{SAMPLED}0"),
            SAMPLED.to_uppercase(),
            SAMPLED.replacen("00", "ff", 1),
            format!("cc{}.", &SAMPLED[2..]),
            SAMPLED.replace('-', "_"),
            SAMPLED.replace('f', "g"),
            format!("00-{}-00f067aa0ba902b7-01", zeros(32)),
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", zeros(16)),
            "é".repeat(40),
        ] {
            assert_eq!(parse(&value), None, "{value}");
        }
        let twice = [SAMPLED.as_bytes(); 2];
        assert_eq!(TraceParent::of(twice.into_iter()), None);
    }
}
