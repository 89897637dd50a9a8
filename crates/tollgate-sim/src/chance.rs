//! Chance from a seed: the same on every machine, so that a run can be had again.

/// A generator (xoshiro256++, Blackman and Vigna 2019), seeded by SplitMix64.
#[derive(Debug, Clone)]
pub struct Chance([u64; 4]);

impl Chance {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        Self([next(), next(), next(), next()])
    }

    /// Any number.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        let span = u128::from(high - low) + 1;
        low + ((u128::from(self.bits()) * span) >> 64) as u64
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of a few.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() as u64 - 1) as usize]
    }

    /// The time to the next of events that come at this rate (per second), independently (ns).
    pub fn gap(&mut self, per_second: f64) -> u64 {
        let seconds = -(1.0 - self.fraction()).ln() / per_second;
        (seconds * 1e9).clamp(1.0, 1e18) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_everywhere() {
        let mut chance = Chance::new(1);
        let first: Vec<u64> = (0..3).map(|_| chance.bits()).collect();
        let mut again = Chance::new(1);
        assert_eq!(first, (0..3).map(|_| again.bits()).collect::<Vec<_>>());
        let drawn: Vec<u64> = (0..1_000).map(|_| chance.between(3, 5)).collect();
        assert!((3..=5).all(|n| drawn.contains(&n)));
        assert!(drawn.iter().all(|n| (3..=5).contains(n)));
    }
}
