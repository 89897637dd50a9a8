//! A limit as written, before anything about it was checked. The field names are those of the
//! policy file. Whether it makes sense is found out in `limit`.

use crate::gcra::Oversize;
use crate::path::StepSpec;
use crate::request::DEFAULT_DOMAIN;

/// What a limit says, as written. [`Limit::parse`](crate::Limit::parse) checks it.
///
/// ```
/// use tollgate::{Limit, LimitSpec};
/// let limit = Limit::parse(&LimitSpec {
///     name: "api",
///     matches: &[("metric", "read_iops")],
///     key: &["tenant"],
///     rate: "5000/s",
///     burst: Some(10_000),
///     ..LimitSpec::DEFAULT
/// })?;
/// assert_eq!(limit.name(), "api");
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LimitSpec<'a> {
    /// The limit's name, and its only label in metrics. Typically `api`; 1 to 64 of `[a-z0-9-_.]`,
    /// and unique in its domain.
    pub name: &'a str,
    /// The domain whose requests it sees. Typically left alone; at most 256 bytes, not empty.
    pub domain: &'a str,
    /// Entries that a descriptor must have: (name, value), where `"*"` stands for any value. An
    /// empty list applies to every descriptor of the domain; at most 16, each name once.
    pub matches: &'a [(&'a str, &'a str)],
    /// Entries whose values split the limit into separate keys. Typically `["tenant"]`; an empty
    /// list is one key for all; at most 8, each name once.
    pub key: &'a [&'a str],
    /// Entries that a descriptor must have in this order and no others, as Envoy's rate-limit
    /// service matches them; at most 16. Typically empty; a limit with a path has no `matches` and
    /// no `key` (the values of its steps are the key), and a domain's limits have paths all or
    /// none.
    pub path: &'a [StepSpec<'a>],
    /// What limits of the domain that replace it call it; limits may share a group. Typically
    /// empty, so that it can't be replaced; only with a path.
    pub group: &'a str,
    /// Groups whose limits do not apply to a request to which this one does; only with a path.
    pub replaces: &'a [&'a str],
    /// Whether it is one of several of which a request needs only one: a limit of this kind denies
    /// if all of its kind that apply do. Only with a path, and not with `shadow`.
    pub quota: bool,
    /// Units per period (see [`Rate::parse`](crate::Rate::parse)), or `unlimited`, or `zero`; at
    /// the end of a path also `none`, for a descriptor that is matched and has no limit.
    pub rate: &'a str,
    /// Units that may pass at one instant after a rest. Defaults to the N of a rate `N/period`; at
    /// least 1 unless the rate is `zero`; excludes `burst_ratio`.
    pub burst: Option<u64>,
    /// The burst as this many seconds of the rate, rounded down. Typically 2.0; finite, above 0,
    /// and the product at least 1; excludes `burst`.
    pub burst_ratio: Option<f64>,
    /// The guarantee that the limit needs (see [`Guarantee`](crate::Guarantee)): `local`, the
    /// default, `eventual`, `share`, or `tally`, whose windows are the period of the rate: a whole
    /// number of seconds, the same for all overrides.
    pub guarantee: &'a str,
    /// b, the most units that one worker of a fleet may hold of a key, unless a single cost is
    /// above it. Typically left out: min(B, max(1, ⌈2·R·TTL⌉)) with the TTL of a busy key, 20 ms;
    /// 1 to the burst, and only with `eventual`.
    pub local_cap: Option<u64>,
    /// Units that a worker may spend on a key before it has heard of the key's owner. Typically
    /// left out, which is 0: the bound grows by as much with each first contact. At most the local
    /// cap, and only with `eventual`.
    pub bootstrap: Option<u64>,
    /// What a worker does when it can't know. With `eventual`, when its permission has ended: only
    /// `deny` is built, the default. With `tally`, when its store has not answered for long:
    /// `allow`, the default, `share` or `deny` (see [`OnStale`](crate::tally::OnStale)).
    pub on_stale: Option<&'a str>,
    /// What counts: `admitted`, the default, or `offered`, where what is refused counts too, who
    /// meets the threshold is limited, and a key's first request passes whatever it costs. Only
    /// with `tally`.
    pub count: Option<&'a str>,
    /// What decides (see [`ShareMode`](crate::ShareMode)): `disabled`, `local`, `global`, the
    /// default, `local-shadow-global` or `global-shadow-local`. Only with `share`.
    pub mode: Option<&'a str>,
    /// What becomes of a cost above the burst. With `eventual` and `share` it never passes.
    pub oversize: Oversize,
    /// Evaluate and count, never deny.
    pub shadow: bool,
    /// Keys with a rate of their own; they always keep a cell.
    pub overrides: &'a [OverrideSpec<'a>],
}

impl LimitSpec<'_> {
    /// Every optional field at its default; `name` and `rate` must be given.
    pub const DEFAULT: Self = Self {
        name: "",
        domain: DEFAULT_DOMAIN,
        matches: &[],
        key: &[],
        path: &[],
        group: "",
        replaces: &[],
        quota: false,
        rate: "",
        burst: None,
        burst_ratio: None,
        guarantee: "local",
        local_cap: None,
        bootstrap: None,
        on_stale: None,
        count: None,
        mode: None,
        oversize: Oversize::Never,
        shadow: false,
        overrides: &[],
    };
}

/// A key with a rate of its own.
#[derive(Debug, Clone, Copy)]
pub struct OverrideSpec<'a> {
    /// The key, as (entry name, value) for each part of the limit's key.
    pub key: &'a [(&'a str, &'a str)],
    /// As [`LimitSpec::rate`].
    pub rate: &'a str,
    /// As [`LimitSpec::burst`].
    pub burst: Option<u64>,
    /// As [`LimitSpec::burst_ratio`].
    pub burst_ratio: Option<f64>,
    /// As [`LimitSpec::local_cap`], by the override's own rate and burst.
    pub local_cap: Option<u64>,
    /// As [`LimitSpec::bootstrap`]; the limit's own does not carry over.
    pub bootstrap: Option<u64>,
}

impl OverrideSpec<'_> {
    /// Every optional field at its default; `key` and `rate` must be given.
    pub const DEFAULT: Self = Self {
        key: &[],
        rate: "",
        burst: None,
        burst_ratio: None,
        local_cap: None,
        bootstrap: None,
    };
}
