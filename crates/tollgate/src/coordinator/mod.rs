//! What a fleet agrees on and who is still there: a coordinator's rules, without its machinery.
//!
//! Every replica of the coordinator computes the same [`State`] from one log of [`Command`]s:
//! members, the ring and its epochs, the policy and its history. Beside the log each replica keeps
//! [`Sessions`]: who was heard when, and whose loss is to be proposed. A [`Lease`] is the node's
//! side of its session. How a log is agreed on, stored and sent is not known here; time is handed
//! in.
//!
//! *The promise*, under [`OnCoordinatorLoss::Deny`]: at no instant has a coordinator proposed that
//! a node is lost while the node's lease still lets permissions live, for clocks whose rates are
//! off by at most [`SessionOptions::drift_ppm`] each.

mod command;
mod encoding;
mod lease;
mod options;
mod policy;
mod sessions;
mod state;

pub use command::{
    Answer, Command, Edit, Effects, FleetSecret, LimitText, Refused, Revision, RingChange,
    StartNumber,
};
pub use encoding::DecodeError;
pub use lease::Lease;
pub use options::{OnCoordinatorLoss, SessionOptions, SessionOptionsError};
pub use policy::{Document, PolicyError, PolicyLimit};
pub use sessions::{Action, Event, Sessions};
pub use state::{Seat, State};
