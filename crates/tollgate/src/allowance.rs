//! How much a key may use, checked as it was written.
//!
//! It knows neither whose allowance it is, nor what was used of it.

use std::fmt;

use crate::gcra::{BURST_MAX, Meter};
use crate::rate::Rate;

/// How much a key may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// Everything passes.
    Unlimited,
    /// At most `burst` units at one instant and `burst + rate x t` in any interval t.
    Metered {
        /// The sustained rate.
        rate: Rate,
        /// Units at one instant after a rest.
        burst: u64,
    },
}

impl Allowance {
    pub(crate) fn parse(rate: &str, burst: Option<u64>, ratio: Option<f64>) -> Result<Self, Fault> {
        if rate == "unlimited" {
            return match (burst, ratio) {
                (None, None) => Ok(Self::Unlimited),
                (Some(burst), _) => Err(Fault::new("burst", burst, UNLIMITED_BURST)),
                (None, Some(ratio)) => Err(Fault::new("burst_ratio", ratio, UNLIMITED_BURST)),
            };
        }
        let parsed = Rate::parse(rate).map_err(|error| Fault::new("rate", rate, error))?;
        let asked = match (burst, ratio) {
            (Some(burst), Some(_)) => {
                return Err(Fault::new("burst", burst, "excludes burst_ratio; give one of them"));
            }
            (Some(0), None) if parsed != Rate::ZERO => {
                let reason = "must be at least 1; write rate = \"zero\" to admit nothing";
                return Err(Fault::new("burst", 0, reason));
            }
            (Some(burst), None) => burst,
            (None, Some(ratio)) => ratio_burst(parsed, ratio)?,
            (None, None) => parsed.units(),
        };
        let field = if ratio.is_some() { "burst_ratio" } else { "burst" };
        let granule = Meter::granule(parsed);
        // A default is ours to round; a written burst is kept or refused, never changed.
        let burst = if burst.is_none() { asked - asked % granule } else { asked };
        if burst % granule != 0 || (burst == 0 && parsed != Rate::ZERO) {
            let reason = format!("must be a multiple of {granule} at this rate");
            let shown = ratio.map_or_else(|| asked.to_string(), |ratio| ratio.to_string());
            return Err(Fault::new(field, shown, reason));
        }
        if burst > BURST_MAX {
            return Err(Fault::new(field, asked, "must be at most 2^62"));
        }
        Ok(Self::Metered { rate: parsed, burst })
    }
}

/// A wrong field of a limit or an override, before it is known whose it is.
pub(crate) struct Fault {
    pub(crate) field: &'static str,
    pub(crate) value: String,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(
        field: &'static str,
        value: impl fmt::Display,
        reason: impl fmt::Display,
    ) -> Self {
        Self { field, value: value.to_string(), reason: reason.to_string() }
    }

    pub(crate) fn override_field(&self) -> &'static str {
        match self.field {
            "key" => "override.key",
            "rate" => "override.rate",
            "burst" => "override.burst",
            "local_cap" => "override.local_cap",
            "bootstrap" => "override.bootstrap",
            _ => "override.burst_ratio",
        }
    }
}

fn ratio_burst(rate: Rate, ratio: f64) -> Result<u64, Fault> {
    let refuse = |reason: &str| Fault::new("burst_ratio", ratio, reason);
    if !ratio.is_finite() || ratio <= 0.0 {
        return Err(refuse("must be finite and above 0"));
    }
    if rate == Rate::ZERO {
        return Err(refuse("has no meaning with rate \"zero\"; give burst"));
    }
    let per_second = rate.per_second();
    let exact = per_second * ratio;
    // 100/s x 0.29 is 29, though the nearest f64 to 0.29 lies below it.
    let whole = exact.round();
    let burst = if (whole - exact).abs() <= whole * 1e-15 { whole } else { exact.floor() };
    if burst < 1.0 {
        return Err(refuse("gives a burst below 1 at this rate"));
    }
    if burst >= BURST_RATIO_MAX {
        return Err(refuse("gives too large a burst"));
    }
    Ok(burst as u64)
}

const UNLIMITED_BURST: &str = "has no meaning with rate \"unlimited\"";
/// The largest burst that a ratio can give: whole numbers below 2^53 are exact in an `f64`.
const BURST_RATIO_MAX: f64 = 9_007_199_254_740_992.0;
