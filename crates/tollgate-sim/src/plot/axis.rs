//! Axes: from values to places, and the round values between them (1, 2 or 5 times a power of ten).

use crate::number::tick;

/// A range of values along so many pixels from `start`; a negative length runs upwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    start: f64,
    length: f64,
}

/// Values that are spread evenly over a range, and how they are written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ticks {
    pub(super) step: f64,
    pub(super) values: Vec<f64>,
}

impl Scale {
    /// From the least to the greatest of these values. What has no extent is given some.
    pub(super) fn over(values: impl Iterator<Item = f64>, start: f64, length: f64) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let least = f64::max(high.abs(), low.abs()) * 1e-9;
        let high = if high - low > least { high } else { low + f64::max(least, 1.0) };
        Self { low, high, start, length }
    }

    /// The same, from zero, and widened to the next of some `count` round values.
    pub(super) fn from_zero(
        values: impl Iterator<Item = f64>,
        count: usize,
        start: f64,
        length: f64,
    ) -> Self {
        let scale = Self::over(values.chain([0.0]), start, length);
        let step = round_step(scale.high - scale.low, count);
        let (low, high) = ((scale.low / step).floor() * step, (scale.high / step).ceil() * step);
        Self { low, high, ..scale }
    }

    /// Where a value is.
    pub(super) fn place(self, value: f64) -> f64 {
        self.start + (value - self.low) / (self.high - self.low) * self.length
    }

    /// The value, or the end of the range that is next to it.
    pub(super) fn clamp(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// At most some `count` round values within the range.
    pub(super) fn ticks(self, count: usize) -> Ticks {
        let step = round_step(self.high - self.low, count);
        // Rounding must not lose the values at the ends.
        let first = (self.low / step - 1e-6).ceil();
        let last = (self.high / step + 1e-6).floor();
        let all = (0..TICKS_MAX).map(|index| first + index as f64);
        let values = all.take_while(|index| *index <= last).map(|index| self.clamp(index * step));
        Ticks { step, values: values.collect() }
    }

    /// How the values of its ticks are written.
    pub(super) fn label(self, value: f64, step: f64) -> String {
        tick(value, step, f64::max(self.low.abs(), self.high.abs()))
    }
}

/// A value that can be drawn.
pub(super) fn is_drawn(value: f64) -> bool {
    value.abs() <= VALUE_MAX
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| is_drawn(*value)).fold(None, |extent, value| {
        let (low, high) = extent.unwrap_or((value, value));
        Some((f64::min(low, value), f64::max(high, value)))
    })
}

/// The least of 1, 2 and 5 times a power of ten that divides the range into at most `count` parts.
fn round_step(range: f64, count: usize) -> f64 {
    let rough = range / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough * (1.0 - 1e-9));
    times.unwrap_or(10.0) * power
}

const TICKS_MAX: usize = 200;
/// Differences of such values are finite too.
const VALUE_MAX: f64 = 1e300;

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
        Scale::over([low, high].into_iter(), 0.0, 100.0).ticks(count).values
    }

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(ticks(0.0, 400.0, 5), [0.0, 100.0, 200.0, 300.0, 400.0]);
        assert_eq!(ticks(3.0, 17.0, 8), [4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
        assert_eq!(ticks(-1.0, 1.0, 4), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        let tenths: Vec<i64> =
            ticks(0.0, 1.0, 10).iter().map(|v| (v * 10.0).round() as i64).collect();
        assert_eq!(tenths, (0..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_range_without_extent_or_values_gets_one() {
        for values in [vec![], vec![7.0], vec![f64::NAN, f64::INFINITY], vec![1e300; 2], vec![0.0]]
        {
            let scale = Scale::over(values.iter().copied(), 10.0, 100.0);
            let ticks = scale.ticks(5);
            assert!(!ticks.values.is_empty() && ticks.values.len() <= 6, "{values:?} {ticks:?}");
            assert!((10.0..=110.0).contains(&scale.place(ticks.values[0])), "{values:?}");
        }
        let far = Scale::over([-1e300, 1e300].into_iter(), 0.0, 1.0).ticks(4);
        assert_eq!(far.values.len(), 5);
    }

    #[test]
    fn an_axis_from_zero_ends_at_a_round_value() {
        let scale = Scale::from_zero([3.0, 14_500.0].into_iter(), 5, 100.0, -100.0);
        assert_eq!((scale.low, scale.high), (0.0, 15_000.0));
        assert!((scale.place(0.0) - 100.0).abs() < 1e-9 && scale.place(15_000.0).abs() < 1e-9);
        let below = Scale::from_zero([-7.0, -3.0].into_iter(), 5, 0.0, 1.0);
        assert_eq!((below.low, below.high), (-8.0, 0.0));
    }
}
