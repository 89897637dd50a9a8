//! What parameters must be beside each other, and beside the windows of the limits: what is refused
//! here would let more pass, or work for nothing, without anybody noticing.

use std::fmt;
use std::time::Duration;

use tollgate::tally::WorkerOptions;
use tollgate::{Limit, TallyOptions};

use super::super::Reading;
use super::super::finding::Findings;
use super::super::set::Checked;
use super::parameter::Said;
use super::{Given, TallySettings};

/// How the stores are used of which this is said, where these limits are counted.
pub(in super::super) fn settle(
    mut given: Given,
    checked: &[Checked],
    reading: Reading<'_>,
    findings: &mut Findings<'_>,
) -> TallySettings {
    let windows = checked.iter().filter_map(|one| Some((window_of(&one.limit)?, one)));
    let shortest = windows.clone().map(|(window, _)| window).min();
    if !given.tick.is_given {
        let least = shortest.map_or(Duration::MAX, |window| (window / TICKS_GOOD).max(TICK_LEAST));
        given.tick.value = given.tick.value.min(given.sync.value).min(least);
    }
    let longest = windows.clone().max_by_key(|(window, _)| *window);
    let longest = longest.map(|(time, one)| Longest { time, limit: &one.draft.name });
    check_times(&given, findings);
    if let Some(longest) = longest {
        check_windows(&given, longest, findings);
        warn_of_keys(&given.keys_max, reading.keys_max, findings);
    }
    for (window, one) in windows {
        warn_of_ticks(&given.tick, window, one, findings);
    }
    settings(given, longest.map(|longest| longest.time))
}

/// The longest window, and whose it is.
#[derive(Debug, Clone, Copy)]
struct Longest<'c> {
    time: Duration,
    limit: &'c str,
}

impl fmt::Display for Longest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the longest window, {:?} of limit {:?}", self.time, self.limit)
    }
}

/// The windows of a limit; none if its keys are not counted. Those of overrides are the same, where
/// the limit itself has any.
fn window_of(limit: &Limit) -> Option<Duration> {
    let own = limit.overrides().iter().map(|one| one.allowance());
    let mut allowances = [limit.allowance()].into_iter().chain(own);
    Some(allowances.find_map(|allowance| limit.window_of(allowance))?.length())
}

fn check_times(given: &Given, findings: &mut Findings<'_>) {
    let Given { sync, tick, ttl, idle, .. } = given;
    if tick.value > sync.value {
        let place = if tick.is_given { tick.place } else { sync.place };
        let message = format!("{tick} must be at most {sync}: keys are read in ticks");
        findings.error(place, message);
    }
    if idle.value >= ttl.value && ttl.is_given {
        let place = if idle.is_given { idle.place } else { ttl.place };
        findings.error(place, format!("{idle} must be less than {ttl}"));
    }
    let low = sync.value.saturating_mul(4);
    if idle.is_given && idle.value < low {
        let message = format!(
            "{idle} must be at least {low:?}, 4 x {sync}: a key below half of its threshold would \
             be forgotten between two reads"
        );
        findings.error(idle.place, message);
    }
}

fn check_windows(given: &Given, longest: Longest<'_>, findings: &mut Findings<'_>) {
    for time in [&given.idle, &given.ttl] {
        if time.is_given && time.value < longest.time {
            let message = format!(
                "{time} must be at least {longest}: a key would forget a window that still counts"
            );
            findings.error(time.place, message);
        }
    }
    let least = longest.time.saturating_mul(2);
    if let Some(ttl) = given.store_ttl.filter(|ttl| ttl.value < least) {
        let message = format!(
            "{ttl} must be at least {least:?}, twice {longest}: the count of the window before \
             would be gone while it still counts, and who is limited would get free time"
        );
        findings.error(ttl.place, message);
    }
}

fn warn_of_keys(keys: &Said<u64>, keys_max: u64, findings: &mut Findings<'_>) {
    if keys.is_given && keys.value > keys_max {
        findings.warning(keys.place, format!("{keys} is bounded by --keys-max = {keys_max}"));
    }
}

fn warn_of_ticks(
    tick: &Said<Duration>,
    window: Duration,
    one: &Checked,
    findings: &mut Findings<'_>,
) {
    if window < tick.value.saturating_mul(TICKS_FEW) {
        let message = format!(
            "limit {:?}: its windows of {window:?} are shorter than {TICKS_FEW} ticks of {tick}: \
             nodes hear of each other too late to keep it; set tick_interval to {:?} or less",
            one.draft.name,
            window / TICKS_FEW,
        );
        findings.warning(one.draft.places.of("rate"), message);
    }
}

fn settings(given: Given, longest: Option<Duration>) -> TallySettings {
    let count = |said: Said<u64>| usize::try_from(said.value).unwrap_or(usize::MAX);
    let idle = match given.idle.is_given {
        true => given.idle.value,
        // Two windows are a key's own business.
        false => given.idle.value.max(given.sync.value.saturating_mul(4)),
    };
    let longest = longest.unwrap_or(GRACE);
    let spare = given
        .store_ttl
        .map_or(Duration::ZERO, |ttl| ttl.value.saturating_sub(longest.saturating_mul(2)));
    let worker = WorkerOptions {
        tick: given.tick.value,
        sync: given.sync.value,
        floor: given.floor.value,
        read_outage_max: given.read_outage.map(|time| match time.value {
            Duration::ZERO => Duration::MAX,
            time => time,
        }),
        nodes: given.nodes.value,
        keys_max: count(given.keys_max),
        idle,
        writes_max: count(given.writes_max),
        writes_per_tick: count(given.writes_max),
        reads_per_tick: count(given.reads_per_tick),
        keys_per_command: count(given.keys_per_command),
    };
    TallySettings {
        options: TallyOptions {
            prefix: given.prefix,
            stores: given.stores.len(),
            worker,
            // What is left of the time of a counter; a window is the most that has a meaning.
            grace: spare.min(longest).max(GRACE),
        },
        stores: given.stores,
        read_timeout: given.read_timeout.value,
        write_timeout: given.write_timeout.value,
        commands_max: count(given.commands_max),
        reconnect_interval: given.reconnect_interval.value,
    }
}

/// How many ticks a window has at least, unless it is said how long they are.
const TICKS_GOOD: u32 = 40;
const TICK_LEAST: Duration = Duration::from_millis(50);
/// Windows of fewer ticks are not worth having.
const TICKS_FEW: u32 = 10;
/// The least that a counter outlives its reading, for clocks that differ.
const GRACE: Duration = Duration::from_secs(5);
