//! Rate limits in front of a service's own HTTP handlers, as a layer of `tower`.
//!
//! What a request is limited by is said by a closure; whether it passes is decided by a [`Fleet`],
//! or by a [`Limiter`] that is nobody's member. The handler behind knows nothing of it.

mod denial;
mod describe;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use tokio::time::Instant as Tick;
use tollgate::{Attempt, Decision, Limiter, Outcome, Patience, Reason, Wait};
use tower_layer::Layer;
use tower_service::Service;

use crate::fields::{self, FieldStyle};
use crate::fleet::Fleet;
pub use denial::{Denial, DenialBody, PlainText};
pub use describe::{Describe, Limited, Unsound, Value};

/// What decides.
#[derive(Debug, Clone)]
pub enum Decider {
    /// A fleet, of which this process is a member.
    Fleet(Fleet),
    /// This process alone.
    Limiter(Limiter),
}

impl From<Fleet> for Decider {
    fn from(fleet: Fleet) -> Self {
        Self::Fleet(fleet)
    }
}

impl From<Limiter> for Decider {
    fn from(limiter: Limiter) -> Self {
        Self::Limiter(limiter)
    }
}

/// Decides by a limiter that is nobody's member, and lets the request wait for room.
async fn acquire(
    limiter: &Limiter,
    request: &tollgate::Request<'_>,
    patience: Duration,
) -> Decision {
    let until = Tick::now() + patience;
    loop {
        let wakes = match limiter.attempt(request, Patience::Room) {
            Attempt::Decided(decision) => return decision,
            Attempt::Waits(Wait::Until(at)) => {
                Some(Tick::now() + at.saturating_since(limiter.now()))
            }
            // Of a fleet's limits, whose credit nobody brings here.
            Attempt::Waits(Wait::Credit { .. }) => None,
        };
        let Some(wakes) = wakes.filter(|wakes| *wakes <= until) else {
            tokio::time::sleep_until(until).await;
            return limiter.refuse(request, Reason::Deadline);
        };
        tokio::time::sleep_until(wakes).await;
    }
}

/// Puts rate limits in front of a service of HTTP requests.
///
/// A request that passes reaches the service, and its answer gets the `RateLimit` fields. One that
/// does not is answered with [`Denial::status`], the same fields and, where waiting helps,
/// `Retry-After`; the service never hears of it.
///
/// ```
/// use tollgate::{Limit, LimitSpec, Limiter, Options};
/// use tollgate_tokio::tower::RateLimitLayer;
///
/// let api = LimitSpec { name: "api", key: &["tenant"], rate: "10/s", ..LimitSpec::DEFAULT };
/// let limiter = Limiter::new(vec![Limit::parse(&api)?], Options::default())?;
/// // A `Fleet` in place of the limiter has the fleet's limits.
/// let layer = RateLimitLayer::new(limiter, |head, limited| {
///     let tenant = head.headers.get("x-tenant");
///     limited.descriptor().entry("tenant", tenant).entry("path", head.uri.path()).cost(1);
/// });
/// # let _ = layer;
/// # Ok::<(), tollgate::LimitError>(())
/// ```
pub struct RateLimitLayer<F, D = PlainText> {
    rule: Rule<F, D>,
}

/// A service behind its limits: what [`RateLimitLayer`] makes.
pub struct RateLimit<S, F, D = PlainText> {
    inner: S,
    rule: Arc<Rule<F, D>>,
}

struct Rule<F, D> {
    decider: Decider,
    describe: Arc<F>,
    denials: Arc<D>,
    patience: Option<Duration>,
    style: FieldStyle,
}

impl<F> RateLimitLayer<F>
where
    F: for<'a> Fn(&'a Parts, &mut Limited<'a>) + Send + Sync + 'static,
{
    /// Limits of a [`Fleet`] or a [`Limiter`], for requests that `describe` tells them by.
    pub fn new(decider: impl Into<Decider>, describe: F) -> Self {
        let rule = Rule {
            decider: decider.into(),
            describe: Arc::new(describe),
            denials: Arc::new(PlainText),
            patience: None,
            style: FieldStyle::default(),
        };
        Self { rule }
    }
}

impl<F, D> RateLimitLayer<F, D> {
    /// Lets requests wait for room for so long at most, instead of denying them at once. Of a
    /// fleet, those for one key are served in their order.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.rule.patience = Some(patience);
        self
    }

    /// How answers tell clients how they stand.
    #[must_use]
    pub fn with_fields(mut self, style: FieldStyle) -> Self {
        self.rule.style = style;
        self
    }

    /// What denials have for a body; without this it is a line of text.
    #[must_use]
    pub fn with_denials<E>(self, denials: E) -> RateLimitLayer<F, E> {
        let Rule { decider, describe, denials: _, patience, style } = self.rule;
        let denials = Arc::new(denials);
        RateLimitLayer { rule: Rule { decider, describe, denials, patience, style } }
    }
}

impl<F, D> Rule<F, D> {
    /// Decides what the closure says of a request.
    async fn decide(&self, head: &Parts) -> Result<Decision, Unsound>
    where
        F: for<'a> Fn(&'a Parts, &mut Limited<'a>),
    {
        let mut limited = Limited::new();
        (self.describe)(head, &mut limited);
        let entries = limited.entries();
        let descriptors = limited.descriptors(&entries)?;
        let request = tollgate::Request::new(&descriptors).in_domain(limited.domain);
        Ok(match (&self.decider, self.patience) {
            (Decider::Fleet(fleet), None) => fleet.check(&request).await,
            (Decider::Fleet(fleet), Some(patience)) => fleet.acquire(&request, patience).await,
            (Decider::Limiter(limiter), None) => limiter.check(&request),
            (Decider::Limiter(limiter), Some(patience)) => {
                acquire(limiter, &request, patience).await
            }
        })
    }

    fn answer<B>(&self, denial: &Denial) -> Response<B>
    where
        D: DenialBody<B>,
    {
        let mut response = Response::new(self.denials.body(denial));
        *response.status_mut() = denial.status();
        match denial {
            Denial::Limited { decision, .. } => self.add_fields(&mut response, decision),
            Denial::Unsound(_) => {}
        }
        response
    }

    fn add_fields<B>(&self, response: &mut Response<B>, decision: &Decision) {
        let limiter = match &self.decider {
            Decider::Fleet(fleet) => fleet.limiter(),
            Decider::Limiter(limiter) => limiter,
        };
        let name = decision.limit().and_then(|limit| limiter.limit_name(limit));
        let name = name.unwrap_or_default();
        fields::add(response.headers_mut(), decision, &name, self.style);
    }
}

impl<F, D> Clone for Rule<F, D> {
    fn clone(&self) -> Self {
        let Self { decider, describe, denials, patience, style } = self;
        Self {
            decider: decider.clone(),
            describe: describe.clone(),
            denials: denials.clone(),
            patience: *patience,
            style: *style,
        }
    }
}

impl<F, D> Clone for RateLimitLayer<F, D> {
    fn clone(&self) -> Self {
        Self { rule: self.rule.clone() }
    }
}

impl<S: Clone, F, D> Clone for RateLimit<S, F, D> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), rule: self.rule.clone() }
    }
}

impl<S, F, D> Layer<S> for RateLimitLayer<F, D> {
    type Service = RateLimit<S, F, D>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, rule: Arc::new(self.rule.clone()) }
    }
}

impl<S, F, D, A, B> Service<Request<A>> for RateLimit<S, F, D>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    F: for<'a> Fn(&'a Parts, &mut Limited<'a>) + Send + Sync + 'static,
    D: DenialBody<B> + Send + Sync + 'static,
    A: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The one that said that it is ready.
        let later = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, later);
        let rule = self.rule.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let decision = match rule.decide(&head).await {
                Err(unsound) => return Ok(rule.answer(&Denial::Unsound(unsound))),
                Ok(decision) => match decision.outcome() {
                    Outcome::Denied(reason) => {
                        return Ok(rule.answer(&Denial::Limited { decision, reason }));
                    }
                    Outcome::Allowed => decision,
                },
            };
            let mut response = inner.call(Request::from_parts(head, body)).await?;
            rule.add_fields(&mut response, &decision);
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests;
