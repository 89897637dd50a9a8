//! The coordinator of a fleet: one log that several daemons keep, and the state that it makes.
//!
//! `tollgate::coordinator` has the rules; here they are replicated and stored. A [`Replica`] is
//! one daemon's part: it proposes commands, tells what was applied, and confirms that it still
//! leads. The consensus is openraft's, the disk redb's, and no other module knows of either. How
//! bytes travel between replicas is the [`Network`]'s to know.

mod types;
mod record;
mod store;
mod machine;
mod network;
mod error;
mod leadership;
mod replica;
mod tcp;
mod members;
mod backup;
mod questions;
mod keeper;
mod serve;
mod steward;

pub use backup::{BackupError, back_up_stopped, recover, restore, write_backup};
pub use error::{ConfirmError, OpenError, ProposeError};
pub use leadership::{Leadership, Voters};
pub use machine::{Applied, CHANGES_MAX};
pub use members::ChangeError;
pub use network::{CallError, MESSAGE_BYTES_MAX, Network, Peer};
pub use questions::{Kept, NodeLine, Question, ReplicaKind, Reply};
pub use record::RecordError;
pub use replica::{Replica, ReplicaOptions};
pub use serve::serve_sessions;
pub use store::{Identity, StoreError, identity_in, in_folder};
pub use tcp::{Tcp, serve_replicas};
pub use types::OnTokio;

#[cfg(test)]
mod tests;
