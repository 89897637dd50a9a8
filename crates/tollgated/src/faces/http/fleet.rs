//! `/v1/fleet`: who is a member, what each limit promises beside what was observed, which keys are
//! how near to their limits, and who owns one.
//!
//! What members ask each other for it is known to whoever implements `overview`.

mod query;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tollgate::{DEFAULT_DOMAIN, FleetLimitId, LimitStatus, NodeId};
use tollgate_tokio::{FleetCounted, KeyQuery, KeyRow, KeySort, MemberStatus};

use super::decisions::key_value;
use super::problem::Problem;
use super::response::{JSON_TYPE, Response, response};
use super::shares;
use crate::app::App;
use crate::overview::{Mishaps, Overview, Promised};
use query::Query;

/// What is asked for by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Fleet,
    Keys,
    Owner,
}

/// The paths, and what is done with them.
#[cfg(test)]
pub(crate) const PATHS: [(&str, &str); 3] =
    [("/v1/fleet", "get"), ("/v1/fleet/keys", "get"), ("/v1/fleet/owner", "get")];

impl Asked {
    /// What a path asks for, if it is one of these.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/v1/fleet" => Some(Self::Fleet),
            "/v1/fleet/keys" => Some(Self::Keys),
            "/v1/fleet/owner" => Some(Self::Owner),
            _ => None,
        }
    }
}

/// Answers one request of somebody who may ask.
pub(crate) async fn answer<B>(
    asked: Asked,
    request: &Request<B>,
    app: &App,
) -> Result<Response, Problem> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Err(Problem::method("GET, HEAD"));
    }
    let Some(overview) = app.overview.as_deref() else {
        return Err(Problem::alone(app.policy.path()));
    };
    let query = Query::of(request.uri())?;
    let body = match asked {
        Asked::Fleet => {
            query.allow(&[])?;
            fleet(overview, &app.service.limits()).await
        }
        Asked::Keys => keys(&query, overview, &app.service.limits()).await?,
        Asked::Owner => owner(&query, overview, &app.service.limits()).await?,
    };
    Ok(response(StatusCode::OK, JSON_TYPE, body.to_string()))
}

async fn fleet(overview: &dyn Overview, limits: &[LimitStatus]) -> Value {
    let (counted, shares) = tokio::join!(overview.counted(), overview.shares());
    let status = overview.status();
    let missing: BTreeSet<NodeId> =
        counted.missing.iter().chain(&shares.missing).copied().collect();
    let missing: Vec<NodeId> = missing.into_iter().collect();
    let times = overview.times();
    let all = &counted.all;
    let mishaps = Mishaps { overlapped: all.overlapped, late: all.late };
    let units = |number| all.limits.get(&number).copied().unwrap_or_default();
    let workers = status.members.len() as u64;
    let promised = limits
        .iter()
        .filter_map(|limit| Promised::of(limit, units, workers, mishaps, &times))
        .map(|one| limit_value(&one, &counted, times.overlap()));
    json!({
        "fleet": format!("{:016x}", overview.fleet()),
        "node": status.node.get(),
        "start": status.start,
        "is_member": status.is_member,
        "ring_epoch": status.ring_epoch.get(),
        "policy_revision": status.revision.get(),
        "members": members(&status, &missing),
        "limits": promised.collect::<Vec<_>>(),
        "shares": shares::fleet_value(limits, status.ring.len() as u64, &shares),
        "observed": {
            "overlaps": all.overlaps,
            "longest_overlap_seconds": all.overlapped.as_secs_f64(),
            "pauses": all.pauses,
            "longest_pause_seconds": all.paused.as_secs_f64(),
            "late_units": all.late,
            "keys_owned": all.owned,
            "keys_spent_from": all.spent,
        },
        "is_complete": missing.is_empty(),
        "missing": nodes(&missing),
    })
}

/// All members, and replicas that are no members now.
fn members(status: &MemberStatus, missing: &[NodeId]) -> Vec<Value> {
    let mut addresses: BTreeMap<NodeId, &str> = BTreeMap::new();
    let known = status.replicas.iter().chain(&status.members);
    addresses.extend(known.map(|(node, address)| (*node, &**address)));
    let weights: u64 = status.ring.iter().map(|member| u64::from(member.weight)).sum();
    let leader = status.replicas.first().map(|(node, _)| *node);
    let is_member = |node| status.members.iter().any(|(member, _)| *member == node);
    let shown = |(node, address): (NodeId, &str)| {
        let weight = status.ring.iter().find(|member| member.node == node).map(|one| one.weight);
        let share = weight.map_or(0.0, |weight| f64::from(weight) / weights.max(1) as f64);
        json!({
            "node": node.get(),
            "address": address,
            "is_this": node == status.node,
            "in_ring": weight.is_some(),
            "weight": weight,
            "share_of_keys": share,
            "is_replica": status.replicas.iter().any(|(replica, _)| *replica == node),
            "is_leader": leader == Some(node),
            "has_answered": is_member(node) && !missing.contains(&node),
        })
    };
    addresses.into_iter().map(shown).collect()
}

fn limit_value(promised: &Promised, counted: &FleetCounted, overlap: Duration) -> Value {
    let Promised { status, number, view, workers, largest_cost, possible, observed } = promised;
    let (rate, burst, cap) = (view.rate, view.burst, view.local_cap);
    let of = counted.all.limits.get(number).copied().unwrap_or_default();
    let seconds = overlap.as_secs_f64();
    json!({
        "name": status.limit.name(),
        "domain": status.limit.domain(),
        "generation": view.generation,
        "promised": {
            "formula": format!("admitted(s, t] <= {burst} + {rate} * (t - s), fleet-wide"),
            "rate": rate.to_string(),
            "burst": burst,
            "beyond_when_owners_overlap":
                format!("{workers} * max({cap}, {largest_cost}) + {rate} * {seconds} s"),
            "workers": workers,
            "local_cap": cap,
            "largest_cost": largest_cost,
            "envelope_possible": possible,
        },
        "observed": {
            "applied_units": of.units,
            "excess": of.excess,
            "excess_max": of.excess_max,
            "breaches": of.breaches,
            "envelope": observed,
        },
    })
}

async fn keys(
    query: &Query,
    overview: &dyn Overview,
    limits: &[LimitStatus],
) -> Result<Value, Problem> {
    query.allow(&["limit", "domain", "sort", "page", "page_size"])?;
    let limit = match query.text("limit")? {
        Some(_) => Some(named(query, limits, shared)?.1),
        None if query.text("domain")?.is_some() => {
            return Err(Problem::invalid("domain: of which limit?".into()));
        }
        None => None,
    };
    let sort = match query.text("sort")? {
        None | Some("level") => KeySort::Level,
        Some("remaining") => KeySort::Remaining,
        Some("denied") => KeySort::Denied,
        Some("admitted") => KeySort::Admitted,
        Some("reporters") => KeySort::Reporters,
        Some(_) => {
            let known = "level, remaining, denied, admitted, reporters";
            return Err(Problem::invalid(format!("sort: must be one of {known}")));
        }
    };
    let page_size = query.number("page_size", 1, KeyQuery::PAGE_SIZE_MAX)?.unwrap_or(PAGE_SIZE);
    let last = (KeyQuery::KEYS_MAX - 1) / page_size;
    let page = query.number("page", 0, last)?.unwrap_or(0);
    let told = overview.keys(KeyQuery { limit, sort, page, page_size }).await;
    let by_number: BTreeMap<FleetLimitId, &LimitStatus> =
        limits.iter().filter_map(|one| Some((one.of_fleet?.0, one))).collect();
    let row = |row: &KeyRow| row_value(row, by_number.get(&row.limit).copied());
    Ok(json!({
        "page": page,
        "page_size": page_size,
        "total": told.total,
        "omitted": told.omitted,
        "is_exact": told.is_exact(),
        "missing": nodes(&told.missing),
        "oldest_seconds": told.oldest.map(|age| age.as_secs_f64()),
        "keys": told.rows.iter().map(row).collect::<Vec<_>>(),
    }))
}

fn row_value(row: &KeyRow, limit: Option<&LimitStatus>) -> Value {
    let (high, low) = row.key.to_bits();
    let name =
        |limit: &LimitStatus| (limit.limit.name().to_owned(), limit.limit.domain().to_owned());
    let (name, domain) = limit.map(name).unzip();
    let of = |number: fn(&tollgate::OwnedKey) -> u64| row.owned.as_ref().map(number);
    json!({
        "id": format!("{high:016x}{low:08x}"),
        "limit": name,
        "domain": domain,
        "key": row.parts.as_deref().map(|parts| parts_value(parts, limit)),
        "owner": row.owner.map(NodeId::get),
        "source": if row.is_exact() { "exact" } else { "approximate" },
        "rate": row.owned.map(|owned| owned.rate.to_string()),
        "burst": of(|owned| owned.burst),
        "level": of(|owned| owned.level),
        "remaining": of(|owned| owned.remaining),
        "outstanding": of(|owned| owned.outstanding),
        "excess": of(|owned| owned.excess),
        "reporters": row.reporters,
        "admitted_per_second": row.admitted_per_second,
        "denied_per_second": row.denied_per_second,
        "age_seconds": row.age.map(|age| age.as_secs_f64()),
    })
}

/// The values of a key by the names that its limit has for them, or, of a path, by their places.
pub(super) fn parts_value(parts: &[Option<Box<[u8]>>], limit: Option<&LimitStatus>) -> Value {
    let mut names = limit.into_iter().flat_map(|limit| limit.limit.key());
    let named = (1..).zip(parts).map(|(place, value): (usize, _)| {
        let name = names.next().map_or_else(|| place.to_string(), str::to_owned);
        (name, value.as_ref().map(|value| value.to_vec()))
    });
    key_value(&named.collect::<Vec<_>>())
}

async fn owner(
    query: &Query,
    overview: &dyn Overview,
    limits: &[LimitStatus],
) -> Result<Value, Problem> {
    let divided = |limit: &LimitStatus| limit.divided.map(|(number, _)| number);
    let (limit, number) = named(query, limits, |limit| shared(limit).or(divided(limit)))?;
    let names: Vec<&str> = limit.limit.key().collect();
    if limit.limit.path_steps().next().is_some() {
        let detail = "limit: has a path, whose keys have no names; GET /v1/fleet/keys has owners";
        return Err(Problem::invalid(detail.into()));
    }
    query.allow(&[&names[..], &["limit", "domain"]].concat())?;
    let part = |name: &&str| query.bytes(name).map(Into::into);
    let parts: Vec<Option<Box<[u8]>>> = names.iter().map(part).collect();
    let shown = parts_value(&parts, Some(limit));
    let owner = overview.owner_of(number, parts.into()).await;
    let status = overview.status();
    let address = status.members.iter().find(|(node, _)| Some(*node) == owner);
    Ok(json!({
        "limit": limit.limit.name(),
        "domain": limit.limit.domain(),
        "key": shown,
        "owner": owner.map(NodeId::get),
        "address": address.map(|(_, address)| address),
        "ring_epoch": status.ring_epoch.get(),
    }))
}

/// The limit that a query names, if it is one of those that have such a number.
fn named<'l>(
    query: &Query,
    limits: &'l [LimitStatus],
    number: impl Fn(&LimitStatus) -> Option<FleetLimitId>,
) -> Result<(&'l LimitStatus, FleetLimitId), Problem> {
    let name = query.text("limit")?;
    let name = name.ok_or_else(|| Problem::invalid("limit: its name is needed".into()))?;
    let domain = query.text("domain")?.unwrap_or(DEFAULT_DOMAIN);
    let is_it =
        |status: &&LimitStatus| status.limit.name() == name && status.limit.domain() == domain;
    let found = limits.iter().find(is_it);
    let found = found.and_then(|status| Some((status, number(status)?)));
    found.ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        let detail = format!("no limit {shown:?} of that domain is shared by the fleet");
        Problem::no_such_limit(detail)
    })
}

/// A limit's number, if the whole fleet shares it.
fn shared(limit: &LimitStatus) -> Option<FleetLimitId> {
    limit.of_fleet.map(|(number, _)| number)
}

fn nodes(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| node.get()).collect()
}

/// Keys on a page, unless the query says otherwise.
const PAGE_SIZE: usize = 100;

#[cfg(test)]
mod tests;
