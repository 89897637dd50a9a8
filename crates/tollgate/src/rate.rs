//! A rate as people write it: units per period, kept as the two integers that were written.

use std::fmt;
use std::time::Duration;

/// Units per period: `5000/s`, `60/15min`, `1GiB/s`, or [`Rate::ZERO`].
///
/// Rates run from 1 unit per 365 days to 10^12 units per second. Both numbers are kept, so that
/// nothing is lost before they become token time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    units: u64,
    period_ns: u64,
}

impl Rate {
    /// Nothing ever comes back: what the burst held is all there is.
    pub const ZERO: Self = Self { units: 0, period_ns: NANOS_PER_SECOND };

    /// `units` per `period_ns` nanoseconds.
    ///
    /// # Errors
    /// When the period is zero or above 365 days, or the rate is zero or above 10^12 per second.
    pub fn new(units: u64, period_ns: u64) -> Result<Self, RateError> {
        if period_ns == 0 {
            return Err(RateError::ZeroPeriod);
        }
        if period_ns > PERIOD_NS_MAX {
            return Err(RateError::PeriodTooLong);
        }
        if units == 0 {
            return Err(RateError::ZeroUnits);
        }
        let scaled = u128::from(units) * u128::from(NANOS_PER_SECOND);
        if scaled > u128::from(period_ns) * u128::from(UNITS_PER_SECOND_MAX) {
            return Err(RateError::TooFast);
        }
        Ok(Self { units, period_ns })
    }

    /// Reads `"<units>/<period>"`.
    ///
    /// Units are a whole number, with an optional byte suffix (`kB MB GB TB` are powers of 1000,
    /// `KiB MiB GiB TiB` powers of 1024, `B` is 1). A period is `ns`, `us`, `ms`, `s`, `min`, `h`
    /// or `d`, with an optional whole number before it. The word `zero` is [`Rate::ZERO`].
    ///
    /// ```
    /// use tollgate::Rate;
    /// let rate = Rate::parse("60/15min")?;
    /// assert_eq!((rate.units(), rate.period_ns()), (60, 900_000_000_000));
    /// assert_eq!(Rate::parse("1GiB/s")?.units(), 1_073_741_824);
    /// # Ok::<(), tollgate::RateError>(())
    /// ```
    ///
    /// # Errors
    /// When the text has another form, or as [`Rate::new`] does.
    pub fn parse(text: &str) -> Result<Self, RateError> {
        if text == "zero" {
            return Ok(Self::ZERO);
        }
        let (units, period) = text.split_once('/').ok_or(RateError::Form)?;
        let (count, suffix) = split_number(units.trim());
        if suffix.starts_with(['.', ',', '_', 'e', 'E']) {
            return Err(RateError::NotWhole);
        }
        let units = number(count)?.checked_mul(unit_size(suffix)?).ok_or(RateError::TooFast)?;
        let (count, suffix) = split_number(period.trim());
        let count = if count.is_empty() { 1 } else { number(count)? };
        let period_ns = count.checked_mul(period_size(suffix)?).ok_or(RateError::PeriodTooLong)?;
        Self::new(units, period_ns)
    }

    /// Units in each period.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.units
    }

    /// Units in a second, about: for what is shown or weighed, not for what is decided.
    ///
    /// `60/15min` is 0.0667.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.units as f64 * NANOS_PER_SECOND as f64 / self.period_ns as f64
    }

    /// Units that come in this time, rounded up.
    ///
    /// 100/min brings 2 in a second.
    #[must_use]
    pub fn brings(self, time: Duration) -> u64 {
        let units = u128::from(self.units).saturating_mul(time.as_nanos());
        u64::try_from(units.div_ceil(u128::from(self.period_ns))).unwrap_or(u64::MAX)
    }

    /// The period's length in nanoseconds.
    #[must_use]
    pub const fn period_ns(self) -> u64 {
        self.period_ns
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.units == 0 {
            return f.write_str("zero");
        }
        let (size, name) = PERIODS
            .iter()
            .rev()
            .find(|(size, _)| self.period_ns.is_multiple_of(*size))
            .unwrap_or(&PERIODS[0]);
        match self.period_ns / size {
            1 => write!(f, "{}/{name}", self.units),
            count => write!(f, "{}/{count}{name}", self.units),
        }
    }
}

/// Why a rate was refused. Nothing is changed by a refused rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateError {
    /// Not of the form units/period.
    Form,
    /// Units that are no whole number.
    NotWhole,
    /// A unit suffix that is not known.
    UnknownUnit,
    /// A period that is not known.
    UnknownPeriod,
    /// A period of length zero.
    ZeroPeriod,
    /// Zero units: the word `zero` says that.
    ZeroUnits,
    /// A period of more than 365 days.
    PeriodTooLong,
    /// More than 10^12 units per second.
    TooFast,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "must be units/period such as \"5000/s\", or \"zero\" or \"unlimited\"",
            Self::NotWhole => {
                "units must be a whole number in plain digits; \"3/2s\" is 1.5 a second"
            }
            Self::UnknownUnit => {
                "unit is not one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB (or none)"
            }
            Self::UnknownPeriod => "period is not one of ns, us, ms, s, min, h, d",
            Self::ZeroPeriod => "period must not be zero",
            Self::ZeroUnits => "must not be 0; write \"zero\" for a limit that admits nothing more",
            Self::PeriodTooLong => "period must be at most 365 days",
            Self::TooFast => "must be at most 10^12 units per second",
        })
    }
}

impl std::error::Error for RateError {}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

fn number(digits: &str) -> Result<u64, RateError> {
    if digits.is_empty() {
        return Err(RateError::Form);
    }
    digits.parse().map_err(|_| RateError::TooFast)
}

fn unit_size(suffix: &str) -> Result<u64, RateError> {
    Ok(match suffix {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(RateError::UnknownUnit),
    })
}

fn period_size(suffix: &str) -> Result<u64, RateError> {
    let known = PERIODS.iter().find(|(_, name)| *name == suffix);
    known.map(|(size, _)| *size).ok_or(RateError::UnknownPeriod)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const PERIODS: [(u64, &str); 7] = [
    (1, "ns"),
    (1_000, "us"),
    (1_000_000, "ms"),
    (NANOS_PER_SECOND, "s"),
    (60 * NANOS_PER_SECOND, "min"),
    (3_600 * NANOS_PER_SECOND, "h"),
    (86_400 * NANOS_PER_SECOND, "d"),
];
const PERIOD_NS_MAX: u64 = 365 * 86_400 * NANOS_PER_SECOND;
const UNITS_PER_SECOND_MAX: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (u64, u64) {
        let rate = Rate::parse(text).expect(text);
        (rate.units(), rate.period_ns())
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        assert_eq!(parsed("5000/s"), (5_000, 1_000_000_000));
        assert_eq!(parsed("1/365d"), (1, 31_536_000_000_000_000));
        assert_eq!(parsed("1TB/s"), (1_000_000_000_000, 1_000_000_000));
        assert_eq!(parsed("64KiB / 100ms"), (65_536, 100_000_000));
        assert_eq!(parsed("7/h"), (7, 3_600_000_000_000));
    }

    #[test]
    fn a_rate_is_shown_as_it_would_be_written() {
        for text in ["5000/s", "60/15min", "1/365d", "3/250ms", "zero", "7/90s"] {
            assert_eq!(Rate::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_with_its_reason() {
        for (text, error) in [
            ("", RateError::Form),
            ("5000", RateError::Form),
            ("/s", RateError::Form),
            ("-1/s", RateError::Form),
            ("NaN/s", RateError::Form),
            ("1.5/s", RateError::NotWhole),
            ("1e6/s", RateError::NotWhole),
            ("1_000/s", RateError::NotWhole),
            ("5 parsecs/s", RateError::UnknownUnit),
            ("5/fortnight", RateError::UnknownPeriod),
            ("5/", RateError::UnknownPeriod),
            ("5/0s", RateError::ZeroPeriod),
            ("0/s", RateError::ZeroUnits),
            ("1/366d", RateError::PeriodTooLong),
            ("1/99999999999999999d", RateError::PeriodTooLong),
            ("1000000000001/s", RateError::TooFast),
            ("99999999999999999999/s", RateError::TooFast),
            ("18446744073709551615TiB/s", RateError::TooFast),
        ] {
            assert_eq!(Rate::parse(text), Err(error), "{text}");
        }
    }
}
