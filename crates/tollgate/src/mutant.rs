//! Whether a rule is taken away, so that a test can be seen to fail without it.
//!
//! Where a rule is applied, the code asks [`lacks`]. In every build that anybody uses the answer is
//! a constant, and the question leaves no instruction. Under `--cfg tollgate_mutants` it is asked
//! at run time, so that one build is every mutant: `TOLLGATE_MUTANT` names the rule that the
//! process goes without, or `set_mutant` does. No name is known here; `tests/mutants.txt` has them.

#[cfg(tollgate_mutants)]
pub use in_force::{lacks, set_mutant};

/// Whether this process goes without `rule`: never.
#[cfg(not(tollgate_mutants))]
#[inline(always)]
pub const fn lacks(_rule: &str) -> bool {
    false
}

/// The rule that is taken away, for the whole process.
#[cfg(tollgate_mutants)]
mod in_force {
    // Not `cell`'s: loom is to try what the mutant does, not when it was chosen.
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Whether this process goes without `rule`.
    #[inline]
    pub fn lacks(rule: &str) -> bool {
        // Relaxed: nothing is read by way of it, and two threads that ask first find the same.
        let in_force = match IN_FORCE.load(Relaxed) {
            UNASKED => ask(),
            known => known,
        };
        in_force == digest(rule)
    }

    /// From now on the process goes without `rule`, and has the one that it went without before.
    /// The empty name takes nothing away.
    pub fn set_mutant(rule: &'static str) {
        IN_FORCE.store(digest(rule), Relaxed);
    }

    #[cold]
    fn ask() -> u64 {
        let named = digest(&std::env::var("TOLLGATE_MUTANT").unwrap_or_default());
        // What was set meanwhile stays.
        match IN_FORCE.compare_exchange(UNASKED, named, Relaxed, Relaxed) {
            Ok(_) => named,
            Err(set) => set,
        }
    }

    /// FNV-1a: a number to compare instead of a text, which an atomic cannot hold.
    #[inline]
    const fn digest(rule: &str) -> u64 {
        let bytes = rule.as_bytes();
        let (mut digest, mut index) = (0xcbf2_9ce4_8422_2325_u64, 0);
        while index < bytes.len() {
            digest = (digest ^ bytes[index] as u64).wrapping_mul(0x100_0000_01b3);
            index += 1;
        }
        digest
    }

    static IN_FORCE: AtomicU64 = AtomicU64::new(UNASKED);
    /// No name has this digest, short of a 64-bit coincidence.
    const UNASKED: u64 = 0;
}
