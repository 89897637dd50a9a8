//! What a client is told that does not pass.

use std::fmt;

use http::StatusCode;
use tollgate::{Decision, Reason};

use super::describe::Unsound;

/// Why a request did not reach its handler. Shown, it is one line for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A limit has no room.
    Limited {
        /// The decision.
        decision: Decision,
        /// Why.
        reason: Reason,
    },
    /// Nothing can be decided: what the request is limited by is not sound.
    Unsound(Unsound),
}

impl Denial {
    /// The status that the client gets: 429, where a wait may help; 413 for a cost that never fits;
    /// 503 while the fleet's permission or a place for the key is lacking; 400 where what the
    /// request is limited by is not sound.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Limited { reason, .. } => match reason {
                Reason::OverLimit | Reason::QueueFull | Reason::Deadline => {
                    StatusCode::TOO_MANY_REQUESTS
                }
                Reason::CostExceedsBurst => StatusCode::PAYLOAD_TOO_LARGE,
                Reason::KeyTableFull | Reason::Stale => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Unsound(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited { reason, .. } => f.write_str(match reason {
                Reason::OverLimit => "over the limit",
                Reason::CostExceedsBurst => "the cost is above the burst",
                Reason::KeyTableFull => "the table of keys is full",
                Reason::Stale => "nothing of the limit is permitted here",
                Reason::QueueFull => "too many requests wait for the limit",
                Reason::Deadline => "over the limit for as long as it waited",
            }),
            Self::Unsound(unsound) => unsound.fmt(f),
        }
    }
}

/// Makes the bodies of denials: any closure from a [`Denial`], or [`PlainText`].
pub trait DenialBody<B> {
    /// The body.
    fn body(&self, denial: &Denial) -> B;
}

/// The denial in one line of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlainText;

impl<B: From<String>> DenialBody<B> for PlainText {
    fn body(&self, denial: &Denial) -> B {
        format!("{denial}\n").into()
    }
}

impl<B, F: Fn(&Denial) -> B> DenialBody<B> for F {
    fn body(&self, denial: &Denial) -> B {
        self(denial)
    }
}
