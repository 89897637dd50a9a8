//! How limits with the guarantee `share` stand, as JSON: on this node in `/v1/limits`, on all of
//! them in `/v1/fleet`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::{FleetLimitId, LimitStatus, NodeId, ShareLimit, ShareLimitStatus};
use tollgate_tokio::{FleetShares, KeyPart, ShareRow};

use super::fleet::parts_value;
use crate::shares::ShareStatus;

/// What this node has of a limit; null unless it is divided.
pub(super) fn value(limit: &LimitStatus, shares: Option<&ShareStatus>) -> Value {
    let Some((number, share)) = limit.divided else { return Value::Null };
    let status = shares.and_then(|shares| shares.limits.get(&number)).copied().unwrap_or_default();
    let nodes = shares.map_or(1, |shares| shares.nodes.max(1));
    let keys = shares.and_then(|shares| shares.keys.as_deref());
    let row = |rows: &[ShareRow]| rows_of(rows, number, limit);
    let mut value = sums_value(&status);
    if let Value::Object(members) = &mut value {
        members.insert("mode".into(), share.mode.name().into());
        members.insert("nodes".into(), nodes.into());
        members.insert("floor".into(), floor(&share, nodes).into());
        members.insert("top_keys".into(), keys.map_or(Value::Null, |keys| row(keys).into()));
    }
    value
}

/// The limits that the whole fleet divides.
pub(super) fn fleet_value(limits: &[LimitStatus], nodes: u64, shares: &FleetShares) -> Vec<Value> {
    let divided = limits.iter().filter_map(|limit| Some((limit, limit.divided?)));
    let one = |(limit, (number, share)): (&LimitStatus, (FleetLimitId, ShareLimit))| {
        let of: BTreeMap<NodeId, ShareLimitStatus> = shares
            .members
            .iter()
            .map(|(node, limits)| (*node, limits.get(&number).copied().unwrap_or_default()))
            .collect();
        let failing =
            of.iter().filter(|(_, status)| status.failing > 0).map(|(node, _)| node.get());
        let node = |(node, status): (&NodeId, &ShareLimitStatus)| {
            let mut value = sums_value(status);
            value["node"] = node.get().into();
            value
        };
        json!({
            "name": limit.limit.name(),
            "domain": limit.limit.domain(),
            "generation": share.generation,
            "mode": share.mode.name(),
            "rate": share.rate.to_string(),
            "burst": share.burst,
            "floor": floor(&share, nodes),
            "failing_nodes": failing.collect::<Vec<u32>>(),
            "nodes": of.iter().map(node).collect::<Vec<_>>(),
            "top_keys": rows_of(&shares.keys, number, limit),
        })
    };
    divided.map(one).collect()
}

/// What no node is denied below while the fleet leaves something, in units a second.
fn floor(share: &ShareLimit, nodes: u64) -> f64 {
    share.rate.per_second() / nodes.max(1) as f64
}

fn sums_value(status: &ShareLimitStatus) -> Value {
    json!({
        "members": {
            "startup": status.starting,
            "normal": status.sharing,
            "failing": status.failing,
        },
        "keys": status.keys,
        "rate": status.rate,
        "units": {
            "allowed": status.allowed,
            "denied": status.denied,
            "other_denied": status.other_denied,
            "other_allowed": status.other_allowed,
        },
    })
}

fn rows_of(rows: &[ShareRow], number: FleetLimitId, limit: &LimitStatus) -> Vec<Value> {
    let of_limit = rows.iter().filter(|row| row.key.limit == number);
    of_limit.map(|row| row_value(row, limit)).collect()
}

fn row_value(row: &ShareRow, limit: &LimitStatus) -> Value {
    let (high, low) = row.key.key.to_bits();
    let node = |(node, part): (&NodeId, &KeyPart)| {
        json!({
            "node": node.get(),
            "weight": part.weight,
            "rate": part.rate,
            "members": {
                "startup": part.starting,
                "normal": part.sharing,
                "failing": part.failing,
            },
        })
    };
    json!({
        "id": format!("{high:016x}{low:08x}"),
        "key": row.parts.as_deref().map(|parts| parts_value(parts, Some(limit))),
        "owner": row.owner.get(),
        "members": row.key.members,
        "rate": row.key.rate,
        "floor": row.key.floor,
        "demand": row.key.demand,
        "used": row.key.used,
        "held": row.key.held,
        "nodes": row.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use tollgate::{DividedKey, KeyId};

    use super::*;
    use crate::app::App;

    const LIMIT: &str = r#"{"name":"api","key":["tenant"],"rate":"100/s","burst":50,
        "guarantee":"share","mode":"global-shadow-local"}"#;

    fn limits() -> Vec<LimitStatus> {
        App::of_fleet(LIMIT).service.limits()
    }

    fn of(sharing: u64, failing: u64, rate: f64) -> BTreeMap<FleetLimitId, ShareLimitStatus> {
        let status = ShareLimitStatus {
            sharing,
            failing,
            keys: sharing,
            rate,
            allowed: 40,
            other_denied: 3,
            ..ShareLimitStatus::default()
        };
        BTreeMap::from([(FleetLimitId(4), status)])
    }

    fn row() -> ShareRow {
        let (key, node) = (KeyId::from_bits(0xab, 0xcd), NodeId::new(1));
        let part = KeyPart {
            key,
            rate: 60.0,
            weight: 0.75,
            starting: 0,
            sharing: 1,
            failing: 0,
            parts: None,
        };
        let divided = DividedKey {
            key,
            limit: FleetLimitId(4),
            members: 2,
            demand: 80.0,
            used: 75.0,
            held: 90.0,
            rate: 100.0,
            floor: 25.0,
        };
        let parts = Some(Box::new([Some(b"acme".as_slice().into())]) as _);
        ShareRow { key: divided, owner: node, parts, nodes: BTreeMap::from([(node, part)]) }
    }

    fn row_shown() -> Value {
        json!({
            "id": "00000000000000ab000000cd", "key": { "tenant": "acme" }, "owner": 1,
            "members": 2, "rate": 100.0, "floor": 25.0, "demand": 80.0, "used": 75.0, "held": 90.0,
            "nodes": [{
                "node": 1, "weight": 0.75, "rate": 60.0,
                "members": { "startup": 0, "normal": 1, "failing": 0 }
            }]
        })
    }

    fn units() -> Value {
        json!({ "allowed": 40, "denied": 0, "other_denied": 3, "other_allowed": 0 })
    }

    #[test]
    fn a_node_shows_what_it_has_of_a_limit_and_of_its_first_keys_if_it_is_alone() {
        let limits = limits();
        let status = ShareStatus {
            limits: of(1, 0, 60.0),
            nodes: 1,
            keys: Some(vec![row()]),
            ..ShareStatus::default()
        };
        let expected = json!({
            "mode": "global-shadow-local", "nodes": 1, "floor": 100.0,
            "members": { "startup": 0, "normal": 1, "failing": 0 }, "keys": 1, "rate": 60.0,
            "units": units(), "top_keys": [row_shown()]
        });
        assert_eq!(value(&limits[0], Some(&status)), expected);
        let in_fleet = ShareStatus { nodes: 4, keys: None, ..status };
        let shown = value(&limits[0], Some(&in_fleet));
        assert_eq!((&shown["floor"], &shown["top_keys"]), (&json!(25.0), &Value::Null));
    }

    #[test]
    fn a_limit_that_is_not_divided_has_no_share() {
        let other = App::of_fleet(r#"{"name":"api","rate":"100/s"}"#).service.limits();
        assert_eq!(value(&other[0], Some(&ShareStatus::default())), Value::Null);
        assert!(fleet_value(&other, 2, &FleetShares::default()).is_empty());
    }

    #[test]
    fn a_fleet_shows_what_each_node_has_and_which_are_failing() {
        let node = NodeId::new;
        let shares = FleetShares {
            members: BTreeMap::from([
                (node(1), of(1, 0, 60.0)),
                (node(2), of(0, 1, 0.0)),
                (node(3), BTreeMap::new()),
            ]),
            keys: vec![row()],
            missing: vec![node(4)],
        };
        let shown = fleet_value(&limits(), 4, &shares);
        let limit = &shown[0];
        for (name, expected) in [
            ("name", json!("api")),
            ("mode", json!("global-shadow-local")),
            ("rate", json!("100/s")),
            ("burst", json!(50)),
            ("floor", json!(25.0)),
            ("failing_nodes", json!([2])),
            ("top_keys", json!([row_shown()])),
        ] {
            assert_eq!(limit[name], expected, "{name}");
        }
        let first = json!({
            "node": 1, "members": { "startup": 0, "normal": 1, "failing": 0 }, "keys": 1,
            "rate": 60.0, "units": units()
        });
        assert_eq!(
            (&limit["nodes"][0], limit["nodes"].as_array().map(Vec::len)),
            (&first, Some(3))
        );
    }
}
