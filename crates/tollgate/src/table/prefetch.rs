//! Asking for memory before it is needed.

use std::hash::Hasher;

/// Has the cache line of `value` fetched, without waiting for it. Where the language offers no way to, nothing
/// happens, and the first use of `value` waits.
#[inline]
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the instruction is only offered as unsafe"))]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it is a hint; the processor reads nothing that the program could see, and faults at no address.
        // SSE, which it belongs to, is part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// [`prefetch`] of a value that is written soon. If another processor has written its cache line, the line is then
/// fetched once. After a prefetch for reading, the write would fetch it a second time.
#[inline]
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instruction is available only as assembly")
)]
pub(crate) fn prefetch_for_write<T>(value: &T) {
    // `_mm_prefetch` has a hint for writing. The baseline of the target lacks the instruction, so the hint compiles
    // to a prefetch for reading.
    // SAFETY: as for `prefetch`. Processors of this architecture have the instruction or ignore it, except for some that
    // Intel made before 2006.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "prefetchw byte ptr [{}]",
            in(reg) std::ptr::from_ref(value),
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Has what a key is hashed from fetched, without hashing it.
pub(crate) struct Prefetcher;

impl Hasher for Prefetcher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first() {
            prefetch(first);
        }
    }

    fn finish(&self) -> u64 {
        0
    }
}
