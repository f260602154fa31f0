//! Keys are hashed under a secret.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip::SipHasher13;

/// What keys are hashed under, so that no caller can aim two keys at one state.
///
/// A table remembers a key only by this hash. Whoever keeps states beyond the process must keep the
/// secret with them.
///
/// ```
/// use tollgate::Secret;
///
/// let secret = Secret::random();
/// let kept = secret.to_words(); // beside the states, if those outlive the process
/// assert_eq!(Secret::from_words(kept).to_words(), kept);
/// ```
#[derive(Clone, Copy)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A secret nobody knows, from the system's randomness.
    ///
    /// ```
    /// use tollgate::Secret;
    ///
    /// assert_ne!(Secret::random().to_words(), Secret::random().to_words());
    /// ```
    pub fn random() -> Self {
        // Each RandomState has keys of its own; the hash of anything under them is as unknown.
        Self([1, 2].map(|word: u64| RandomState::new().hash_one(word)))
    }

    /// A secret known before.
    ///
    /// ```
    /// use tollgate::Secret;
    ///
    /// assert_eq!(Secret::from_words([1, 2]).to_words(), [1, 2]);
    /// ```
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The words, to keep with states that outlive the process.
    ///
    /// ```
    /// use tollgate::Secret;
    ///
    /// assert_eq!(Secret::from_words([1, 2]).to_words(), [1, 2]);
    /// ```
    pub const fn to_words(self) -> [u64; 2] {
        self.0
    }

    /// The hash of a key under a limit. The limit goes first and has a fixed length, so that no key of one
    /// limit can be made to look like a key of another.
    #[inline]
    pub(crate) fn hash<K: Hash + ?Sized>(&self, limit: u64, key: &K) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0] ^ limit, self.0[1]);
        key.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
