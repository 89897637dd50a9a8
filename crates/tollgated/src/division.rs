//! Limits with the guarantee `share` among streams that use them by assignment: each bucket of a
//! stream is a member of the division of its keys, beside the nodes' own cells.
//!
//! Who is given how much is decided by the keys' owners: in this process, or in its fleet.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::{Descriptor, DividedLimit, Entry, Instant, KeyId, Limiter, Request, StreamUsage};
use tollgate_tokio::{Alone, Fleet};
use tracing::warn;

use crate::quota::{Divider, Mailbox, Part, StreamId, TooMany, Usage};

/// Divides limits among streams.
pub(crate) struct Division {
    limiter: Limiter,
    owners: Owners,
    state: Mutex<State>,
}

/// Who owns keys.
#[derive(Clone)]
pub(crate) enum Owners {
    /// This process.
    Alone(Alone),
    /// The members of its fleet.
    Fleet(Fleet),
}

#[derive(Default)]
struct State {
    streams: HashMap<StreamId, Stream>,
    /// Whose bucket a member of divisions is.
    members: HashMap<u64, (StreamId, u32)>,
    /// Numbers that were given.
    given: u64,
    /// Whether it was told that some limits cannot be divided.
    has_warned: bool,
}

struct Stream {
    mailbox: Mailbox,
    buckets: HashMap<u32, Bucket>,
}

/// A bucket that was told of.
struct Bucket {
    /// Its number as a member of divisions.
    member: u64,
    /// The keys that it has a part of, and the parts, as far as they are known.
    keys: BTreeMap<KeyId, Own>,
    allowed: u64,
    denied: u64,
    interval: Duration,
    /// How many reports there were.
    reports: u64,
}

struct Own {
    limit: DividedLimit,
    per_second: Option<f64>,
}

impl Owners {
    fn tell(&self, usage: StreamUsage) -> bool {
        match self {
            Self::Alone(alone) => alone.tell_stream(usage),
            Self::Fleet(fleet) => fleet.tell_stream(usage),
        }
    }

    fn gone(&self, key: KeyId, member: u64) {
        match self {
            Self::Alone(alone) => alone.stream_gone(key, member),
            Self::Fleet(fleet) => fleet.stream_gone(key, member),
        }
    }
}

impl Division {
    /// Divides the limits of this limiter as their owners say.
    pub(crate) fn new(limiter: Limiter, owners: Owners) -> Arc<Self> {
        let state = Mutex::default();
        let division = Arc::new(Self { limiter, owners: owners.clone(), state });
        let told = Arc::downgrade(&division);
        let allotted = Box::new(move |key, member, per_second| {
            if let Some(division) = told.upgrade() {
                division.allotted(key, member, per_second);
            }
        });
        match owners {
            Owners::Alone(alone) => alone.on_allotted(allotted),
            Owners::Fleet(fleet) => fleet.on_allotted(allotted),
        };
        division
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key's owner gives a member its part.
    fn allotted(&self, key: KeyId, member: u64, per_second: Option<f64>) {
        let now = self.limiter.now();
        let mut state = self.state();
        let Some(&(stream, number)) = state.members.get(&member) else { return };
        let Some(stream) = state.streams.get_mut(&stream) else { return };
        let Some(bucket) = stream.buckets.get_mut(&number) else { return };
        let Some(own) = bucket.keys.get_mut(&key) else { return };
        own.per_second = per_second;
        // What cannot be relied on is not told, and ends at the client by itself.
        if let Some(part) = bucket.part() {
            stream.mailbox.put(number, part, bucket.confirmed_until(now));
        }
    }

    /// The limits that apply to a bucket and are divided, and whether others apply.
    fn limits_of(&self, domain: &str, entries: &[(&str, &str)]) -> (Vec<DividedLimit>, bool) {
        let entries: Vec<Entry<'_>> =
            entries.iter().map(|(name, value)| Entry::new(name, value.as_bytes())).collect();
        // What a stream reports is within the bounds of requests.
        let Ok(descriptor) = Descriptor::ordered(&entries) else { return (Vec::new(), false) };
        let descriptors = [descriptor];
        self.limiter.divided(&Request::new(&descriptors).in_domain(domain))
    }
}

impl Divider for Division {
    fn join(&self, mailbox: Mailbox) -> Result<StreamId, TooMany> {
        let mut state = self.state();
        state.given += 1;
        let id = StreamId(state.given);
        state.streams.insert(id, Stream { mailbox, buckets: HashMap::new() });
        Ok(id)
    }

    fn tell(
        &self,
        stream: StreamId,
        bucket: u32,
        domain: &str,
        entries: &[(&str, &str)],
        usage: Usage,
    ) {
        let (limits, has_others) = self.limits_of(domain, entries);
        let now = self.limiter.now();
        let mut state = self.state();
        let member = state.given + 1;
        let has_warned = state.has_warned;
        let Some(Stream { mailbox, buckets }) = state.streams.get_mut(&stream) else { return };
        let is_new = !buckets.contains_key(&bucket);
        let known = buckets.entry(bucket).or_insert_with(|| Bucket::new(member));
        known.count(&usage);
        let left = known.adopt(&limits);
        let (member, told) = (known.member, known.usages(&limits));
        if limits.is_empty() && !has_others {
            mailbox.put(bucket, Part::AllowAll, known.confirmed_until(now));
        }
        if is_new {
            state.given = member;
            state.members.insert(member, (stream, bucket));
        }
        if limits.is_empty() && has_others && !has_warned {
            state.has_warned = true;
            warn!(target: "quota", "limits that apply to a bucket are none of guarantee `share`: \
                   it is assigned nothing");
        }
        drop(state);
        for key in left {
            self.owners.gone(key, member);
        }
        for usage in told {
            // Of one for which there is no room what it has ends at its client.
            let _ = self.owners.tell(usage);
        }
    }

    fn gone(&self, stream: StreamId, bucket: u32) {
        let mut state = self.state();
        let Some(known) = state.streams.get_mut(&stream) else { return };
        let Some(known) = known.buckets.remove(&bucket) else { return };
        state.members.remove(&known.member);
        drop(state);
        known.keys.keys().for_each(|key| self.owners.gone(*key, known.member));
    }

    fn leave(&self, stream: StreamId) {
        let mut state = self.state();
        let Some(known) = state.streams.remove(&stream) else { return };
        for bucket in known.buckets.values() {
            state.members.remove(&bucket.member);
        }
        drop(state);
        for bucket in known.buckets.values() {
            bucket.keys.keys().for_each(|key| self.owners.gone(*key, bucket.member));
        }
    }
}

impl Bucket {
    fn new(member: u64) -> Self {
        let (keys, interval) = (BTreeMap::new(), INTERVAL_DEFAULT);
        Self { member, keys, allowed: 0, denied: 0, interval, reports: 0 }
    }

    fn count(&mut self, usage: &Usage) {
        self.allowed = self.allowed.saturating_add(usage.allowed);
        self.denied = self.denied.saturating_add(usage.denied);
        self.reports += 1;
        // The first is early, so that the second may come soon.
        if self.reports > 2 {
            self.interval = usage.elapsed.clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
    }

    /// Has a part of these limits' keys from now on. Returns those of which it has none any more.
    fn adopt(&mut self, limits: &[DividedLimit]) -> Vec<KeyId> {
        let stays = |key: &KeyId| limits.iter().any(|limit| limit.key == *key);
        let left: Vec<KeyId> = self.keys.keys().copied().filter(|key| !stays(key)).collect();
        self.keys.retain(|key, _| stays(key));
        for limit in limits {
            let own = self.keys.entry(limit.key);
            own.or_insert(Own { limit: *limit, per_second: None }).limit = *limit;
        }
        left
    }

    fn usages(&self, limits: &[DividedLimit]) -> Vec<StreamUsage> {
        let &Self { member: stream, allowed, denied, interval, .. } = self;
        let usage = |limit: &DividedLimit| StreamUsage {
            key: limit.key,
            limit: limit.limit,
            stream,
            allowed,
            denied,
            interval,
        };
        limits.iter().map(usage).collect()
    }

    /// What it may use: the least of its parts, once all are known.
    fn part(&self) -> Option<Part> {
        let rates: Option<Vec<f64>> = self.keys.values().map(|own| own.per_second).collect();
        let per_second = rates?.into_iter().min_by(f64::total_cmp)?;
        let burst_cap = self.keys.values().map(|own| own.limit.burst).min()?;
        if burst_cap == 0 {
            return Some(Part::DenyAll);
        }
        Some(Part::Rate { per_second, burst_cap })
    }

    /// Until the next report but one should have come and been answered.
    fn confirmed_until(&self, now: Instant) -> Instant {
        now.saturating_add(self.interval * 5 / 2)
    }
}

/// Envoy's, whatever is configured; shorter than its first reports are apart.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tollgate::{Clock, ClockHand, Limit, LimitSpec, Options};

    use super::*;
    use crate::quota::{Letters, mailbox};

    const SHARE: LimitSpec<'static> = LimitSpec {
        name: "api",
        domain: "edge",
        matches: &[("name", "api")],
        key: &["tenant"],
        rate: "100/s",
        guarantee: "share",
        ..LimitSpec::DEFAULT
    };

    struct Daemon {
        division: Arc<Division>,
        limiter: Limiter,
        hand: ClockHand,
    }

    struct Client {
        id: StreamId,
        letters: Letters,
        told: HashMap<u32, Part>,
    }

    impl Daemon {
        /// A daemon that is alone, in virtual time.
        fn new(limits: &[LimitSpec<'_>]) -> Self {
            let (clock, hand) = Clock::manual();
            let parse = |spec: &LimitSpec<'_>| Limit::parse(spec).expect("sound");
            let options = Options { clock, share: true, ..Options::default() };
            let limits = limits.iter().map(parse).collect();
            let limiter = Limiter::new(limits, options).expect("sound");
            let alone = Alone::start(&limiter).expect("it divides");
            let division = Division::new(limiter.clone(), Owners::Alone(alone));
            Self { division, limiter, hand }
        }

        fn join(&self) -> Client {
            let (mailbox, letters) = mailbox();
            let id = self.division.join(mailbox).expect("room");
            Client { id, letters, told: HashMap::new() }
        }

        async fn pass(&self, millis: u64) {
            for _ in 0..millis / 10 {
                let step = Duration::from_millis(10);
                self.hand.advance(step);
                tokio::time::advance(step).await;
                tokio::task::yield_now().await;
            }
        }

        fn tell(&self, client: &Client, bucket: u32, tenant: &str, (allowed, denied): (u64, u64)) {
            let entries = [("name", "api"), ("tenant", tenant)];
            let usage = Usage { allowed, denied, elapsed: Duration::from_secs(5) };
            client.letters.open(bucket);
            self.division.tell(client.id, bucket, "edge", &entries, usage);
        }
    }

    impl Client {
        /// What a bucket has, as it was told last.
        fn part(&mut self, bucket: u32) -> Option<Part> {
            let taken = self.letters.take().into_iter();
            self.told.extend(taken.map(|(bucket, told)| (bucket, told.part)));
            self.told.get(&bucket).copied()
        }

        fn rate(&mut self, bucket: u32) -> f64 {
            match self.part(bucket) {
                Some(Part::Rate { per_second, burst_cap: 100 }) => per_second,
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_streams_and_this_node_divide_a_limit_by_demand() {
        let daemon = Daemon::new(&[SHARE]);
        let (mut one, mut two) = (daemon.join(), daemon.join());
        for _ in 0..4 {
            daemon.tell(&one, 1, "acme", (375, 375));
            daemon.tell(&two, 1, "acme", (125, 125));
            daemon.pass(5_000).await;
        }
        let rates = (one.rate(1), two.rate(1));
        assert!((rates.0 - 75.0).abs() < 1.0 && (rates.1 - 25.0).abs() < 1.0, "{rates:?}");
        // What is asked for here is divided with them.
        let entries = [Entry::new("name", "api"), Entry::new("tenant", "acme")];
        let descriptors = [Descriptor::new(&entries).expect("sound")];
        let request = Request::new(&descriptors).in_domain("edge");
        let mut passed = 0;
        for _ in 0..4 {
            daemon.tell(&one, 1, "acme", (375, 375));
            daemon.tell(&two, 1, "acme", (125, 125));
            for _ in 0..500 {
                let asked = (0..2).filter(|_| daemon.limiter.check(&request).is_allowed());
                passed += asked.count();
                daemon.pass(10).await;
            }
        }
        let rates = (one.rate(1), two.rate(1));
        assert!((rates.0 - 37.5).abs() < 2.0 && (rates.1 - 12.5).abs() < 2.0, "{rates:?}");
        assert!((900..1_250).contains(&passed), "{passed}");
        // Whoever leaves, leaves its part.
        daemon.division.leave(one.id);
        daemon.tell(&two, 1, "acme", (125, 125));
        daemon.pass(15_000).await;
        daemon.tell(&two, 1, "acme", (125, 125));
        daemon.pass(100).await;
        assert!(two.rate(1) > 95.0, "{}", two.rate(1));
        assert_eq!(daemon.division.state().members.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_are_mapped_to_limits_as_requests_are() {
        let tiny = LimitSpec { name: "all", key: &[], rate: "10/s", ..SHARE };
        let other = LimitSpec { domain: "else", guarantee: "local", ..SHARE };
        let daemon = Daemon::new(&[SHARE, tiny, other]);
        let mut client = daemon.join();
        daemon.tell(&client, 1, "acme", (1, 0));
        daemon.pass(300).await;
        // Both limits apply, and the smaller one counts.
        let Some(Part::Rate { per_second, burst_cap: 10 }) = client.part(1) else { panic!() };
        assert!((per_second - 10.0).abs() < 1e-6, "{per_second}");
        // No limit applies.
        let usage = Usage { allowed: 1, denied: 0, elapsed: Duration::ZERO };
        client.letters.open(2);
        daemon.division.tell(client.id, 2, "edge", &[("name", "web")], usage);
        assert_eq!(client.part(2), Some(Part::AllowAll));
        // One that is not divided: its client does what it does without an assignment.
        client.letters.open(3);
        daemon.division.tell(client.id, 3, "else", &[("name", "api")], usage);
        daemon.pass(300).await;
        assert_eq!(client.part(3), None);
        assert!(daemon.division.state().has_warned);
        daemon.division.gone(client.id, 1);
        daemon.division.gone(client.id, 1);
        daemon.division.leave(client.id);
        daemon.division.leave(client.id);
        assert_eq!(daemon.division.state().members.len(), 0);
    }
}
