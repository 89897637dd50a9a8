//! One key as people look at it: at its owner, and on a worker. Nothing is decided by any of it.

use std::time::Duration;

use crate::key::KeyId;
use crate::policy::FleetLimitId;
use crate::rate::Rate;
use crate::ring::NodeId;

/// A key at its owner, for the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnedKey {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The revision that last changed the limit, as the owner goes by it.
    pub generation: u64,
    /// R.
    pub rate: Rate,
    /// B, in units.
    pub burst: u64,
    /// Units of the burst that are spent and have not leaked, rounded up.
    pub level: u64,
    /// Units that workers may still spend of what they were permitted.
    pub outstanding: u64,
    /// Units that the whole fleet has left, `outstanding` among them.
    pub remaining: u64,
    /// Units that were spent though nobody in charge had permitted them, and for which there was
    /// no room: by as much the level and what is outstanding are above the burst.
    pub excess: u64,
    /// Workers' cells that were reported within `ttl_max`.
    pub reporters: u32,
    /// The worker that reported last; `None` if all are forgotten.
    pub reporter: Option<NodeId>,
    /// How long ago that was.
    pub reported_ago: Option<Duration>,
    /// Units a second that were admitted lately, over all workers.
    pub admitted_per_second: f64,
    /// Units a second that were refused lately, over all workers.
    pub denied_per_second: f64,
    /// Whether this owner is in charge and grants: it no longer waits for what others permitted,
    /// and its numbers are exact.
    pub is_in_charge: bool,
}

/// A key on a worker: what this one process knows of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpentKey {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// Its owner by the ring in force; `None` before the first.
    pub owner: Option<NodeId>,
    /// Units that were spent here since the key's cell began, net of refunds.
    pub spent: u64,
    /// Units that were refused here since then.
    pub denied: u64,
    /// How long ago that was.
    pub age: Duration,
    /// Units that may be spent here.
    pub credit: u64,
    /// For how long; zero when the permission is over.
    pub credit_for: Duration,
    /// The cost of the first request that waits here; 0 if none does.
    pub waiting: u64,
    /// How long ago the owner last said something of the key; `None` if it never did.
    pub heard_ago: Option<Duration>,
}

/// What an owner counted of the keys of one limit, since its process began or the limit came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitUnits {
    /// Units that workers reported as spent.
    pub units: u64,
    /// Times at which a key came to have an [excess](OwnedKey::excess).
    pub breaches: u64,
    /// The largest excess of any key.
    pub excess_max: u64,
    /// The largest excess of any key now.
    pub excess: u64,
    /// c, where it is above the local cap: the largest cost that a worker waited for.
    pub cost_max: u64,
}
