//! The node's side of its session: until when it surely owns its keys.
//!
//! Two clocks run at the coordinator, one from when it last heard the node and one from when a
//! connection closed. The node knows instants before both: when it sent what was heard, and when it
//! saw the close. Connections and messages are the driver's.

use super::options::{OnCoordinatorLoss, SessionOptions, SessionOptionsError};
use crate::time::Instant;

/// Until when an owner may let permissions live.
///
/// One for each start of a process: a node that is told that it is lost joins again and makes
/// another one. The join counts as its first heartbeat.
///
/// ```
/// use tollgate::Instant;
/// use tollgate::coordinator::{Lease, OnCoordinatorLoss, SessionOptions};
/// let options = SessionOptions {
///     drift_ppm: 0,
///     on_coordinator_loss: OnCoordinatorLoss::Deny,
///     ..SessionOptions::default()
/// };
/// let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
/// let mut lease = Lease::new(options)?;
/// lease.sent(at(0));
/// lease.acknowledged(at(0));
/// assert_eq!(lease.grants_until(), at(2_100));
/// lease.closed(at(100));
/// assert_eq!(lease.grants_until(), at(500));
/// lease.reconnected(at(200));
/// lease.sent(at(200));
/// assert_eq!(lease.grants_until(), at(500));
/// // Now the coordinator surely knows that the node is back.
/// lease.acknowledged(at(200));
/// assert_eq!(lease.grants_until(), at(2_300));
/// # Ok::<(), tollgate::coordinator::SessionOptionsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Lease {
    options: SessionOptions,
    /// When the last heartbeat was sent.
    sent: Option<Instant>,
    /// When the last one that was acknowledged was sent.
    acknowledged: Option<Instant>,
    broken: Option<Break>,
    heartbeat_at: Instant,
}

/// Closes of which it is not known that the coordinator knows them healed.
#[derive(Debug, Clone, Copy)]
struct Break {
    /// The first close.
    at: Instant,
    /// The last heartbeat before the last close: one that was sent later heals.
    after: Option<Instant>,
}

impl Lease {
    /// The lease of a process that has not been heard yet: it lets no permission live.
    ///
    /// # Errors
    /// When `options` don't [check](SessionOptions::check).
    pub fn new(options: SessionOptions) -> Result<Self, SessionOptionsError> {
        options.check()?;
        let heartbeat_at = Instant::ZERO;
        Ok(Self { options, sent: None, acknowledged: None, broken: None, heartbeat_at })
    }

    /// A heartbeat goes out, to every replica of the coordinator that is connected.
    ///
    /// `now` is read before it is written to any connection.
    pub fn sent(&mut self, now: Instant) {
        self.sent = self.sent.max(Some(now));
        self.heartbeat_at = now.saturating_add(self.options.heartbeat);
    }

    /// The leader has heard the heartbeat that was sent at `sent_at`.
    ///
    /// Only an acknowledgement counts that a replica sent after it had confirmed that it leads, by
    /// a round trip to a quorum that began when it had the heartbeat: a leader that was replaced
    /// without knowing it acknowledges for nobody. What was never sent changes nothing.
    pub fn acknowledged(&mut self, sent_at: Instant) {
        if self.sent.is_none_or(|sent| sent < sent_at) {
            return;
        }
        self.acknowledged = self.acknowledged.max(Some(sent_at));
        self.broken = self.broken.filter(|broken| Some(sent_at) <= broken.after);
    }

    /// A connection to a replica of the coordinator closed, to whichever: each may lead by now.
    ///
    /// The next heartbeat is due at once, to those that are left: once the leader acknowledges it,
    /// the close no longer counts.
    pub fn closed(&mut self, now: Instant) {
        let at = self.broken.map_or(now, |broken| broken.at);
        self.broken = Some(Break { at, after: self.sent });
        self.heartbeat_at = self.heartbeat_at.min(now);
    }

    /// A connection was made again: the next heartbeat is due at once.
    ///
    /// By itself that heals nothing, because the coordinator may not have heard anything on it.
    pub fn reconnected(&mut self, now: Instant) {
        self.heartbeat_at = self.heartbeat_at.min(now);
    }

    /// When the next heartbeat is due, if anyone is connected.
    #[must_use]
    pub fn heartbeat_at(&self) -> Instant {
        self.heartbeat_at
    }

    /// The first instant at which no permission may live any more; [`Instant::MAX`] under
    /// [`OnCoordinatorLoss::Serve`].
    ///
    /// A grant at `now` gets the rest of the time to it at most. It may move back only by a close.
    #[must_use]
    pub fn grants_until(&self) -> Instant {
        match self.options.on_coordinator_loss {
            OnCoordinatorLoss::Serve => return Instant::MAX,
            OnCoordinatorLoss::Deny => {}
        }
        let Some(heard) = self.acknowledged else { return Instant::ZERO };
        let by_silence = heard.saturating_add(self.options.heartbeat_lease());
        match self.broken {
            Some(broken) => by_silence.min(broken.at.saturating_add(self.options.close_lease())),
            None => by_silence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn lease() -> Lease {
        let on_coordinator_loss = OnCoordinatorLoss::Deny;
        let options = SessionOptions { drift_ppm: 0, on_coordinator_loss, ..Default::default() };
        let mut lease = Lease::new(options).expect("sound");
        assert_eq!(lease.grants_until(), Instant::ZERO);
        lease.sent(at(0));
        assert_eq!(lease.grants_until(), Instant::ZERO);
        lease.acknowledged(at(0));
        lease
    }

    #[test]
    fn an_owner_that_serves_has_no_end() {
        let mut lease = Lease::new(SessionOptions::default()).expect("sound");
        lease.closed(at(1));
        assert_eq!(lease.grants_until(), Instant::MAX);
    }

    #[test]
    fn acknowledgements_count_from_when_the_heartbeat_was_sent_and_in_any_order() {
        let mut lease = lease();
        lease.sent(at(500));
        lease.sent(at(1_000));
        lease.acknowledged(at(1_000));
        lease.acknowledged(at(500));
        assert_eq!(lease.grants_until(), at(3_100));
        // Nothing was sent then.
        lease.acknowledged(at(1_001));
        assert_eq!(lease.grants_until(), at(3_100));
    }

    #[test]
    fn a_heartbeat_from_before_a_close_does_not_heal_it() {
        let mut lease = lease();
        lease.sent(at(500));
        lease.closed(at(500));
        lease.acknowledged(at(500));
        assert_eq!(lease.grants_until(), at(900));
        lease.reconnected(at(600));
        lease.sent(at(600));
        // Closed once more: what was sent in between may have been heard before that.
        lease.closed(at(700));
        lease.acknowledged(at(600));
        assert_eq!(lease.grants_until(), at(900));
        lease.sent(at(800));
        lease.acknowledged(at(800));
        assert_eq!(lease.grants_until(), at(2_900));
    }

    #[test]
    fn a_heartbeat_is_due_at_once_after_a_close_and_after_a_reconnect() {
        let mut lease = lease();
        assert_eq!(lease.heartbeat_at(), at(500));
        lease.closed(at(100));
        assert_eq!(lease.heartbeat_at(), at(100));
        lease.sent(at(100));
        assert_eq!(lease.heartbeat_at(), at(600));
        lease.reconnected(at(200));
        assert_eq!(lease.heartbeat_at(), at(200));
    }
}
