//! `share`: each node enforces its part of a limit, and the parts follow the demand.
//!
//! *Promise.* On average over steady demand, fleet-wide, within 1 %:
//!
//! > admitted = min(R, demand) · t,
//!
//! and no member of a key's division is denied below min(its demand, R / members) while the fleet
//! leaves something. What members that were heard lately enforce by their owner's word sums to R at
//! most; one that hears nothing for ten intervals enforces R / nodes.
//!
//! A [worker](worker) tells the key's [owner](owner) what was asked for at each interval, and at
//! once when it begins to deny; the owner answers with a rate. Neither half knows transport, cells,
//! or how members are found; `docs/bounds.md` numbers the rules.

mod claim;
mod estimate;
pub(crate) mod owner;
pub(crate) mod worker;

use std::time::Duration;

use crate::key::KeyId;
use crate::policy::FleetLimitId;
use crate::view::CellEpoch;

/// What a member of a key's division was asked for since the last report that was answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// The limit's generation, as the member knows it.
    pub generation: u64,
    /// Which member of its node: 0 is the node's own cell, others are streams.
    pub stream: u64,
    /// The member's life.
    pub epoch: CellEpoch,
    /// Rises with each report of that life.
    pub sequence: u64,
    /// Units that were allowed.
    pub allowed: u64,
    /// Units that were denied.
    pub denied: u64,
    /// In how long.
    pub elapsed: Duration,
    /// How often it reports, when nothing is urgent.
    pub interval: Duration,
    /// The rate that it enforces by an owner's word, in units a second; 0 if it has none.
    pub holds: f64,
    /// Whether it is its last report: it is a member no longer.
    pub is_last: bool,
}

/// What an owner gives one member of a key's division.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allotment {
    /// The key.
    pub key: KeyId,
    /// Which member of its node.
    pub stream: u64,
    /// The member's life.
    pub epoch: CellEpoch,
    /// Rises with each allotment of its owner.
    pub version: u64,
    /// The last report of the member that was taken in.
    pub ack_sequence: u64,
    /// The generation by which it was given.
    pub generation: u64,
    /// Units a second that the member may admit.
    pub rate: f64,
    /// The member's part of all that is asked for, from 0 to 1.
    pub weight: f64,
    /// Units a second that the whole fleet was allowed.
    pub used: f64,
    /// How many divide the key: at least as many as there are nodes.
    pub members: u64,
}

/// What people want to know of a key that a node divides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DividedKey {
    /// The key.
    pub key: KeyId,
    /// Its limit.
    pub limit: FleetLimitId,
    /// Members that were heard lately.
    pub members: u64,
    /// Units a second that they ask for, were allowed, and hold.
    pub demand: f64,
    /// As said for `demand`.
    pub used: f64,
    /// As said for `demand`.
    pub held: f64,
    /// Units a second that are divided; 0 if the key's limit is not in force.
    pub rate: f64,
    /// Units a second below which no member is denied while the fleet leaves something.
    pub floor: f64,
}

/// The part of an interval that lies between two reports of a key at least.
const GAPS: u32 = 10;
/// A rate that is less by more than this part of it is confirmed at once, and counts as given up
/// when it was.
const NOTABLE: f64 = 0.1;

/// A part of an equal part that is not worth a message.
const TRIFLE: f64 = 0.05;

/// What is not worth a message of a rate that so many divide.
fn trifle_of(rate: f64, members: u64) -> f64 {
    rate / members.max(1) as f64 * TRIFLE
}

/// Whether less is so much less that it is held until it is confirmed.
fn is_notably_less(less: f64, than: f64, trifle: f64) -> bool {
    less < than * (1.0 - NOTABLE) && than - less > trifle
}

#[cfg(all(test, not(loom)))]
mod tests;
