//! A member of a fleet: what crate `tollgate` decides without input or output, carried to the
//! other members.
//!
//! # In your own service
//!
//! Asking a daemon costs a round trip. A service that joins the fleet decides its own requests, in
//! its own process and within a microsecond, by the same limits as everybody else: what it may
//! spend of a key it is permitted ahead, by the member that owns the key.
//!
//! ```no_run
//! use std::time::Duration;
//! use tollgate::{Descriptor, Entry, Request};
//! use tollgate_tokio::{Fleet, FleetOptions};
//!
//! # async fn service() -> Result<(), Box<dyn std::error::Error>> {
//! // The peer address of any member.
//! let seeds = vec!["127.0.0.1:7800".into()];
//! let fleet = Fleet::join(FleetOptions { seeds, ..FleetOptions::default() }).await?;
//!
//! let entries = [Entry::new("tenant", "acme")];
//! let descriptors = [Descriptor::new(&entries)?];
//! let request = Request::new(&descriptors);
//! // Now or never:
//! let _decision = fleet.check(&request).await;
//! // Or as soon as there is room, within half a second:
//! let _decision = fleet.acquire(&request, Duration::from_millis(500)).await;
//!
//! // Others take over the keys that this member owns.
//! fleet.leave().await;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Fleet::check`] answers at once, but where only the key's owner knows: of a key that is new
//!   here, and where there may be more than is permitted here. That waits for the owner, 10 ms at
//!   most. [`Fleet::limiter`] never waits.
//! - [`Fleet::acquire`] waits in a queue for each key, first come, first served; a caller that
//!   gives up, by dropping the future too, leaves its place and has spent nothing.
//! - [`tower::RateLimitLayer`] does all that in front of an HTTP service, be it axum's, hyper's or
//!   any other of `tower`'s, and answers `429` with the fields that tell a client when to come
//!   back:
//!
//! ```no_run
//! # use tollgate_tokio::{Fleet, tower::RateLimitLayer};
//! # fn layer_of(fleet: Fleet) {
//! let layer = RateLimitLayer::new(fleet, |head, limited| {
//!     let tenant = head.headers.get("x-tenant");
//!     limited.descriptor().entry("tenant", tenant).entry("path", head.uri.path());
//! });
//! # let _: RateLimitLayer<_> = layer;
//! # }
//! ```
//!
//! What applies is the fleet's policy, as `tollgate limit apply` put it there; a service brings no
//! limits of its own. Limits of guarantee `eventual` are the whole fleet's, those of `local` each
//! process's alone.
//!
//! A member keeps nothing: when its process starts again it is another node. It is no replica of
//! the coordinator and owns its share of the keys, so give it a `weight` that fits its machine, and
//! let it [leave](Fleet::leave) when it stops. Other members must reach the address at which it
//! listens; one that is not of the loopback needs [the fleet's secret](wire::PeerSecret).
//!
//! While no replica can be reached it goes on with what it knows; [`Fleet::status`] tells how it
//! fares. Dropped without leaving, it is lost like a killed process: permissions that it held are
//! spent, and the keys that it owned stand still until the coordinator has given them to others.
//!
//! `examples/embed.rs` and `examples/tower.rs` are whole programs.
//!
//! The daemon `tollgate` is a member by the same type.
//!
//! Each module uses only modules above it.

mod keys;
pub mod wire;
pub mod limit_text;
mod delays;
mod status;
mod dial;
mod door;
mod links;
mod sessions;
mod join;
mod policy;
mod waiting;
mod streams;
mod alone;
mod driver;
mod fleet;
pub mod fields;
pub mod tower;

pub use alone::{Alone, AloneStatus};
pub use delays::DelayCounts;
pub use dial::connect;
pub use door::{Arrival, Door, Routes};
pub use driver::AskError;
pub use fleet::{Build, Contact, Fleet, FleetOptions, Seat, numbered_of};
pub use join::JoinError;
pub use keys::{
    Counted, FleetCounted, FleetShares, KeyPage, KeyPart, KeyParts, KeyQuery, KeyRow, KeySort,
    ShareRow,
};
pub use policy::Enforce;
pub use status::{EventCounts, LinkStatus, MemberStatus};

#[cfg(test)]
mod transport_tests;
