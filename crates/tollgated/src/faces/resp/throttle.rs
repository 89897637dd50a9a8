//! `CL.THROTTLE <key> <max_burst> <count> <period> [<quantity>]`, answered as redis-cell answers.
//!
//! Its numbers are exact where redis-cell's are not: no rate is too fast or too slow to be kept, a
//! wait is rounded up to the second, and any bytes are a key.

use std::borrow::Cow;
use std::fmt;

use tollgate::{Brought, BroughtError, Decision, Rate, RateError};

use super::reply::Replies;
use crate::face::Face;
use crate::faces::{seconds, wait};
use crate::service::{Brings, Service};

/// Answers one `CL.THROTTLE`, given the words behind its name.
pub(crate) fn answer(arguments: &[Cow<'_, [u8]>], service: &Service, replies: &mut Replies<'_>) {
    match decide(arguments, service) {
        Ok(decision) => write(&decision, replies),
        Err(error) => replies.error(&format!("Cell error: Store error: {error}")),
    }
}

fn decide(arguments: &[Cow<'_, [u8]>], service: &Service) -> Result<Decision, CellError> {
    let (numbers, quantity) = match arguments {
        [_, numbers @ ..] if numbers.len() == 3 => (numbers, 1),
        [_, numbers @ .., quantity] if numbers.len() == 3 => (numbers, number(quantity)?),
        _ => return Err(CellError::Usage),
    };
    let [max_burst, count, period] = [&numbers[0], &numbers[1], &numbers[2]];
    let (max_burst, count, period) = (number(max_burst)?, number(count)?, number(period)?);
    if count == 0 || period == 0 {
        return Err(CellError::ZeroRate);
    }
    let natural =
        |name, value: i64| u64::try_from(value).map_err(|_| CellError::Negative { name, value });
    let (burst, count) = (natural("max_burst", max_burst)?, natural("count", count)?);
    let period = natural("period", period)?.checked_mul(1_000_000_000);
    let rate = period.map_or(Err(RateError::PeriodTooLong), |period| Rate::new(count, period));
    let rate = rate.map_err(CellError::Rate)?;
    let brings = Brings { key: &arguments[0], rate, burst: burst + 1 };
    let decided = match u64::try_from(quantity) {
        Ok(cost) => service.throttle(Face::Resp, &brings, cost),
        // A negative quantity gives back.
        Err(_) => service.throttle_back(&brings, quantity.unsigned_abs()),
    };
    decided.map_err(CellError::Brought)
}

/// (limited, limit, remaining, retry after, reset after), the last two in seconds.
fn write(decision: &Decision, replies: &mut Replies<'_>) {
    let natural = |value: Option<u64>| i64::try_from(value.unwrap_or(0)).unwrap_or(i64::MAX);
    let whole = |until| wait(decision, until).map_or(-1, |wait| natural(Some(seconds(wait))));
    replies.array(5);
    replies.integer(i64::from(!decision.is_allowed()));
    replies.integer(natural(decision.burst()));
    replies.integer(natural(decision.remaining()));
    replies.integer(whole(decision.retry_at()));
    replies.integer(whole(decision.reset_at()));
}

/// A whole number as redis-cell reads it.
fn number(word: &[u8]) -> Result<i64, CellError> {
    let text = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| CellError::NoInteger { word: String::from_utf8_lossy(word).into_owned() })
}

/// Why a throttle was refused; nothing was spent. The first three are in redis-cell's words.
enum CellError {
    Usage,
    NoInteger { word: String },
    ZeroRate,
    Negative { name: &'static str, value: i64 },
    Rate(RateError),
    Brought(BroughtError),
}

impl fmt::Display for CellError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage => f.write_str(
                "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ),
            Self::NoInteger { word } => {
                let end =
                    word.char_indices().nth(SHOWN_CHARS_MAX).map_or(word.len(), |(end, _)| end);
                write!(f, "Couldn't parse as integer: {}", &word[..end])
            }
            Self::ZeroRate => f.write_str("Zero rates are not supported"),
            Self::Negative { name, value } => write!(f, "{name} must not be negative: {value}"),
            Self::Rate(error) => write!(f, "Rate out of range: {error}"),
            Self::Brought(BroughtError::Burst { .. }) => {
                f.write_str("max_burst must be below 2^62")
            }
            Self::Brought(BroughtError::Granule { granule }) => {
                write!(f, "max_burst + 1 must be a multiple of {granule} at this rate")
            }
            Self::Brought(BroughtError::TooManyAllowances) => {
                let most = Brought::ALLOWANCES_MAX;
                write!(f, "keys in use have {most} different limits already; nothing was spent")
            }
        }
    }
}

const SHOWN_CHARS_MAX: usize = 100;
