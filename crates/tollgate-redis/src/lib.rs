//! One store of the guarantee `tally`: a Redis or Valkey deployment, and what became of counts that
//! were to be added and read there.
//!
//! A deployment is one server, a primary with its replicas (by their addresses, or by sentinels
//! that know them), or a cluster. [`Store`] has two commands:
//!
//! - [`Store::write`] adds units to counters, each with the time at which it expires, and tells of
//!   each whether it is there ([`Outcome`]). **What may be there is never sent again**, by nobody:
//!   that is [`Outcome::Unknown`].
//! - [`Store::read`] reads pairs of counters.
//!
//! Neither takes longer than its timeout and, if a connection is to be made, the connect timeout.
//! While the deployment is known to be down, both answer at once, and one call in a reconnect
//! interval tries again; so service is normal within an interval after the deployment is. There is
//! no task and no queue between calls.
//!
//! ```no_run
//! use tollgate_redis::{Addition, Outcome, Store, StoreOptions};
//!
//! # async fn count() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::new(StoreOptions::from_urls(&["redis://127.0.0.1:6379"])?)?;
//! let name = "tollgate:api:{acme}:28333333".to_owned();
//! let addition = Addition { name, units: 3, expires_at: 1_700_000_180 };
//! assert_eq!(store.write(&[addition]).await, [Outcome::Done]);
//! # Ok(())
//! # }
//! ```
//!
//! # What the server must permit
//!
//! An ACL user needs its keys and `INCRBY`, `EXPIREAT`, `MGET` and `INFO`, with `SELECT` for a
//! database other than 0 and `CLUSTER|SLOTS` for a cluster. At sentinels it needs
//! `SENTINEL|GET-MASTER-ADDR-BY-NAME`. For counters whose names begin with `tollgate:`:
//!
//! ```text
//! ACL SETUSER tollgate on >secret ~tollgate:* -@all +incrby +expireat +mget +info +cluster|slots
//! ```
//!
//! The server's `maxmemory-policy` should be `noeviction`: a server that evicts counters forgets
//! what was used. [`Health`] and a warning tell when it may.
//!
//! Each module uses only modules above it.

mod outcome;
mod options;
mod url;
mod decoder;
mod slots;
mod refusal;
mod health;
mod tls;
mod connection;
mod seek;
mod standing;
mod pipeline;
mod link;
mod cluster;
mod store;

pub use health::{Counts, Failure, FailureKind, Health, Refusals, Role, Server};
pub use options::{Address, Password, StoreError, StoreOptions, Tls, Topology};
pub use outcome::{Addition, Outcome};
pub use store::Store;
