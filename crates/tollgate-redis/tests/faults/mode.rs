//! Limits that the store decides one request at a time, and limits that processes decide by grants.

use std::time::Duration;

use tollgate_core::{Nanos, Rate, Rule, TokenBucket};

/// How long a grant should last, unless a test says otherwise.
const SYNC: Duration = Duration::from_millis(100);

/// How the limits of a policy are decided. Each fault is made in both modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    /// By grants that should last so long.
    Lease(Duration),
}

impl Mode {
    pub(crate) const LEASE: Self = Self::Lease(SYNC);

    /// The same with longer or shorter grants.
    pub(crate) const fn with_sync(self, sync: Duration) -> Self {
        match self {
            Self::Exact => Self::Exact,
            Self::Lease(_) => Self::Lease(sync),
        }
    }

    /// What a policy sets, beside the servers of its store.
    pub(crate) fn settings(self) -> String {
        match self {
            Self::Exact => "mode: exact".to_owned(),
            Self::Lease(sync) => format!("mode: lease, lease: {{ sync: {}ms }}", sync.as_millis()),
        }
    }

    /// By how much leases of a bucket may exceed in a span what exact checks would allow (`Terms::most_excess`). In total they never do.
    pub(crate) fn excess(self, rate: u64, burst: u64, nodes: u64) -> u64 {
        let bucket = TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap();
        match self {
            Self::Exact => 0,
            Self::Lease(sync) => {
                Rule::from(bucket).lease_terms(Nanos::saturating_from(sync)).unwrap().most_excess(nodes)
            }
        }
    }

    /// How many percent of a limit are used that is asked all the time.
    pub(crate) const fn least_use(self) -> u64 {
        match self {
            Self::Exact => 99,
            Self::Lease(_) => 97,
        }
    }

    /// How the report names a fault.
    pub(crate) fn name(self, fault: &str) -> String {
        match self {
            Self::Exact => fault.to_owned(),
            Self::Lease(_) => format!("{fault}, leases"),
        }
    }
}

/// Makes a fault in both modes at once. Each mode has servers of its own.
pub(crate) async fn in_both_modes<F>(run: impl Fn(Mode) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runs = [Mode::Exact, Mode::LEASE].map(|mode| tokio::spawn(run(mode)));
    for run in runs {
        if let Err(error) = run.await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
