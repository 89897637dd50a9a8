//! Whether an owner's answer can be true. One that can't is dropped whole.
//!
//! Whether the key is known, and whether the answer comes from its owner, is not known here.

use std::fmt;

use crate::mutant::lacks;

/// What an owner says of one key to one member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reply {
    /// The member's share, in units a second; at most the limit's rate.
    pub rate: f64,
    /// The member's part of all that is asked for, in 0 to 1.
    pub weight: f64,
    /// What the fleet was allowed, in units a second.
    pub used: f64,
}

impl Reply {
    /// Whether all of it can be true of a limit of so many units a second.
    ///
    /// A rate of 30, a weight of 0.25 and 120 used can be of a limit of 100; a rate of 101 can't.
    ///
    /// # Errors
    /// The first field that can't be; nothing of the reply is to be used then.
    pub fn check(&self, limit: f64) -> Result<(), InsaneReply> {
        let Self { rate, weight, used } = *self;
        for (field, value) in [("rate", rate), ("weight", weight), ("used", used)] {
            let is_sane = value >= 0.0 && value.is_finite();
            if !is_sane && !lacks("share_replies_are_numbers") {
                return Err(InsaneReply::NoAmount { field, value });
            }
        }
        if weight > 1.0 && !lacks("share_weights_are_parts") {
            return Err(InsaneReply::WeightAboveOne { weight });
        }
        if rate > limit && !lacks("share_rates_are_within_the_limit") {
            return Err(InsaneReply::RateAboveLimit { rate, limit });
        }
        Ok(())
    }
}

/// Why a reply can't be true.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InsaneReply {
    /// Below zero, infinite or not a number.
    NoAmount {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A part of more than all.
    WeightAboveOne {
        /// The value.
        weight: f64,
    },
    /// More than the limit has.
    RateAboveLimit {
        /// The value.
        rate: f64,
        /// The limit's rate.
        limit: f64,
    },
}

impl fmt::Display for InsaneReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAmount { field, value } => {
                write!(f, "{field} must be finite and not below 0, not {value}; reply dropped")
            }
            Self::WeightAboveOne { weight } => {
                write!(f, "weight must be at most 1, not {weight}; reply dropped")
            }
            Self::RateAboveLimit { rate, limit } => {
                write!(f, "rate ({rate}) must be at most the limit's ({limit}); reply dropped")
            }
        }
    }
}

impl std::error::Error for InsaneReply {}

#[cfg(test)]
mod tests {
    use super::*;

    const SANE: Reply = Reply { rate: 30.0, weight: 0.25, used: 120.0 };

    #[test]
    fn what_can_be_is_taken() {
        for reply in [
            SANE,
            Reply { rate: 0.0, weight: 0.0, used: 0.0 },
            Reply { rate: 100.0, weight: 1.0, used: 1e12 },
        ] {
            assert_eq!(reply.check(100.0), Ok(()), "{reply:?}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused_by_its_field() {
        for value in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for (reply, name) in [
                (Reply { rate: value, ..SANE }, "rate"),
                (Reply { weight: value, ..SANE }, "weight"),
                (Reply { used: value, ..SANE }, "used"),
            ] {
                let error = reply.check(100.0).expect_err(name);
                let text = format!("{name} must be finite and not below 0, not {value}");
                assert_eq!(error.to_string(), text + "; reply dropped");
            }
        }
    }

    #[test]
    fn a_weight_above_one_is_refused() {
        let error = InsaneReply::WeightAboveOne { weight: 1.5 };
        assert_eq!(Reply { weight: 1.5, ..SANE }.check(100.0), Err(error));
        assert_eq!(error.to_string(), "weight must be at most 1, not 1.5; reply dropped");
    }

    #[test]
    fn a_rate_above_the_limits_is_refused() {
        let error = InsaneReply::RateAboveLimit { rate: 100.5, limit: 100.0 };
        assert_eq!(Reply { rate: 100.5, ..SANE }.check(100.0), Err(error));
        let text = "rate (100.5) must be at most the limit's (100); reply dropped";
        assert_eq!(error.to_string(), text);
    }
}
