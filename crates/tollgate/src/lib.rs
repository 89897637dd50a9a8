//! Rate limiting that names its guarantee, decided in nanoseconds inside the process.
//!
//! Start with [`Limiter`]; the [`guide`] shows each thing that it does, with numbers. Each module
//! below uses only modules above it, in the order in which a request's data travels.
//!
//! This crate opens no socket and starts no thread. It asks the operating system for the time
//! (`time`), for huge pages (`table`) and, unless you bring one, for a secret (`key`).

#[doc(hidden)]
pub mod mutant;
mod time;
mod key;
pub mod tally;
pub mod share;
mod rate;
mod request;
mod gcra;
mod bucket;
mod path;
mod spec;
mod allowance;
mod guarantee;
mod limit;
mod policy;
mod decision;
mod cell;
mod counts;
#[cfg(not(loom))]
mod zeroed;
mod table;
mod listed;
mod credits;
mod shares;
mod plain;
mod matcher;
mod walk;
mod fleet;
mod rules;
mod charge;
mod decide;
mod limiter;
mod tally_node;
mod attempt;
mod handle;
mod each;
mod explain;
mod reserve;
mod brought;
mod ring;
pub mod coordinator;
mod view;
mod division;
mod message;
mod report;
mod node;
pub mod guide;

pub use allowance::Allowance;
pub use attempt::{Attempt, Patience, Wait};
pub use brought::{Brought, BroughtError};
pub use charge::TableFull;
pub use counts::Counts;
pub use credits::{Charged, Credits, Drained, Permit};
pub use decision::{Decision, LimitId, Outcome, Reason};
pub use division::owner::DivisionCounts;
pub use division::worker::SharedKey;
pub use division::{Allotment, Demand, DividedKey};
pub use explain::{Applies, Explained, Explanation, Walk};
pub use fleet::Arrival;
pub use gcra::{Oversize, Retry};
pub use guarantee::{Guarantee, ShareMode};
pub use handle::{Handle, Keyed};
pub use key::{KeyId, Part, Secret};
pub use limit::{Limit, LimitError, Override};
pub use limiter::{DividedLimit, LimitStatus, Limiter, Options};
pub use message::{
    BATCH_BYTES, Message, REPORT_ENTRY_BYTES, Refusal, ReportBatch, SNAPSHOT_ENTRY_BYTES,
    SnapshotBatch,
};
pub use node::{
    Event, Input, Node, NodeCounts, NodeOptions, Output, ShareLimitStatus, ShareUsage, StreamUsage,
};
pub use path::StepSpec;
pub use policy::{FleetLimitId, FleetOverride, FleetRules, Numbered, ShareLimit, ViewLimit};
pub use rate::{Rate, RateError};
pub use request::{DEFAULT_DOMAIN, Descriptor, Entry, Request, RequestError, Tenant, TenantName};
pub use reserve::{Owed, Reservation, SettleError};
pub use ring::{Member, NodeId, Ring, RingEpoch, RingError};
pub use rules::{DomainKind, TallyLimit, TallyRules};
pub use shares::{DrainedShare, Given, Shares, equal_part};
pub use spec::{LimitSpec, OverrideSpec};
pub use tally_node::{Addition, Command, TallyNode, TallyOptions};
pub use time::{Clock, ClockHand, Instant};
pub use view::handover::{HandedKey, HandedRecord, Handover};
pub use view::owner::OwnerCounts;
pub use view::status::{LimitUnits, OwnedKey, SpentKey};
pub use view::worker::Usage;
pub use view::{CellEpoch, OwnerEpoch, Report, Snapshot, Stamp, ViewTimes};
pub use walk::{How, WalkEnd, Walked};
