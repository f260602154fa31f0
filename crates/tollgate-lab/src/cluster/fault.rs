//! What goes wrong, and when.

use std::fmt;
use std::str::FromStr;

use tollgate_policy::quantity;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// All messages between the node and the store are lost.
    Partition,
    /// The process ends. It starts again with nothing, after the length of the fault.
    Crash,
    /// The process stands still, and its clock goes on.
    Pause,
    /// The process stands still, and so does its clock.
    Suspend,
    /// Another server takes the place of the store. It does not know the last writes: those in the length of the fault.
    Failover,
}

impl FaultKind {
    const ALL: [Self; 5] = [Self::Partition, Self::Crash, Self::Pause, Self::Suspend, Self::Failover];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Crash => "crash",
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::Failover => "failover",
        }
    }

    /// Whether the process stands still.
    pub(super) const fn is_stall(self) -> bool {
        matches!(self, Self::Pause | Self::Suspend)
    }
}

/// Something that goes wrong. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// When it begins. A failover happens at this time.
    pub start: u64,
    /// How long it lasts.
    pub length: u64,
    /// The node, or all nodes.
    pub node: Option<u32>,
}

impl Fault {
    /// When it ends.
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// Whether it is about a node.
    pub(super) fn is_of(&self, node: usize) -> bool {
        self.node.is_none_or(|of| of as usize == node)
    }

    /// Whether it lasts at a time.
    pub(super) const fn is_at(&self, now: u64) -> bool {
        self.start <= now && now < self.end()
    }
}

impl FromStr for Fault {
    type Err = String;

    /// Reads `KIND@START[+LENGTH][:NODE]`, such as `partition@5s+2s:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("fault `{text}`: {why}");
        let Some((kind, times)) = text.split_once('@') else {
            return Err(refused("write KIND@START[+LENGTH][:NODE], such as partition@5s+2s:3"));
        };
        let Some(kind) = FaultKind::ALL.into_iter().find(|known| known.as_str() == kind) else {
            let kinds = FaultKind::ALL.map(FaultKind::as_str).join(", ");
            return Err(refused(&format!("the kinds are {kinds}")));
        };
        let (times, node) = match times.split_once(':') {
            Some((times, node)) => {
                let node = node.parse().map_err(|_| refused("a node is a number from 0 on"))?;
                (times, Some(node))
            }
            None => (times, None),
        };
        let time = |text: &str| {
            let span = quantity::duration(text).map_err(|why| refused(&why))?;
            u64::try_from(span.as_nanos()).map_err(|_| refused("the time is too long"))
        };
        let (start, length) = match times.split_once('+') {
            Some((start, length)) => (time(start)?, time(length)?),
            None => (time(times)?, 0),
        };
        if length == 0 && kind != FaultKind::Crash {
            let length = if kind == FaultKind::Failover { "50ms" } else { "2s" };
            return Err(refused(&format!("it needs a length, such as {}@5s+{length}", kind.as_str())));
        }
        if kind == FaultKind::Failover && node.is_some() {
            return Err(refused("a failover is of the store: leave out the node"));
        }
        Ok(Self { kind, start, length, node })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |nanos| quantity::duration_text(std::time::Duration::from_nanos(nanos));
        let zero = if self.start == 0 { "0s".to_owned() } else { text(self.start) };
        write!(f, "{}@{zero}", self.kind.as_str())?;
        if self.length > 0 {
            write!(f, "+{}", text(self.length))?;
        }
        self.node.map_or(Ok(()), |node| write!(f, ":{node}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_written_as_it_is_read() {
        for text in ["partition@5s+2s", "partition@5s+2s:3", "crash@3s:0", "crash@3s+1500ms", "pause@4s+2s:1"]
        {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        let fault: Fault = "failover@10s+50ms".parse().unwrap();
        let expected =
            Fault { kind: FaultKind::Failover, start: 10_000_000_000, length: 50_000_000, node: None };
        assert_eq!(fault, expected);
        assert_eq!("suspend@0s+1s".parse::<Fault>().unwrap().to_string(), "suspend@0s+1s");
    }

    #[test]
    fn a_refused_fault_is_named_with_what_would_be_right() {
        for (text, expected) in [
            ("partition", "write KIND@START[+LENGTH][:NODE]"),
            ("fire@5s+2s", "the kinds are partition, crash, pause, suspend, failover"),
            ("partition@5s", "it needs a length, such as partition@5s+2s"),
            ("failover@5s", "it needs a length, such as failover@5s+50ms"),
            ("partition@soon+2s", "write a time as"),
            ("crash@3s:one", "a node is a number from 0 on"),
            ("failover@3s+50ms:1", "leave out the node"),
        ] {
            let error = text.parse::<Fault>().unwrap_err();
            assert!(error.starts_with(&format!("fault `{text}`: ")) && error.contains(expected), "{error}");
        }
    }
}
