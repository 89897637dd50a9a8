//! What one bucket of a steady rate would admit of the same requests, as a measure.

use crate::share::ledger::Ask;

/// Units that a bucket of so many units a second and at once, which is empty at first, admits.
pub(super) fn admits<'a>(asks: impl Iterator<Item = &'a Ask>, per_second: f64, burst: f64) -> f64 {
    let (mut left, mut at, mut admitted) = (0.0_f64, None, 0.0);
    for ask in asks {
        let since = ask.at - at.unwrap_or(ask.at);
        at = Some(ask.at);
        left = (left + per_second * since as f64 / 1e9).min(burst);
        let cost = ask.cost as f64;
        // Of times that are not whole nanoseconds.
        if cost <= left + 1e-6 {
            left -= cost;
            admitted += cost;
        }
    }
    admitted
}
