//! What the library does, one thing at a time, with numbers that are checked.
//!
//! # One limit, one key a tenant
//!
//! A **limit** says which descriptors it applies to, which of their values split it into **keys**,
//! and what each key may use: at most `burst` units at one instant, and at most `burst + rate x t`
//! in any interval t, exactly.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Clock, Descriptor, Entry, Instant, Limit, LimitSpec, Limiter};
//! use tollgate::{Options, Request, Retry};
//!
//! // A clock that stands still until its hand is turned; `Clock::system()` is the default.
//! let (clock, hand) = Clock::manual();
//! let api = Limit::parse(&LimitSpec {
//!     name: "api",
//!     key: &["tenant"],
//!     rate: "10/s",
//!     ..LimitSpec::DEFAULT
//! })?;
//! let limiter = Limiter::new(vec![api], Options { clock, ..Options::default() })?;
//!
//! let entries = [Entry::new("tenant", "acme")];
//! let descriptors = [Descriptor::new(&entries)?];
//! let request = Request::new(&descriptors);
//! for left in (0..10).rev() {
//!     let decision = limiter.check(&request);
//!     assert_eq!((decision.is_allowed(), decision.remaining()), (true, Some(left)));
//! }
//!
//! // The eleventh passes in 100 ms, and not a nanosecond before.
//! let denied = limiter.check(&request);
//! assert_eq!(denied.retry_at(), Some(Retry::At(Instant::from_nanos(100_000_000))));
//! hand.advance(Duration::from_nanos(99_999_999));
//! assert!(!limiter.check(&request).is_allowed());
//! hand.advance(Duration::from_nanos(1));
//! assert!(limiter.check(&request).is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Costs, and costs that can never pass
//!
//! A descriptor costs 1 unit, or what [`Descriptor::with_cost`](crate::Descriptor::with_cost) says;
//! 0 asks and spends nothing. A cost above the burst is denied for good ([`Retry::Never`]), unless
//! the limit says [`Oversize::Pace`](crate::Oversize::Pace): then it passes when the key has
//! rested, and the key pays it off.
//!
//! ```
//! # use tollgate::*;
//! # fn ask(limiter: &Limiter, cost: u64) -> Result<Decision, RequestError> {
//! #     let entries = [Entry::new("tenant", "acme")];
//! #     let descriptors = [Descriptor::new(&entries)?.with_cost(cost)];
//! #     Ok(limiter.check(&Request::new(&descriptors)))
//! # }
//! # let spec = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
//! # let limiter_of = |spec: &LimitSpec<'_>| {
//! #     let options = Options { clock: Clock::manual().0, ..Options::default() };
//! #     Limiter::new(vec![Limit::parse(spec).expect("sound")], options)
//! # };
//! let strict = limiter_of(&LimitSpec { oversize: Oversize::Never, ..spec })?;
//! let denied = ask(&strict, 25)?;
//! assert_eq!(denied.outcome(), Outcome::Denied(Reason::CostExceedsBurst));
//! assert_eq!(denied.retry_at(), Some(Retry::Never));
//!
//! let paced = limiter_of(&LimitSpec { oversize: Oversize::Pace, ..spec })?;
//! assert!(ask(&paced, 25)?.is_allowed());
//! let later = Retry::At(Instant::from_nanos(2_500_000_000));
//! assert_eq!(ask(&paced, 25)?.retry_at(), Some(later));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several limits
//!
//! Every limit of the domain whose `match` holds applies, to each descriptor of the request. All
//! must allow; a denial spends nothing from any of them. The decision speaks of the limit that
//! denies the longest or, of those that allow, of the one with the least left.
//!
//! ```
//! # use tollgate::*;
//! let a_minute = LimitSpec { name: "minute", rate: "100/min", ..LimitSpec::DEFAULT };
//! let a_second = LimitSpec { name: "second", rate: "5/s", ..LimitSpec::DEFAULT };
//! let limits = vec![Limit::parse(&a_minute)?, Limit::parse(&a_second)?];
//! let limiter = Limiter::new(limits, Options { clock: Clock::manual().0, ..Options::default() })?;
//! let descriptors = [Descriptor::new(&[])?];
//! let request = Request::new(&descriptors);
//! assert_eq!((0..20).filter(|_| limiter.check(&request).is_allowed()).count(), 5);
//! // Fifteen denials later the wide limit still has the rest of its 100.
//! let counts: Vec<u64> = limiter.limits().iter().map(|limit| limit.counts.allowed).collect();
//! assert_eq!(counts, [5, 5]);
//! let explanation = limiter.explain(&request);
//! let Applies::Yes { alone, .. } = &explanation.limits[0].applies else { unreachable!() };
//! assert_eq!(alone.remaining(), Some(95));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A limit with `shadow: true` is evaluated and counted and never denies;
//! [`Decision::shadow_denied_by`](crate::Decision::shadow_denied_by) tells.
//!
//! # Paths
//!
//! Limits of a domain may have paths instead of matches, as Envoy's rate-limit service has them.
//! A descriptor's entries then count in their order: each is a step, by its name and value, else by
//! the first pattern that matches, else by its name alone, and a step is never taken back. The
//! limit at the end applies, if there is one. [`Limiter::check_each`](crate::Limiter::check_each)
//! says how each descriptor stands.
//!
//! ```
//! # use tollgate::*;
//! let step = |name, value| StepSpec { name, value, shared: false };
//! let (acme, any) = ([step("tenant", "acme"), step("path", "/img/*")], [step("tenant", "")]);
//! let images = LimitSpec { name: "images", path: &acme, rate: "5/s", ..LimitSpec::DEFAULT };
//! let tenants = LimitSpec { name: "tenants", path: &any, rate: "10/s", ..LimitSpec::DEFAULT };
//! let limits = vec![Limit::parse(&images)?, Limit::parse(&tenants)?];
//! let limiter = Limiter::new(limits, Options { clock: Clock::manual().0, ..Options::default() })?;
//! let image = [Entry::new("tenant", "acme"), Entry::new("path", "/img/a.png")];
//! let (other, acme) = ([Entry::new("tenant", "other")], [Entry::new("tenant", "acme")]);
//! let all = [&image[..], &other, &acme].map(Descriptor::ordered);
//! let descriptors = [all[0]?, all[1]?, all[2]?];
//! let mut standings = Vec::new();
//! assert!(limiter.check_each(&Request::new(&descriptors), &mut standings).is_allowed());
//! let left = standings.iter().map(|standing| standing.and_then(|one| one.remaining()));
//! // The way by `tenant = acme` has no limit at its end, and is not left for `tenant`.
//! assert_eq!(left.collect::<Vec<_>>(), [Some(4), Some(9), None]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Overrides, zero and unlimited
//!
//! An override gives one key a rate of its own, and that key always has a cell. Two rates are
//! words: `unlimited` passes everything, `zero` gives nothing back (with a burst, that is all there
//! ever is).
//!
//! # Limits of a fleet
//!
//! A limit says to whom its bound is promised: with the guarantee `local` to this node, with
//! `eventual` to the whole fleet. The crate `tollgate-tokio` makes a process a member of one. A
//! limiter without a fleet is its whole fleet: it decides both alike, and exactly.
//!
//! ```
//! # use tollgate::*;
//! let spec = LimitSpec { name: "api", rate: "5000/s", burst: Some(10_000), ..LimitSpec::DEFAULT };
//! let api = Limit::parse(&LimitSpec { guarantee: "eventual", ..spec })?;
//! // What one worker of a fleet may hold: 2 x 5,000/s x 20 ms.
//! assert_eq!((api.guarantee(), api.local_cap()), (Guarantee::Eventual, Some(200)));
//! let options = Options { clock: Clock::manual().0, ..Options::default() };
//! let limiter = Limiter::new(vec![api], options)?;
//! let descriptors = [Descriptor::new(&[])?.with_cost(10_000)];
//! assert!(limiter.check(&Request::new(&descriptors)).is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The same key again and again
//!
//! [`Limiter::handle`](crate::Limiter::handle) looks up a descriptor's limits and keys once, and
//! [`Limiter::keyed`](crate::Limiter::keyed) a limit by its name. Both follow the limits in force.
//!
//! # Giving back
//!
//! [`Limiter::refund`](crate::Limiter::refund) gives back what was charged and not used, up to what
//! the key still owes. The bound then holds net of refunds.
//!
//! # Costs that are known afterwards
//!
//! [`Limiter::reserve`](crate::Limiter::reserve) charges an estimate;
//! [`Limiter::settle`](crate::Limiter::settle) corrects it to what was used, once, and
//! [`Limiter::cancel`](crate::Limiter::cancel) gives it back. What the rate has produced since the
//! charge may have been spent again, so that much does not come back: of x units of age a, at most
//! max(0, x - rate x a). What was used beyond the estimate is owed, be there room or not.
//! [`Reservation`](crate::Reservation) has a worked example.
//!
//! # Limits that come with the request
//!
//! [`Brought`](crate::Brought) charges a key by the rate and burst that the caller gives with each
//! request, as redis-cell's `CL.THROTTLE` does. A key that is asked under another limit keeps what
//! it owes.
//!
//! # Starting anew
//!
//! [`Limiter::reset`](crate::Limiter::reset) makes a request's keys as new: a tool for people.
//!
//! # Changing limits
//!
//! [`Limiter::replace`](crate::Limiter::replace) puts other limits in force at once. What was spent
//! stays spent: raising a limit hands out no second burst.
//!
//! ```
//! # use tollgate::*;
//! # let entries = [Entry::new("tenant", "acme")];
//! # let descriptors = [Descriptor::new(&entries)?.with_cost(10)];
//! # let request = Request::new(&descriptors);
//! let api = LimitSpec { name: "api", key: &["tenant"], rate: "10/min", ..LimitSpec::DEFAULT };
//! let options = Options { clock: Clock::manual().0, ..Options::default() };
//! let limiter = Limiter::new(vec![Limit::parse(&api)?], options)?;
//! assert_eq!(limiter.check(&request).remaining(), Some(0));
//! let left = |rate| -> Result<Option<u64>, LimitError> {
//!     limiter.replace(vec![Limit::parse(&LimitSpec { rate, ..api })?])?;
//!     Ok(limiter.peek(&request).remaining())
//! };
//! assert_eq!(left("20/min")?, Some(10));
//! assert_eq!(left("5/min")?, Some(0));
//! assert_eq!(left("10/min")?, Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A bounded number of keys
//!
//! At most [`Options::keys_max`](crate::Options::keys_max) keys have a cell. A key that has fully
//! rested is indistinguishable from a new one, and its cell goes to the next newcomer. When none
//! has rested, newcomers share one cell of their limit
//! ([`TableFull::Share`](crate::TableFull::Share)) or are denied
//! ([`TableFull::Deny`](crate::TableFull::Deny)): no flood of names frees a denied key.
//!
//! [`Retry::Never`]: crate::Retry::Never
