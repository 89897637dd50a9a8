//! The guarantee `tally` over Redis or Valkey: [`Tally`] counts what a limiter's cells take in the
//! stores that a fleet shares, and tells the cells what was read there. It is a task; no request
//! waits for it.
//!
//! ```no_run
//! use tollgate::{Limit, LimitSpec, Limiter, Options, TallyOptions};
//! use tollgate_redis::{StoreOptions, Tally};
//!
//! # async fn count() -> Result<(), Box<dyn std::error::Error>> {
//! let api = LimitSpec {
//!     name: "api",
//!     key: &["tenant"],
//!     rate: "1000/10s",
//!     guarantee: "tally",
//!     ..LimitSpec::DEFAULT
//! };
//! let options = Options { tally: true, ..Options::default() };
//! let limiter = Limiter::new(vec![Limit::parse(&api)?], options)?;
//! let store = StoreOptions::from_urls(&["redis://127.0.0.1:6379"])?;
//! let tally = Tally::start(&limiter, vec![store], TallyOptions::default())?;
//! // ... limiter.check(..) wherever requests are.
//! tally.stop(std::time::Duration::from_secs(2)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # One store
//!
//! A store is one server, a primary with its replicas (by their addresses, or by sentinels
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
//! let name = "tollgate:default:api:60s:{acme}:28333333".to_owned();
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
mod meters;
mod tally;

pub use health::{Counts, Failure, FailureKind, Health, Refusals, Role, Server};
pub use meters::{MILLIS_BOUNDS, Meters, SIZE_BOUNDS, StoreStatus, TallyStatus};
pub use options::{Address, Password, StoreError, StoreOptions, Tls, Topology};
pub use store::Store;
pub use tally::{StartError, Tally};
pub use tollgate::Addition;
pub use tollgate::tally::Outcome;
