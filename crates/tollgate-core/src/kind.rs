//! The one table of algorithms: how each is named in policy files and in the keys of a shared store.
//!
//! A new algorithm is a new row here. The row makes a new variant of [`AlgorithmKind`], and every other crate that needs to know
//! about the algorithm matches on that enum, on [`Rule`] or on [`RuleParts`] without a wildcard. So the compiler
//! lists the places that remain to be written. `ARCHITECTURE.md` has the list of files.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::fmt;

use crate::{Rule, RuleParts};

macro_rules! algorithms {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $letter:literal;)+) => {
        /// An algorithm without its numbers.
        ///
        /// A `max_wait` does not make another algorithm: a token bucket with one has the same kind as a token bucket without.
        ///
        /// ```
        /// use tollgate_core::{AlgorithmKind, Rate, Rule, TokenBucket};
        ///
        /// let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?);
        /// assert_eq!(rule.kind(), AlgorithmKind::TokenBucket);
        /// assert_eq!(rule.kind().name(), "token_bucket");
        /// # Ok::<(), tollgate_core::RuleError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AlgorithmKind {
            $($(#[$doc])* $kind,)+
        }

        impl AlgorithmKind {
            /// Every algorithm, in the order in which documentation and error messages list them.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The name of the algorithm in policy files, in `POST /v1/throttle` and in the lab.
            ///
            /// ```
            /// use tollgate_core::AlgorithmKind;
            ///
            /// assert_eq!(AlgorithmKind::SlidingLog.name(), "sliding_log");
            /// ```
            #[inline]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// The letter of the algorithm in the keys and states of a shared store. Stored data contains it, so it never changes.
            ///
            /// ```
            /// use tollgate_core::AlgorithmKind;
            ///
            /// assert_eq!(AlgorithmKind::SlidingLog.letter(), b'w');
            /// ```
            #[inline]
            pub const fn letter(self) -> u8 {
                match self {
                    $(Self::$kind => $letter,)+
                }
            }

            /// The algorithm that has this name.
            ///
            /// ```
            /// use tollgate_core::AlgorithmKind;
            ///
            /// assert_eq!(AlgorithmKind::from_name("sliding_log"), Some(AlgorithmKind::SlidingLog));
            /// assert_eq!(AlgorithmKind::from_name("Sliding Log"), None);
            /// ```
            #[inline]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

algorithms! {
    /// See [`TokenBucket`](crate::TokenBucket).
    TokenBucket, "token_bucket", b't';
    /// See [`LeakyBucket`](crate::LeakyBucket).
    LeakyBucket, "leaky_bucket", b'l';
    /// See [`FixedWindow`](crate::FixedWindow).
    FixedWindow, "fixed_window", b'f';
    /// See [`SlidingLog`](crate::SlidingLog).
    SlidingLog, "sliding_log", b'w';
    /// See [`SlidingCounter`](crate::SlidingCounter).
    SlidingCounter, "sliding_counter", b's';
    /// See [`BurstCredits`](crate::BurstCredits).
    BurstCredits, "burst_credits", b'd';
    /// See [`Concurrency`](crate::Concurrency).
    Concurrency, "concurrency", b'p';
}

impl AlgorithmKind {
    /// Whether a charge is a permit that its holder releases. The other algorithms refill with time.
    ///
    /// ```
    /// use tollgate_core::AlgorithmKind;
    ///
    /// assert!(AlgorithmKind::Concurrency.has_permits());
    /// assert!(!AlgorithmKind::TokenBucket.has_permits());
    /// ```
    #[inline]
    pub const fn has_permits(self) -> bool {
        match self {
            Self::Concurrency => true,
            Self::TokenBucket
            | Self::LeakyBucket
            | Self::FixedWindow
            | Self::SlidingLog
            | Self::SlidingCounter
            | Self::BurstCredits => false,
        }
    }
}

impl fmt::Display for AlgorithmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Rule {
    /// The algorithm of the rule. [`AlgorithmKind`] has an example.
    #[inline]
    pub const fn kind(&self) -> AlgorithmKind {
        match self {
            Self::TokenBucket(_) | Self::TokenBucketMaxWait(_) => AlgorithmKind::TokenBucket,
            Self::LeakyBucket(_) | Self::LeakyBucketMaxWait(_) => AlgorithmKind::LeakyBucket,
            Self::FixedWindow(_) => AlgorithmKind::FixedWindow,
            Self::SlidingLog(_) => AlgorithmKind::SlidingLog,
            Self::SlidingCounter(_) => AlgorithmKind::SlidingCounter,
            Self::BurstCredits(_) => AlgorithmKind::BurstCredits,
            Self::Concurrency(_) => AlgorithmKind::Concurrency,
        }
    }
}

impl RuleParts {
    /// The algorithm that has these numbers.
    ///
    /// ```
    /// use tollgate_core::{AlgorithmKind, Concurrency, Rule};
    ///
    /// let rule = Rule::from(Concurrency::new(3, None)?);
    /// assert_eq!(rule.parts().kind(), AlgorithmKind::Concurrency);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn kind(&self) -> AlgorithmKind {
        match self {
            Self::TokenBucket { .. } => AlgorithmKind::TokenBucket,
            Self::LeakyBucket { .. } => AlgorithmKind::LeakyBucket,
            Self::FixedWindow { .. } => AlgorithmKind::FixedWindow,
            Self::SlidingLog { .. } => AlgorithmKind::SlidingLog,
            Self::SlidingCounter { .. } => AlgorithmKind::SlidingCounter,
            Self::BurstCredits { .. } => AlgorithmKind::BurstCredits,
            Self::Concurrency { .. } => AlgorithmKind::Concurrency,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_letters_identify_one_algorithm_each() {
        let names: BTreeSet<&str> = AlgorithmKind::ALL.iter().map(|kind| kind.name()).collect();
        let letters: BTreeSet<u8> = AlgorithmKind::ALL.iter().map(|kind| kind.letter()).collect();
        assert_eq!((names.len(), letters.len()), (AlgorithmKind::ALL.len(), AlgorithmKind::ALL.len()));
        for kind in AlgorithmKind::ALL {
            assert_eq!(AlgorithmKind::from_name(kind.name()), Some(*kind));
        }
    }

    /// Other processes and other versions read the same keys.
    #[test]
    fn letters_of_stored_states_stay_the_same() {
        let letters: Vec<u8> = AlgorithmKind::ALL.iter().map(|kind| kind.letter()).collect();
        assert_eq!(String::from_utf8(letters).unwrap(), "tlfwsdp");
    }
}
