//! Everything that the doors share.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::Owed;
use tollgate_tokio::Fleet;

use crate::agreement::Agreement;
use crate::exposition::Exposition;
use crate::overview::Overview;
use crate::policy::Policy;
use crate::quota::Divider;
use crate::service::Service;
use crate::shares::ShareSource;

/// One daemon.
pub(crate) struct App {
    pub(crate) service: Arc<Service>,
    pub(crate) policy: Arc<Policy>,
    /// What the fleet has agreed on; none where the policy file is the truth.
    pub(crate) agreement: Option<Arc<dyn Agreement>>,
    /// The fleet as this member sees it; none if it is alone.
    pub(crate) overview: Option<Arc<dyn Overview>>,
    /// What waits for what the fleet permits; none where this daemon is alone.
    pub(crate) member: Option<Member>,
    /// What divides limits among streams that use them by assignment; none if nothing does.
    pub(crate) divider: Option<Arc<dyn Divider>>,
    /// How what is divided stands here; none if nothing is.
    pub(crate) shares: Option<ShareSource>,
    pub(crate) exposition: Exposition,
    pub(crate) bounds: Bounds,
    /// What clients must show, if anything.
    pub(crate) secret: Option<SharedSecret>,
    /// Which header fields an HTTP answer has unless the request says otherwise.
    pub(crate) headers: HeaderStyle,
    /// Which header fields an answer to Envoy adds to the response.
    pub(crate) grpc_headers: HeaderStyle,
    /// Bytes of half-received messages, over all connections.
    pub(crate) held: Arc<AtomicUsize>,
}

/// This daemon as a member of a fleet: what there can be waited for.
pub(crate) struct Member {
    pub(crate) fleet: Fleet,
    /// Debts that are being collected.
    debts: Arc<Semaphore>,
}

impl Member {
    pub(crate) fn new(fleet: Fleet) -> Self {
        Self { fleet, debts: Arc::new(Semaphore::new(DEBTS_MAX)) }
    }

    /// Has what a settled reservation owes charged as it is permitted. It ends with the worker.
    pub(crate) fn collect(&self, owed: Owed, service: &Arc<Service>) {
        let (fleet, service) = (self.fleet.clone(), service.clone());
        let Ok(place) = self.debts.clone().try_acquire_owned() else {
            return service.note_owed(0, owed.cost);
        };
        tokio::spawn(async move {
            let left = fleet.collect(&owed, DEBT_AGE_MAX).await;
            service.note_owed(owed.cost - left, left);
            drop(place);
        });
    }
}

/// Debts that are collected at once; of others it is counted that they were not.
const DEBTS_MAX: usize = 1_024;
/// How long a debt may take. What is owed longer than that would hold up those who come then.
const DEBT_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(any(test, fuzzing))]
impl App {
    /// A daemon without sockets, whose clock stands still until its hand is turned.
    pub(crate) fn for_tests(limits: Vec<tollgate::Limit>) -> (Self, tollgate::ClockHand) {
        let (app, hand) = Self::without_limits(false);
        app.service.replace(limits, &std::collections::HashMap::new()).expect("sound limits");
        (app, hand)
    }

    /// The same in a fleet of which nothing is ever heard.
    #[cfg(test)]
    pub(crate) fn cut_off(limits: Vec<tollgate::Limit>) -> Self {
        let (app, _) = Self::without_limits(true);
        let numbered = (1..).zip(limits).map(|(number, limit)| tollgate::Numbered {
            limit,
            number: tollgate::FleetLimitId(number),
            generation: 1,
        });
        let put = app.service.limiter().replace_numbered(numbered.collect(), 1);
        put.expect("sound limits");
        app
    }

    fn without_limits(fleet: bool) -> (Self, tollgate::ClockHand) {
        let (clock, hand) = tollgate::Clock::manual();
        let options = tollgate::Options { clock, keys_max: 1_000, fleet, ..Default::default() };
        let service = Arc::new(Service::new(options).expect("sound options"));
        let policy = Arc::new(Policy::new("none.toml".as_ref(), service.clone()));
        let held = Arc::<AtomicUsize>::default();
        let app = Self {
            exposition: Exposition::new(service.clone(), policy.clone(), None, None, held.clone()),
            service,
            policy,
            agreement: None,
            overview: None,
            member: None,
            divider: None,
            shares: None,
            bounds: Bounds {
                connections_max: 10,
                idle: Duration::from_secs(300),
                partial: Duration::from_secs(10),
                age: None,
                drain: Duration::from_secs(10),
            },
            secret: None,
            headers: HeaderStyle::Ietf,
            grpc_headers: HeaderStyle::None,
            held,
        };
        (app, hand)
    }

    /// A member of a fleet with one limit, number 4 of the fleet's, as the fleet's store has it.
    #[cfg(test)]
    pub(crate) fn of_fleet(limit: &str) -> Self {
        let (app, _) = Self::for_tests(Vec::new());
        let options =
            tollgate::Options { fleet: true, share: true, keys_max: 1_000, ..Default::default() };
        let service = Arc::new(Service::new(options).expect("sound options"));
        let limit = tollgate_tokio::limit_text::from_text("default/api", limit).expect("a limit");
        let number = tollgate::FleetLimitId(4);
        let numbered = vec![tollgate::Numbered { limit, number, generation: 1 }];
        let _ = service.limiter().replace_numbered(numbered, 1).expect("sound limits");
        Self { service, ..app }
    }

    /// The same, with the metrics of its fleet among all others.
    #[cfg(test)]
    pub(crate) fn with_overview(self) -> Self {
        let (service, policy) = (self.service.clone(), self.policy.clone());
        let (overview, shares) = (self.overview.clone(), self.shares.clone());
        let exposition = Exposition::new(service, policy, overview, shares, self.held.clone());
        Self { exposition, ..self }
    }
}

/// What connections are held to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Connections that may be open, over all doors.
    pub(crate) connections_max: usize,
    /// How long a connection may ask nothing.
    pub(crate) idle: Duration,
    /// How long a request may take to arrive, and a reply to be taken.
    pub(crate) partial: Duration,
    /// How long an HTTP or gRPC connection may last before its next answer closes it.
    pub(crate) age: Option<Duration>,
    /// How long connections may go on when the process is to end.
    pub(crate) drain: Duration,
}

/// Which fields an answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "kebab-case")]
pub(crate) enum HeaderStyle {
    /// None but `Retry-After`
    None,
    /// `RateLimit` and `RateLimit-Policy`, as draft-ietf-httpapi-ratelimit-headers-08 and later
    Ietf,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`, as its revision 03
    Draft03,
    /// The same with `X-` before it
    XDraft03,
    /// `X-RateLimit-*` with the reset as a Unix time, as GitHub has it
    Github,
}

impl FromStr for HeaderStyle {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        <Self as clap::ValueEnum>::from_str(text, false).map_err(|_| ())
    }
}

/// A secret that clients must show. It is never printed.
pub(crate) struct SharedSecret(Vec<u8>);

impl SharedSecret {
    /// The secret in a file, without the line end behind it; none if the file holds none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let secret = bytes.trim_ascii_end();
        (!secret.is_empty()).then(|| Self(secret.to_vec()))
    }

    /// Whether `shown` is it. Takes the same time wherever they differ.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let differ = self.0.iter().zip(shown).fold(0, |differ, (a, b)| differ | (a ^ b));
        // Not to be cut short by a compiler that sees the first difference.
        std::hint::black_box(differ) == 0 && self.0.len() == shown.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_whole_of_it_and_nothing_more() {
        let secret = SharedSecret::read(b"open sesame\n").expect("a secret");
        assert!(secret.is(b"open sesame"));
        for wrong in [&b""[..], b"open", b"open sesame\n", b"open sesamE"] {
            assert!(!secret.is(wrong));
        }
        assert!(SharedSecret::read(b" \n").is_none());
    }
}
