//! `/v1/fleet/nodes` and `/v1/fleet/backup`: who belongs to a fleet, who is to own nothing, whom it
//! is to forget, and all that it has agreed on as a file.
//!
//! How the fleet does so is known to whoever implements `agreement`.

use hyper::{Method, StatusCode};
use serde_json::json;
use tollgate::NodeId;
use tollgate::coordinator::Command;

use super::problem::Problem;
use super::response::{BYTES_TYPE, JSON_TYPE, Response, response};
use crate::app::App;
use crate::coordinator::{NodeLine, ReplicaKind};

/// What is asked for by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    All,
    One(NodeId),
    Drain(NodeId),
    Weight(NodeId, u32),
    Backup,
}

/// The paths, and what is done with them.
#[cfg(test)]
pub(crate) const PATHS: [(&str, &str); 5] = [
    ("/v1/fleet/nodes", "get"),
    ("/v1/fleet/nodes/{node}", "delete"),
    ("/v1/fleet/nodes/{node}/drain", "post"),
    ("/v1/fleet/nodes/{node}/weight/{weight}", "put"),
    ("/v1/fleet/backup", "get"),
];

impl Asked {
    /// What a path asks for, if it is one of these.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/fleet/")?;
        let parts: Vec<&str> = rest.split('/').collect();
        let node = |text: &str| number(text).filter(|&number| number > 0).map(NodeId::new);
        Some(match *parts {
            ["backup"] => Self::Backup,
            ["nodes"] => Self::All,
            ["nodes", one] => Self::One(node(one)?),
            ["nodes", one, "drain"] => Self::Drain(node(one)?),
            ["nodes", one, "weight", weight] => Self::Weight(node(one)?, number(weight)?),
            _ => return None,
        })
    }
}

/// A number in plain digits, as it is shown.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Answers one request of somebody who may ask.
pub(crate) async fn answer(asked: Asked, method: &Method, app: &App) -> Result<Response, Problem> {
    let reads = method == Method::GET || method == Method::HEAD;
    let (allowed, may) = match asked {
        Asked::All | Asked::Backup => ("GET, HEAD", reads),
        Asked::One(_) => ("DELETE", method == Method::DELETE),
        Asked::Drain(_) => ("POST", method == Method::POST),
        Asked::Weight(..) => ("PUT", method == Method::PUT),
    };
    if !may {
        return Err(Problem::method(allowed));
    }
    let Some(agreement) = app.agreement.as_deref() else {
        return Err(Problem::alone(app.policy.path()));
    };
    let weighs = |node, weight| async move {
        let set = agreement.propose(Command::SetWeight { node, weight }).await;
        set.map_err(Problem::proposal)?;
        Ok(done(json!({ "node": node.get(), "weight": weight })))
    };
    match asked {
        Asked::All => {
            let nodes: Vec<_> = agreement.nodes().await?.iter().map(shown).collect();
            Ok(done(json!({ "nodes": nodes })))
        }
        Asked::One(node) => {
            agreement.remove(node).await.map_err(Problem::proposal)?;
            Ok(done(json!({ "node": node.get(), "removed": true })))
        }
        Asked::Drain(node) => weighs(node, 0).await,
        Asked::Weight(node, weight) => weighs(node, weight).await,
        Asked::Backup => Ok(response(StatusCode::OK, BYTES_TYPE, agreement.backup().await?)),
    }
}

fn shown(line: &NodeLine) -> serde_json::Value {
    let replica = match line.replica {
        ReplicaKind::None => "none",
        ReplicaKind::Learner => "learner",
        ReplicaKind::Voter => "voter",
        ReplicaKind::Leader => "leader",
    };
    json!({
        "node": line.node,
        "address": line.address,
        "start": line.start,
        "weight": line.weight,
        "replica": replica,
        "in_ring": line.start.is_some() && line.weight > 0,
    })
}

fn done(body: serde_json::Value) -> Response {
    response(StatusCode::OK, JSON_TYPE, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_node_by_its_number_alone() {
        let node = NodeId::new(3);
        assert_eq!(Asked::of("/v1/fleet/nodes/3/drain"), Some(Asked::Drain(node)));
        assert_eq!(Asked::of("/v1/fleet/nodes/3/weight/2"), Some(Asked::Weight(node, 2)));
        assert_eq!(Asked::of("/v1/fleet/nodes"), Some(Asked::All));
        for wrong in ["nodes/0", "nodes/03", "nodes/", "nodes/3/", "nodes/3/weight", "no", ""] {
            assert_eq!(Asked::of(&format!("/v1/fleet/{wrong}")), None, "{wrong}");
        }
    }
}
