//! What members of a fleet say to each other, as bytes; `docs/protocol.md` has them for readers.

mod bytes;
mod divided;
mod frame;
mod hello;
mod inquiry;
mod message;
mod session;
#[cfg(test)]
mod tests;

pub use crate::keys::{DividedLimits, Inquiry, KeyName, NAMES_MAX, Told};
pub use bytes::WireError;
pub use frame::{FrameError, FrameReader, put_frame};
pub use hello::{
    Hello, HelloError, Host, PeerSecret, Purpose, VERSION_MAX, VERSION_MIN, answer, introduce,
};
pub use message::PeerFrame;
pub use session::{Ask, SESSION_FRAME_MAX, Tell};
