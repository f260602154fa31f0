//! An answer that is there, or that has to be waited for.

use crate::store::Later;

/// An answer of an engine.
///
/// An engine in memory always answers [`Now`](Self::Now). An engine with a shared store answers [`Later`](Self::Later), except if
/// it needs no store to answer: for an unknown limit, or a rule that is invalid.
///
/// ```
/// use tollgate_policy::{Answer, Engine, Policy, Request};
///
/// let engine = Engine::new(Policy::default())?; // in memory
/// let policy = engine.policy();
/// let Answer::Now(verdict) = policy.check(&Request { attributes: &[], cost: None }, engine.clock().now()) else {
///     unreachable!("the states are in memory");
/// };
/// assert!(verdict?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is decided later unless the future is polled"]
pub enum Answer<'a, T> {
    /// The answer.
    Now(T),
    /// A future of the answer. Dropped before its first poll, it has asked and charged nothing.
    Later(Later<'a, T>),
}

impl<'a, T: Send + 'a> Answer<'a, T> {
    /// The answer, if it is there. `None` drops the future.
    pub fn now(self) -> Option<T> {
        match self {
            Self::Now(answer) => Some(answer),
            Self::Later(_) => None,
        }
    }

    /// The answer, after a wait if it has to be waited for.
    pub async fn wait(self) -> T {
        match self {
            Self::Now(answer) => answer,
            Self::Later(later) => later.await,
        }
    }

    /// Changes the answer.
    #[inline]
    pub fn map<U: Send + 'a>(self, change: impl FnOnce(T) -> U + Send + 'a) -> Answer<'a, U> {
        match self {
            Self::Now(answer) => Answer::Now(change(answer)),
            Self::Later(later) => Answer::Later(Box::pin(async move { change(later.await) })),
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}
