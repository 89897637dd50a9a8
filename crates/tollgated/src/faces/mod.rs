//! The doors: each knows its protocol and nothing else; all decisions are the service's.

pub(crate) mod http;
pub(crate) mod resp;

use std::time::Duration;

/// A door, as metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Http,
    Resp,
}

impl Face {
    pub(crate) const ALL: [Self; 2] = [Self::Http, Self::Resp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
        }
    }

    /// The last word to a client for whom there is no room.
    pub(crate) fn says_full(self) -> &'static [u8] {
        match self {
            Self::Http => {
                b"HTTP/1.1 503 Service Unavailable\r\n\
                  content-length: 0\r\nconnection: close\r\n\r\n"
            }
            Self::Resp => b"-ERR max number of clients reached\r\n",
        }
    }
}

/// A wait in whole seconds, rounded up: whoever comes back earlier is denied.
pub(crate) fn seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
}
