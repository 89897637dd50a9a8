//! The keys that every limiter is asked for, and the order in which it is.
//!
//! Keys are 16 bytes, `user:` and eleven digits. A stream is drawn before anything is timed, so
//! that a check costs the load of one key and no random number.

use std::sync::Arc;

/// A key's bytes.
pub type Key = [u8; 16];

/// Checks that a worker makes at a time.
pub const CHUNK: usize = 1024;

/// The key with this number.
pub fn key(number: u64) -> Key {
    let mut key = *b"user:00000000000";
    let mut rest = number;
    for digit in key[5..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A key as text, for the limiters that ask for that.
pub fn text(key: &Key) -> &str {
    std::str::from_utf8(key).expect("keys are ASCII")
}

/// `requests` keys, each drawn uniformly from the first `keys`.
pub fn stream(keys: u64, requests: usize) -> Arc<[Key]> {
    assert!(requests.is_multiple_of(CHUNK), "a stream is read in whole chunks");
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let draw = |_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let wide = u128::from(mixed ^ (mixed >> 31)) * u128::from(keys);
        key((wide >> 64) as u64)
    };
    (0..requests).map(draw).collect()
}

/// Where one worker is in a stream; it starts over at the end.
pub struct Cursor {
    stream: Arc<[Key]>,
    at: usize,
}

impl Cursor {
    /// Worker `index` of `workers`: they start evenly apart.
    pub fn new(stream: &Arc<[Key]>, index: usize, workers: usize) -> Self {
        let chunks = stream.len() / CHUNK;
        Self { stream: stream.clone(), at: chunks * index / workers * CHUNK }
    }

    /// The next keys to check.
    pub fn chunk(&mut self) -> &[Key] {
        let start = self.at;
        self.at = (start + CHUNK) % self.stream.len();
        &self.stream[start..start + CHUNK]
    }
}
