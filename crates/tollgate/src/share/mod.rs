//! The arithmetic of the guarantee `share`: every node enforces its own part of a rate.
//!
//! A node counts what it allowed and denied ([`Counted`]) and tells it to the owner of the key. The
//! owner keeps a decaying average for each member ([`Weights`]), divides the rate by what they ask
//! for ([`divide`]) and hands out no more than is left ([`grantable`]). The node checks the answer
//! ([`Reply`]), and has a limit of its own for when there is none ([`Fuse`]).
//!
//! Nothing here knows a clock, a cell, a message or who owns what. The rules are those of Cadence
//! (`common/quotas/global`, 2024), the seed of this guarantee; where ours differ it is said.

mod average;
mod boost;
mod counted;
mod divide;
mod fuse;
mod options;
mod sane;
mod weights;

pub use average::Averaging;
pub use boost::boosted;
pub use counted::{Collected, Counted};
pub use divide::{divide, grantable};
pub use fuse::{Fuse, Phase};
pub use options::{ShareOptions, ShareOptionsError};
pub use sane::{InsaneReply, Reply};
pub use weights::{MembersFull, Weights};
