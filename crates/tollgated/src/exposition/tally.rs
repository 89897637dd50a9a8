//! What `/metrics` says of limits that are counted in stores. A store's label is its number among
//! those that were given; addresses are in `/v1/limits`.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tollgate::LimitStatus;
use tollgate::tally::{DRIFT_BOUNDS, Histogram, STALENESS_BOUNDS, Tier};
use tollgate_redis::{MILLIS_BOUNDS, SIZE_BOUNDS, StoreStatus, TallyStatus};

use super::{Family, counter, gauge};

/// Shows the stores.
pub(super) fn encode(
    status: &TallyStatus,
    limits: &[LimitStatus],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let numbers: Vec<String> = (0..status.stores.len()).map(|number| number.to_string()).collect();
    let stores: Vec<(&str, &StoreStatus)> =
        numbers.iter().map(String::as_str).zip(&status.stores).collect();
    windows(limits, encoder)?;
    keys(&stores, status.nameless, encoder)?;
    units(&stores, encoder)?;
    health(&stores, encoder)?;
    errors(&stores, encoder)?;
    times(&stores, encoder)?;
    let drift = |store: &StoreStatus| of(&DRIFT_BOUNDS, &store.counts.drift, 1.0);
    let help = "When a key was read, how far its level here and what was read were apart, in parts \
                of its threshold";
    histograms("tollgate_tally_drift_ratio", help, &stores, &[("", &drift)], encoder)?;
    let staleness = |store: &StoreStatus| of(&STALENESS_BOUNDS, &store.counts.staleness, 1.0);
    let help = "When a key was read again, how long ago it was read before";
    histograms("tollgate_tally_staleness_seconds", help, &stores, &[("", &staleness)], encoder)
}

type Stores<'a> = [(&'a str, &'a StoreStatus)];
/// Finds a histogram of a store.
type Read<'a> = &'a dyn Fn(&StoreStatus) -> Shown;

/// A value of each store.
fn by_store<'a>(stores: &Stores<'a>, value: fn(&StoreStatus) -> u64) -> Family<'a> {
    Family(stores.iter().map(|(name, store)| (vec![("store", *name)], value(store))).collect())
}

/// All nodes that share a limit must show the same length.
fn windows(limits: &[LimitStatus], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut family = Family(Vec::new());
    for LimitStatus { limit, .. } in limits {
        if let Some(window) = limit.window_of(limit.allowance()) {
            let labels = [("domain", limit.domain()), ("limit", limit.name())];
            family.add(&labels, window.length().as_secs());
        }
    }
    let help = "How long the windows of a tally limit are; nodes that differ count apart";
    gauge(encoder, "tollgate_tally_window_seconds", help, family)
}

fn keys(stores: &Stores<'_>, nameless: u64, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let by_store = |value| by_store(stores, value);
    let help = "Keys that are counted in a store here";
    gauge(encoder, "tollgate_tally_keys", help, by_store(|store| store.keys as u64))?;
    let mut tiers = Family(Vec::new());
    let mut changes = Family(Vec::new());
    let mut evictions = Family(Vec::new());
    for (name, store) in stores {
        for (tier, keys) in TIERS.iter().zip(store.tiers) {
            tiers.add(&[("store", name), ("tier", tier)], keys as u64);
        }
        for (from, row) in TIERS.iter().zip(&store.counts.transitions) {
            for (to, changed) in TIERS.iter().zip(row).filter(|(to, _)| *to != from) {
                changes.add(&[("store", name), ("from", from), ("to", to)], *changed);
            }
        }
        let counts = store.counts;
        for (cause, gone) in [("rested", counts.rested), ("displaced", counts.displaced)] {
            evictions.add(&[("store", name), ("cause", cause)], gone);
        }
    }
    let help = "Keys by how near they are to their limits; of more than 10,000 now and then";
    gauge(encoder, "tollgate_tally_tier_keys", help, tiers)?;
    let help = "Keys that had gone from one tier to another when they were read";
    counter(encoder, "tollgate_tally_tier_changes", help, changes)?;
    let help = "Keys that left: nobody had asked for them for long, or others needed the room";
    counter(encoder, "tollgate_tally_evictions", help, evictions)?;
    let help = "Keys that were new here, so that their first requests passed unread";
    counter(encoder, "tollgate_tally_keys_begun", help, by_store(|store| store.counts.begun))?;
    let help = "Keys that are due to be read";
    gauge(encoder, "tollgate_tally_due_keys", help, by_store(|store| store.due as u64))?;
    let help = "Counts that wait to be written, or are being";
    gauge(encoder, "tollgate_tally_waiting_counts", help, by_store(|store| store.waiting as u64))?;
    let help = "Cells that left uncounted: their key's name was lost, or their limit is gone";
    counter(encoder, "tollgate_tally_names_lost", help, Family::one(nameless))
}

fn units(stores: &Stores<'_>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let (mut units, mut reads) = (Family(Vec::new()), Family(Vec::new()));
    for (name, StoreStatus { counts, .. }) in stores {
        let fates = [
            ("written", counts.written),
            ("unknown", counts.unknown),
            ("dropped", counts.dropped),
            ("refused", counts.refused),
            ("late", counts.late),
        ];
        for (fate, count) in fates {
            units.add(&[("store", name), ("fate", fate)], count);
        }
        for (result, count) in [("ok", counts.read), ("error", counts.read_failed)] {
            reads.add(&[("store", name), ("result", result)], count);
        }
    }
    let help = "What became of units that were counted here";
    counter(encoder, "tollgate_tally_units", help, units)?;
    counter(encoder, "tollgate_tally_key_reads", "Keys that were read", reads)
}

fn health(stores: &Stores<'_>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let by_store = |value| by_store(stores, value);
    let connected = by_store(|store| u64::from(store.health.is_connected()));
    let help = "1 while all servers of a store that are in use are connected";
    gauge(encoder, "tollgate_tally_store_connected", help, connected)?;
    let may_evict = by_store(|store| {
        u64::from(store.health.servers.iter().any(|server| server.may_evict.is_some()))
    });
    let help = "1 if a store may evict counters when its memory is full";
    gauge(encoder, "tollgate_tally_store_may_evict", help, may_evict)?;
    let silent = by_store(|store| store.silent_for.map_or(0, |time| time.as_secs()));
    let help = "For how long reads of a store have gone unanswered";
    gauge(encoder, "tollgate_tally_store_silent_seconds", help, silent)?;
    let help = "Commands that were sent to a store";
    let commands = by_store(|store| store.health.counts.commands);
    counter(encoder, "tollgate_tally_store_commands", help, commands)?;
    let help = "Connections that were made to a store";
    let connects = by_store(|store| store.health.counts.connects);
    counter(encoder, "tollgate_tally_store_connects", help, connects)
}

fn errors(stores: &Stores<'_>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let mut errors = Family(Vec::new());
    for (name, store) in stores {
        let counts = &store.health.counts;
        let refused = &counts.refused;
        let kinds = [
            ("connect", counts.connects_failed),
            ("closed", counts.closed),
            ("write_timeout", counts.writes_timed_out),
            ("read_timeout", counts.reads_timed_out),
            ("expiry", counts.expiries_failed),
            ("readonly", refused.readonly),
            ("loading", refused.loading),
            ("out_of_memory", refused.oom),
            ("auth", refused.auth),
            ("cluster", refused.cluster),
            ("busy", refused.busy),
            ("value", refused.value),
            ("other", refused.other),
        ];
        for (kind, count) in kinds {
            errors.add(&[("store", name), ("kind", kind)], count);
        }
    }
    let help = "What went wrong with a store, by kind; operating.md says what to do";
    counter(encoder, "tollgate_tally_store_errors", help, errors)
}

fn times(stores: &Stores<'_>, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let millis = |histogram: &_| of(&MILLIS_BOUNDS, histogram, 0.001);
    let writes = |store: &StoreStatus| millis(&store.meters.writes);
    let reads = |store: &StoreStatus| millis(&store.meters.reads);
    let help = "How long a command of a store took";
    let name = "tollgate_tally_command_seconds";
    histograms(name, help, stores, &[("write", &writes), ("read", &reads)], encoder)?;
    let writes = |store: &StoreStatus| of(&SIZE_BOUNDS, &store.meters.write_sizes, 1.0);
    let reads = |store: &StoreStatus| of(&SIZE_BOUNDS, &store.meters.read_sizes, 1.0);
    let help = "How many keys were in a command";
    let name = "tollgate_tally_command_keys";
    histograms(name, help, stores, &[("write", &writes), ("read", &reads)], encoder)?;
    let ticks = |store: &StoreStatus| millis(&store.meters.ticks);
    let help = "From the first command of a step to its last answer";
    histograms("tollgate_tally_step_seconds", help, stores, &[("", &ticks)], encoder)
}

/// A histogram as it is shown: its sum, and how many were up to each bound and above the one
/// before.
struct Shown {
    sum: f64,
    buckets: Vec<(f64, u64)>,
}

fn of<const N: usize>(bounds: &[f64; N], histogram: &Histogram<N>, unit: f64) -> Shown {
    let counts = bounds.iter().map(|bound| bound * unit).zip(histogram.counts);
    let buckets = counts.chain([(f64::INFINITY, histogram.above)]).collect();
    Shown { sum: histogram.sum * unit, buckets }
}

/// One family of histograms, one for each store and, if they have names, operation.
fn histograms(
    name: &str,
    help: &str,
    stores: &Stores<'_>,
    operations: &[(&str, Read<'_>)],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (number, store) in stores {
        for (operation, read) in operations {
            let Shown { sum, buckets } = read(store);
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = [("store", *number), ("operation", *operation)];
            let labels = if operation.is_empty() { &labels[..1] } else { &labels[..] };
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
    }
    Ok(())
}

/// In the order of [`Tier`].
const TIERS: [&str; 4] = ["idle", "low", "normal", "hot"];
const _: () = assert!(Tier::Idle as usize == 0 && Tier::Hot as usize == 3);
