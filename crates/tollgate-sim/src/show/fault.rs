//! What goes wrong, in words. Nodes count from 1, as people do.

use std::time::Duration;

use super::Names;
use crate::number::duration;
use crate::scenario::{Fault, Nanos};

/// A fault that hit, in a few words, and until when it lasted, if it did not last for ever.
#[must_use]
pub fn words(fault: &Fault, names: &Names) -> (String, Option<Nanos>) {
    let node = |node: u32| node + 1;
    match *fault {
        Fault::Crash { node: hit, back_after } => {
            (format!("node {} killed", node(hit)), back_after)
        }
        Fault::Stop { node: hit, back_after } => {
            (format!("node {} stopped as planned", node(hit)), back_after)
        }
        Fault::Pause { node: hit, lasts } => {
            (format!("node {} stands still", node(hit)), Some(lasts))
        }
        Fault::Cut { from, to: Some(to), lasts } => {
            (format!("nothing gets from node {} to {}", node(from), node(to)), Some(lasts))
        }
        Fault::Cut { from, to: None, lasts } => {
            (format!("nothing gets out of node {}", node(from)), Some(lasts))
        }
        Fault::Silence { node: hit, lasts } => {
            (format!("node {} cut off from the coordinator", node(hit)), Some(lasts))
        }
        Fault::Reset { node: hit, back_after } => {
            (format!("node {} loses its connection", node(hit)), Some(back_after))
        }
        Fault::Change { limit, rate, burst } => {
            let name = names.limits.get(limit).map_or("?", |name| name);
            (format!("{name} set to {rate}, burst {burst}"), None)
        }
        Fault::Remove { limit } => {
            let name = names.limits.get(limit).map_or("?", |name| name);
            (format!("{name} taken away"), None)
        }
        Fault::Failover => ("the coordinator's leader changes".into(), None),
        Fault::Owner { limit, key, .. } => {
            (format!("the owner of {} is hit", names.of(limit, key)), None)
        }
    }
}

/// What is said when it is over, of what is then said at all.
pub(super) fn after(fault: &Fault) -> Option<String> {
    match *fault {
        Fault::Crash { node, .. } | Fault::Stop { node, .. } => {
            Some(format!("node {} is back", node + 1))
        }
        Fault::Pause { .. }
        | Fault::Cut { .. }
        | Fault::Silence { .. }
        | Fault::Reset { .. }
        | Fault::Change { .. }
        | Fault::Remove { .. }
        | Fault::Failover
        | Fault::Owner { .. } => None,
    }
}

/// A length of the run's time.
pub(super) fn time(nanos: Nanos) -> String {
    duration(Duration::from_nanos(nanos))
}
