//! How numbers are written for people: the same on charts, in tables and on the command line.
//!
//! It knows no units but those of time. Whole numbers are never rounded.

use std::time::Duration;

/// A number with thousands separators: whole ones exactly, others to four significant digits.
///
/// 14500.0 is `14,500`, 22.5 is `22.5`, 0.000204 is `0.000204`; beyond 10^15 it is `1.2e15`.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "unknown" } else { "unlimited" }.into();
    }
    if value.abs() >= WHOLE_MAX {
        return format!("{value:.3e}").replace(".000e", "e");
    }
    if value.fract() == 0.0 {
        return fixed(value, 0);
    }
    let magnitude = value.abs().log10().floor();
    trimmed(fixed(value, (3.0 - magnitude).clamp(0.0, DECIMALS_MAX) as usize))
}

/// A length of time in the largest unit of which it has one: `1 ms`, `2.1 s`, `600.2 ms`.
#[must_use]
pub fn duration(time: Duration) -> String {
    let nanos = time.as_nanos();
    let (size, name) = UNITS.into_iter().find(|(size, _)| nanos >= *size).unwrap_or((1, "s"));
    format!("{} {name}", number(nanos as f64 / size as f64))
}

/// A tick of an axis whose ticks are `step` apart; from a million on with the suffix of its size.
///
/// 2,500,000 among ticks 500,000 apart is `2.5M`, 1,500 is `1,500`.
pub(crate) fn tick(value: f64, step: f64, largest: f64) -> String {
    let (size, suffix) = match largest.abs() {
        1e12.. => (1e12, "T"),
        1e9.. => (1e9, "G"),
        1e6.. => (1e6, "M"),
        _ => (1.0, ""),
    };
    if value == 0.0 {
        return "0".into();
    }
    let decimals = (-(step / size).log10().floor()).clamp(0.0, DECIMALS_MAX) as usize;
    format!("{}{suffix}", fixed(value / size, decimals))
}

/// With so many decimals and with thousands separators.
fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut shown = String::with_capacity(text.len() + 6);
    if value < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        shown.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + fraction
}

/// Without the zeros that end a fraction.
fn trimmed(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Above it not every whole number is a 64-bit float.
const WHOLE_MAX: f64 = 1e15;
const DECIMALS_MAX: f64 = 12.0;
const UNITS: [(u128, &str); 4] =
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_exact_and_others_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (-14_500.0, "-14,500"),
            (1_099_511_627_776.0, "1,099,511,627,776"),
            (22.5, "22.5"),
            (1_234.56, "1,235"),
            (-0.25, "-0.25"),
            (0.000_204, "0.000204"),
            (99.999, "100"),
            (1e-20, "0"),
            (1e18, "1e18"),
            (1.25e15 + 0.5, "1.250e15"),
            (f64::INFINITY, "unlimited"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn a_time_is_told_in_the_unit_that_suits_it() {
        for (nanos, text) in [
            (0, "0 s"),
            (999, "999 ns"),
            (250_000, "250 us"),
            (1_000_000, "1 ms"),
            (600_200_000, "600.2 ms"),
            (2_200_200_000, "2.2 s"),
            (90_000_000_000, "90 s"),
        ] {
            assert_eq!(duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_tick_has_as_many_decimals_as_tell_it_from_its_neighbours() {
        assert_eq!(tick(2_500_000.0, 500_000.0, 3e6), "2.5M");
        assert_eq!(tick(1_500.0, 500.0, 2_000.0), "1,500");
        assert_eq!(tick(0.2, 0.1, 0.5), "0.2");
        assert_eq!(tick(0.0, 0.1, 0.5), "0");
        assert_eq!(tick(-20.0, 10.0, 30.0), "-20");
        assert_eq!(tick(4e9, 2e9, 6e9), "4G");
    }
}
