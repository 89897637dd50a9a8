//! The fields of a scenario file and their types. Whether their values make sense is decided by
//! `check`.

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

/// A fleet to simulate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ScenarioFile {
    /// What chance comes from; the same seed gives the same run. Left out, 1.
    #[schemars(with = "u64")]
    pub(super) seed: Option<u64>,
    /// Nodes of the fleet, 1 to 1,000. They are numbered from 1.
    #[schemars(with = "u32")]
    pub(super) nodes: Spanned<u32>,
    /// How long requests come: `"10s"`.
    #[schemars(with = "String")]
    pub(super) lasts: Spanned<String>,
    /// How messages travel between nodes. Left out, in 0.4 to 0.6 ms, and none is lost.
    #[serde(default)]
    pub(super) network: NetworkTable,
    /// How wrong the nodes' clocks go, at most, either way: 50. At most 500 parts per million, the
    /// error that the fleet allows for. Left out, 0.
    #[schemars(with = "u32")]
    pub(super) drift_ppm: Option<Spanned<u32>>,
    /// What owners do that lose the coordinator: `"serve"` or `"deny"`. Left out, the daemon's own.
    #[schemars(with = "OnLoss")]
    pub(super) on_coordinator_loss: Option<OnLoss>,
    /// How often a worker reports a key near its limit, 1 ms to 100 ms. Left out, `"5ms"`.
    #[schemars(with = "String")]
    pub(super) sync_interval: Option<Spanned<String>>,
    /// The limits that the fleet shares.
    #[serde(default)]
    #[schemars(with = "Vec<LimitTable>")]
    pub(super) limit: Vec<Spanned<LimitTable>>,
    /// What is asked of them.
    #[serde(default)]
    #[schemars(with = "Vec<DemandTable>")]
    pub(super) demand: Vec<Spanned<DemandTable>>,
    /// What goes wrong.
    #[serde(default)]
    #[schemars(with = "Vec<FaultTable>")]
    pub(super) fault: Vec<Spanned<FaultTable>>,
}

/// How messages travel.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct NetworkTable {
    /// What a message takes, one way: `"1ms"`. Not beside `delay_min` and `delay_max`.
    #[schemars(with = "String")]
    pub(super) delay: Option<Spanned<String>>,
    /// What it takes at least.
    #[schemars(with = "String")]
    pub(super) delay_min: Option<Spanned<String>>,
    /// What it takes at most; messages overtake each other then.
    #[schemars(with = "String")]
    pub(super) delay_max: Option<Spanned<String>>,
    /// The part of messages that is lost, 0 to 1: 0.05.
    #[schemars(with = "f64")]
    pub(super) loss: Option<Spanned<f64>>,
    /// The part of messages that comes twice.
    #[schemars(with = "f64")]
    pub(super) repeats: Option<Spanned<f64>>,
    /// The part of messages that is slow.
    #[schemars(with = "f64")]
    pub(super) slow: Option<Spanned<f64>>,
    /// What a slow message takes at most.
    #[schemars(with = "String")]
    pub(super) slow_delay: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnLoss {
    Serve,
    Deny,
}

/// A limit that the fleet shares.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitTable {
    /// Its name, without `/`: `api`.
    #[schemars(with = "String")]
    pub(super) name: Spanned<String>,
    /// R: `"1000/s"`.
    #[schemars(with = "String")]
    pub(super) rate: Spanned<String>,
    /// B, in units. Left out, the N of the rate N/period.
    #[schemars(with = "u64")]
    pub(super) burst: Option<Spanned<u64>>,
    /// The most that one node may hold of one key. Left out, the daemon's choice.
    #[schemars(with = "u64")]
    pub(super) local_cap: Option<Spanned<u64>>,
    /// Units that a node may admit on its first contact with a key, before it has asked; they are
    /// added to the promise. Left out, none.
    #[schemars(with = "u64")]
    pub(super) bootstrap: Option<Spanned<u64>>,
}

/// What is asked of one key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DemandTable {
    /// The limit.
    #[schemars(with = "String")]
    pub(super) limit: Spanned<String>,
    /// The key, any text; each is counted for itself. Left out, `"all"`.
    #[schemars(with = "String")]
    pub(super) key: Option<Spanned<String>>,
    /// The nodes that are asked, such as `[1, 2]`. Left out, all.
    #[schemars(with = "Vec<u32>")]
    pub(super) nodes: Option<Spanned<Vec<Spanned<u32>>>>,
    /// Requests, on all of these nodes together: `"2500/s"`.
    #[schemars(with = "String")]
    pub(super) rate: Spanned<String>,
    /// How they come: `"random"`, `"even"`, or `{ bursts = 50 }` for so many at an instant on each
    /// node. Left out, `"random"`.
    #[schemars(with = "ShapeWord")]
    pub(super) shape: Option<Spanned<ShapeWord>>,
    /// Units that a request costs: 1, or `[1, 10]` for any from 1 to 10. Left out, 1.
    #[schemars(with = "CostWord")]
    pub(super) cost: Option<Spanned<CostWord>>,
    /// How long a request waits for room before it is denied. Left out, not at all.
    #[schemars(with = "String")]
    pub(super) waits: Option<Spanned<String>>,
    /// When it begins. Left out, at once.
    #[schemars(with = "String")]
    pub(super) from: Option<Spanned<String>>,
    /// When it ends. Left out, with the run.
    #[schemars(with = "String")]
    pub(super) until: Option<Spanned<String>>,
    /// The part of admitted requests that give something back, 0 to 1: 0.2.
    #[schemars(with = "f64")]
    pub(super) refunds: Option<Spanned<f64>>,
    /// After how long, at most.
    #[schemars(with = "String")]
    pub(super) refund_after: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ShapeWord {
    Random,
    Even,
    Bursts(u32),
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be a whole number, or two: [1, 10] is any from 1 to 10")]
pub(super) enum CostWord {
    One(u64),
    Between([u64; 2]),
}

/// What goes wrong, and when: one thing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct FaultTable {
    /// When: `"3s"`.
    #[schemars(with = "String")]
    pub(super) at: Spanned<String>,
    /// A process is killed.
    #[schemars(with = "Down")]
    pub(super) crash: Option<Spanned<Down>>,
    /// A process stops as planned: it leaves, hands over, and ends.
    #[schemars(with = "Down")]
    pub(super) stop: Option<Spanned<Down>>,
    /// A process stands still.
    #[schemars(with = "Away")]
    pub(super) pause: Option<Spanned<Away>>,
    /// No message gets from one node to another, one way.
    #[schemars(with = "CutTable")]
    pub(super) cut: Option<Spanned<CutTable>>,
    /// A node's way to the coordinator is cut, without a sign.
    #[schemars(with = "Away")]
    pub(super) silence: Option<Spanned<Away>>,
    /// A node's connection to the coordinator breaks; it connects again.
    #[schemars(with = "Down")]
    pub(super) reset: Option<Spanned<Down>>,
    /// A limit is changed.
    #[schemars(with = "ChangeTable")]
    pub(super) change: Option<Spanned<ChangeTable>>,
    /// The coordinator's leader changes: `true`.
    #[schemars(with = "bool")]
    pub(super) failover: Option<Spanned<bool>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Down {
    /// Which node.
    #[schemars(with = "u32")]
    pub(super) node: Option<Spanned<u32>>,
    /// Instead: the node that owns this key by then, `"api/acme"`.
    #[schemars(with = "String")]
    pub(super) owner_of: Option<Spanned<String>>,
    /// After how long it is back. Left out, never.
    #[schemars(with = "String")]
    pub(super) back_after: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct Away {
    /// Which node.
    #[schemars(with = "u32")]
    pub(super) node: Option<Spanned<u32>>,
    /// Instead: the node that owns this key by then, `"api/acme"`.
    #[schemars(with = "String")]
    pub(super) owner_of: Option<Spanned<String>>,
    /// For how long.
    #[schemars(with = "String")]
    pub(super) lasts: Spanned<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct CutTable {
    /// From which node.
    #[schemars(with = "u32")]
    pub(super) from: Spanned<u32>,
    /// To which. Left out, to all others.
    #[schemars(with = "u32")]
    pub(super) to: Option<Spanned<u32>>,
    /// For how long.
    #[schemars(with = "String")]
    pub(super) lasts: Spanned<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct ChangeTable {
    /// Which limit.
    #[schemars(with = "String")]
    pub(super) limit: Spanned<String>,
    /// R from then on.
    #[schemars(with = "String")]
    pub(super) rate: Spanned<String>,
    /// B from then on.
    #[schemars(with = "u64")]
    pub(super) burst: Spanned<u64>,
}
