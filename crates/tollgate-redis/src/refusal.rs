//! What a server's error says of the command that it answers: whether it was carried out, and
//! whether it is worth another try.
//!
//! Redis and Valkey answer an error before they carry a command out, and say which by its first
//! word. A proxy before them may answer errors of its own after it has passed a command on, so an
//! error that is not known here leaves open what became of the command.

use tollgate::tally::Outcome;

/// Why a server did not carry out a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is a replica.
    ReadOnly,
    /// It has just started, or its primary is away.
    Loading,
    /// It has no memory left, and evicts nothing.
    Memory,
    /// Password, user or permission.
    Auth,
    /// The counter is elsewhere in the cluster.
    Moved {
        slot: u16,
        /// Empty is the host that was asked.
        host: String,
        port: u16,
    },
    /// The cluster does not serve the counter now.
    Cluster,
    /// It can't save, has too few replicas, or is busy with a script.
    Busy,
    /// The counter is no number, or too large for one.
    Value,
    /// Something else.
    Other,
}

impl Refusal {
    pub(crate) fn of(error: &str) -> Self {
        let (code, rest) = error.split_once(' ').unwrap_or((error, ""));
        match code {
            "READONLY" => Self::ReadOnly,
            "LOADING" | "MASTERDOWN" => Self::Loading,
            "OOM" => Self::Memory,
            "NOAUTH" | "NOPERM" | "WRONGPASS" => Self::Auth,
            "MOVED" => moved(rest).unwrap_or(Self::Cluster),
            "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "CROSSSLOT" => Self::Cluster,
            "MISCONF" | "NOREPLICAS" | "BUSY" | "UNKILLABLE" => Self::Busy,
            "WRONGTYPE" => Self::Value,
            "ERR" if rest.starts_with("value is not an integer") => Self::Value,
            "ERR" if rest.starts_with("increment or decrement would overflow") => Self::Value,
            _ => Self::Other,
        }
    }

    /// What became of an addition that was answered so.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Value => Outcome::Refused,
            Self::Other => Outcome::Unknown,
            Self::ReadOnly
            | Self::Loading
            | Self::Memory
            | Self::Auth
            | Self::Moved { .. }
            | Self::Cluster
            | Self::Busy => Outcome::NotSent,
        }
    }
}

/// `3999 127.0.0.1:6381`, where a host of version 6 has no brackets.
fn moved(rest: &str) -> Option<Refusal> {
    let (slot, address) = rest.split_once(' ')?;
    let (host, port) = address.rsplit_once(':')?;
    let slot = slot.parse().ok().filter(|slot| *slot < crate::slots::SLOTS)?;
    Some(Refusal::Moved { slot, host: host.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_surely_was_not_carried_out_may_be_tried_again() {
        for (error, outcome) in [
            ("READONLY You can't write against a read only replica.", Outcome::NotSent),
            ("LOADING Redis is loading the dataset in memory", Outcome::NotSent),
            ("MASTERDOWN Link with MASTER is down", Outcome::NotSent),
            ("OOM command not allowed when used memory > 'maxmemory'.", Outcome::NotSent),
            ("NOAUTH Authentication required.", Outcome::NotSent),
            ("NOPERM this user has no permissions", Outcome::NotSent),
            ("MOVED 3999 127.0.0.1:6381", Outcome::NotSent),
            ("ASK 3999 127.0.0.1:6381", Outcome::NotSent),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Outcome::NotSent),
            ("CLUSTERDOWN Hash slot not served", Outcome::NotSent),
            ("CROSSSLOT Keys in request don't hash to the same slot", Outcome::NotSent),
            ("MISCONF Redis is configured to save RDB snapshots", Outcome::NotSent),
            ("NOREPLICAS Not enough good replicas to write.", Outcome::NotSent),
            ("BUSY Redis is busy running a script.", Outcome::NotSent),
            ("UNKILLABLE Sorry the script already executed write commands", Outcome::NotSent),
            ("WRONGTYPE Operation against a key", Outcome::Refused),
            ("ERR value is not an integer or out of range", Outcome::Refused),
            ("ERR increment or decrement would overflow", Outcome::Refused),
            // Of proxies, which may have passed the command on.
            ("ERR Connection timed out", Outcome::Unknown),
            ("upstream failure", Outcome::Unknown),
            ("", Outcome::Unknown),
        ] {
            assert_eq!(Refusal::of(error).outcome(), outcome, "{error}");
        }
    }

    #[test]
    fn a_counter_that_moved_says_where_it_is() {
        let moved = |slot, host: &str, port| Refusal::Moved { slot, host: host.to_owned(), port };
        assert_eq!(Refusal::of("MOVED 16383 10.0.0.1:6381"), moved(16383, "10.0.0.1", 6381));
        assert_eq!(Refusal::of("MOVED 0 ::1:6381"), moved(0, "::1", 6381));
        assert_eq!(Refusal::of("MOVED 0 :6381"), moved(0, "", 6381));
        for wrong in ["MOVED", "MOVED 16384 a:1", "MOVED 1 a", "MOVED 1 a:x"] {
            assert_eq!(Refusal::of(wrong), Refusal::Cluster, "{wrong}");
        }
    }
}
