//! Lengths of time as people write them.

use std::time::Duration;

/// A whole number of ns, us, ms or s, of at most an hour.
///
/// # Errors
/// Why it is none, in words that follow its name.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = whole(text)?.filter(|time| *time <= TIME_MAX);
    time.ok_or_else(|| "must be at most an hour".into())
}

/// The same, of at most 730 days.
///
/// # Errors
/// As [`time`].
pub(super) fn long_time(text: &str) -> Result<Duration, String> {
    let time = whole(text)?.filter(|time| *time <= LONG_TIME_MAX);
    time.ok_or_else(|| "must be at most 730 days".into())
}

/// The same; none if it is longer than can be said.
fn whole(text: &str) -> Result<Option<Duration>, String> {
    let (count, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let nanos = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(TIME.into()),
    };
    let count: u64 = count.parse().map_err(|_| TIME)?;
    Ok(count.checked_mul(nanos).map(Duration::from_nanos))
}

/// The same, and not 0.
///
/// # Errors
/// As [`time`].
pub(crate) fn positive_time(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time.is_zero() { Err("must not be 0".into()) } else { Ok(time) }
}

const TIME: &str = "must be a whole number of ns, us, ms or s, such as 250us or 1ms";
const TIME_MAX: Duration = Duration::from_secs(3_600);
/// Twice the longest window of a limit.
pub(super) const LONG_TIME_MAX: Duration = Duration::from_secs(730 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_whole_number_and_a_unit() {
        assert_eq!(time("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        assert_eq!(time("3600s"), Ok(Duration::from_secs(3_600)));
        for wrong in ["", "1", "ms", "1.5ms", "-1ms", "1 ms", "1m"] {
            assert_eq!(time(wrong), Err(TIME.into()), "{wrong}");
        }
        for long in ["3601s", "18446744073709551615s"] {
            assert_eq!(time(long), Err("must be at most an hour".into()), "{long}");
        }
        assert_eq!(long_time("63072000s"), Ok(LONG_TIME_MAX));
        assert_eq!(long_time("63072001s"), Err("must be at most 730 days".into()));
        assert!(positive_time("0ms").is_err() && positive_time("1ns").is_ok());
    }
}
