//! What `/v1/limits` says of the stores in which limits are counted.

use serde_json::{Value, json};
use tollgate_redis::{FailureKind, Role, Server, StoreStatus, TallyStatus};

/// The stores, in the order in which they were given.
pub(super) fn value(status: &TallyStatus) -> Value {
    status.stores.iter().map(store).collect()
}

fn store(store: &StoreStatus) -> Value {
    let StoreStatus { health, counts, .. } = store;
    let failure = health.last_failure.as_ref().map(|failure| {
        json!({
            "kind": kind(failure.kind),
            "text": failure.text,
            "seconds_ago": failure.at.elapsed().as_secs(),
        })
    });
    let [idle, low, normal, hot] = store.tiers;
    let read_again = counts.drift.counts.iter().sum::<u64>() + counts.drift.above;
    let mean = |sum: f64| (read_again > 0).then(|| sum / read_again as f64);
    json!({
        "connected": health.is_connected(),
        "servers": health.servers.iter().map(server).collect::<Vec<_>>(),
        "last_failure": failure,
        "latency_ms": health.latency.map(|latency| latency.as_secs_f64() * 1_000.0),
        "silent_seconds": store.silent_for.map(|time| time.as_secs_f64()),
        "keys": store.keys,
        "tiers": { "idle": idle, "low": low, "normal": normal, "hot": hot },
        "waiting_counts": store.waiting,
        "due_keys": store.due,
        "mean_drift": mean(counts.drift.sum),
        "mean_staleness_seconds": mean(counts.staleness.sum),
        "units": {
            "written": counts.written,
            "unknown": counts.unknown,
            "dropped": counts.dropped,
            "refused": counts.refused,
            "late": counts.late,
        },
        "key_reads": { "ok": counts.read, "error": counts.read_failed },
    })
}

fn server(server: &Server) -> Value {
    json!({
        "address": server.address,
        "role": match server.role { Role::Primary => "primary", Role::Replica => "replica" },
        "connected": server.is_connected,
        "for_seconds": server.since.elapsed().as_secs(),
        "version": server.version,
        "maxmemory": server.maxmemory,
        "may_evict": server.may_evict,
    })
}

fn kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Connect => "connect",
        FailureKind::Closed => "closed",
        FailureKind::TimedOut => "timeout",
        FailureKind::Auth => "auth",
        FailureKind::Refused => "refused",
        FailureKind::Protocol => "protocol",
    }
}
