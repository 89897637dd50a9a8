//! What a worker did so far, in numbers for people.

use std::ops::AddAssign;
use std::time::Duration;

use crate::tally::Tier;

/// What a worker did so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WorkerCounts {
    /// Units that the store has.
    pub written: u64,
    /// Units of which it is not known whether the store has them.
    pub unknown: u64,
    /// Units that found no place among those that wait.
    pub dropped: u64,
    /// Units that the store refused for good.
    pub refused: u64,
    /// Units of windows that nobody reads any more.
    pub late: u64,
    /// Keys that got a cell.
    pub begun: u64,
    /// Keys that were read.
    pub read: u64,
    /// Keys whose reading failed.
    pub read_failed: u64,
    /// Keys that left since nobody had asked for them for long.
    pub rested: u64,
    /// Keys that left to make room for others.
    pub displaced: u64,
    /// How often a key that was read had gone from one [`Tier`] to another, from the first index to
    /// the second.
    pub transitions: [[u64; 4]; 4],
    /// When a key was read, how far its level here and what was read were apart, in parts of the
    /// threshold.
    pub drift: Histogram<{ DRIFT_BOUNDS.len() }>,
    /// When a key was read again, how long ago it was read before, in seconds.
    pub staleness: Histogram<{ STALENESS_BOUNDS.len() }>,
}

/// How many values were how large.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Histogram<const N: usize> {
    /// How many were at most each of the bounds, and above the one before.
    pub counts: [u64; N],
    /// How many were above the last.
    pub above: u64,
    /// Their sum.
    pub sum: f64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self { counts: [0; N], above: 0, sum: 0.0 }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a value by these bounds, which are the same each time.
    pub fn add(&mut self, bounds: &[f64; N], value: f64) {
        self.sum += value;
        match bounds.iter().position(|bound| value <= *bound) {
            Some(place) => self.counts[place] += 1,
            None => self.above += 1,
        }
    }
}

impl<const N: usize> AddAssign for Histogram<N> {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.above += other.above;
        self.sum += other.sum;
    }
}

impl WorkerCounts {
    /// A key was read.
    pub(super) fn note_read(&mut self, drift: f64, age: Option<Duration>, tiers: (Tier, Tier)) {
        self.read += 1;
        if let Some(age) = age {
            self.drift.add(&DRIFT_BOUNDS, drift);
            self.staleness.add(&STALENESS_BOUNDS, age.as_secs_f64());
        }
        if tiers.0 != tiers.1 {
            self.transitions[tiers.0 as usize][tiers.1 as usize] += 1;
        }
    }
}

impl AddAssign for WorkerCounts {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.unknown += other.unknown;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.late += other.late;
        self.begun += other.begun;
        self.read += other.read;
        self.read_failed += other.read_failed;
        self.rested += other.rested;
        self.displaced += other.displaced;
        let transitions = self.transitions.iter_mut().flatten();
        transitions.zip(other.transitions.iter().flatten()).for_each(|(sum, one)| *sum += one);
        self.drift += other.drift;
        self.staleness += other.staleness;
    }
}

/// Up to where each count of [`WorkerCounts::drift`] goes.
pub const DRIFT_BOUNDS: [f64; 8] = [0.001, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
/// Up to where each count of [`WorkerCounts::staleness`] goes.
pub const STALENESS_BOUNDS: [f64; 8] = [1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0];
