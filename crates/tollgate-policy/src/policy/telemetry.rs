//! Traces and metrics for an OpenTelemetry collector.

use std::time::Duration;

use crate::fault::Fault;
use crate::keys;
use crate::reader::Reader;
use crate::yaml::Node;

/// Where traces and metrics go, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// The base URL of the collector, without a slash at its end.
    pub otlp: String,
    /// The share of requests without a trace of their own that get one, in thousandths.
    pub sample: u32,
    /// The time between two exports of metrics.
    pub interval: Duration,
}

/// The share of requests that are traced by default: one in a hundred.
const SAMPLE: u32 = 10;

/// The time between two exports of metrics by default.
const INTERVAL: Duration = Duration::from_secs(60);

impl Telemetry {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::TELEMETRY)?;
        let otlp = section.require(reader, "otlp", "http://127.0.0.1:4318");
        let otlp = otlp.and_then(|node| reader.read(node, collector));
        let sample = section
            .get("sample")
            .map_or(Some(SAMPLE), |node| reader.thousandths(node, "this cannot be a share of requests"));
        let interval = section.get("interval").map_or(Some(INTERVAL), |node| {
            let interval = reader.time(node)?;
            if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&interval) {
                let fault = Fault::new(node.span.clone(), format!("an interval of {interval:?}"));
                reader.fault(fault.help("write 1s to 1h"));
                return None;
            }
            Some(interval)
        });
        Some(Self { otlp: otlp?, sample: sample?, interval: interval? })
    }
}

/// The base URL of a collector.
fn collector(text: &str) -> Result<String, String> {
    let refused = |what: &str| format!("{what}: write the collector as http://127.0.0.1:4318");
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.ok_or_else(|| refused("the URL begins with http:// or https://"))?;
    if text.chars().any(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
        return Err(refused("the URL has characters that a URL cannot have"));
    }
    let authority = rest.split('/').next().unwrap_or("");
    if authority.is_empty() || authority.starts_with(':') {
        return Err(refused("the URL names no host"));
    }
    if authority.contains('@') {
        return Err("passwords do not belong here: set OTEL_EXPORTER_OTLP_HEADERS in the environment".into());
    }
    if rest.contains(['?', '#']) {
        return Err(refused("the URL ends with its path"));
    }
    let text = text.trim_end_matches('/');
    match ["/v1/traces", "/v1/metrics"].iter().find(|path| text.ends_with(*path)) {
        Some(path) => Err(format!("`{path}` is added: leave it out")),
        None => Ok(text.to_owned()),
    }
}
