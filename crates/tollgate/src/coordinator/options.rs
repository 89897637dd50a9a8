//! How long a session lasts, and by how much clocks may disagree about it.

use std::fmt;
use std::time::Duration;

/// What an owner does when it has lost the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCoordinatorLoss {
    /// It goes on: limits are decided while the coordinator is away. While an owner is cut off and
    /// replaced there are two for its keys, and the envelope is added to the bound.
    #[default]
    Serve,
    /// It lets no permission live for longer than it is surely still the owner.
    Deny,
}

/// How nodes and coordinators keep sessions; the same on all nodes of a fleet.
///
/// With the defaults, a killed process is lost 0.4 s after its connection closed, and a silent one
/// 2.1 s after it was last heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// How often a node speaks; typically 500 ms. At most a third of `session_timeout`, so that two
    /// lost messages break no session.
    pub heartbeat: Duration,
    /// After how much silence a session is broken; typically 1.7 s. Longer than `ttl_max`.
    pub session_timeout: Duration,
    /// How long the longest permission lives; typically 400 ms. So long after its session broke a
    /// node is lost.
    pub ttl_max: Duration,
    /// How far any clock's rate may be off, in parts per million; typically 500, the most by which
    /// a system corrects its clock. At most 100,000.
    pub drift_ppm: u32,
    /// What an owner does when it has lost the coordinator.
    pub on_coordinator_loss: OnCoordinatorLoss,
}

impl SessionOptions {
    /// Whether sessions can be kept by these options.
    ///
    /// # Errors
    /// When permissions could outlive a broken session's notice, heartbeats are too rare or a value
    /// is out of range.
    pub fn check(&self) -> Result<(), SessionOptionsError> {
        let Self { heartbeat, session_timeout, ttl_max, drift_ppm, on_coordinator_loss: _ } = *self;
        for (field, value) in
            [("heartbeat", heartbeat), ("session_timeout", session_timeout), ("ttl_max", ttl_max)]
        {
            if value.is_zero() || value > DURATION_MAX {
                return Err(SessionOptionsError::OutOfRange { field, value });
            }
        }
        if drift_ppm > DRIFT_PPM_MAX {
            return Err(SessionOptionsError::Drift { drift_ppm });
        }
        if session_timeout <= ttl_max {
            return Err(SessionOptionsError::TimeoutWithinTtl { session_timeout, ttl_max });
        }
        if heartbeat * 3 > session_timeout {
            return Err(SessionOptionsError::HeartbeatTooRare { heartbeat, session_timeout });
        }
        Ok(())
    }

    /// How long after a break a node is lost: `ttl_max`, by whichever clock.
    ///
    /// Some ttl_max·(1 + 2ρ): 400.4 ms at 500 ppm.
    pub(super) fn loss_wait(&self) -> Duration {
        if crate::mutant::lacks("lose_without_wait") {
            return Duration::ZERO;
        }
        self.widened(self.ttl_max)
    }

    /// How long after a close an owner lets permissions live.
    pub(super) fn close_lease(&self) -> Duration {
        self.shrunk(self.ttl_max)
    }

    /// How long after it sent a heartbeat that was acknowledged an owner lets permissions live.
    pub(super) fn heartbeat_lease(&self) -> Duration {
        self.shrunk(self.session_timeout + self.ttl_max)
    }

    /// What no other clock reads as less than `duration`, however both drift.
    fn widened(&self, duration: Duration) -> Duration {
        let (slow, mut fast) = self.rates();
        if crate::mutant::lacks("wait_not_widened") {
            fast = slow;
        }
        let nanos = (duration.as_nanos() * fast).div_ceil(slow);
        // One more because clocks are read in whole nanoseconds.
        Duration::from_nanos(nanos as u64 + 1)
    }

    /// What no other clock reads as more than `duration`, however both drift.
    fn shrunk(&self, duration: Duration) -> Duration {
        let (slow, mut fast) = self.rates();
        if crate::mutant::lacks("lease_not_shrunk") {
            fast = slow;
        }
        Duration::from_nanos((duration.as_nanos() * slow / fast) as u64)
    }

    /// The slowest and the fastest clock, in the same unit.
    fn rates(&self) -> (u128, u128) {
        debug_assert_eq!(self.check(), Ok(()));
        let drift = u128::from(self.drift_ppm);
        (1_000_000 - drift, 1_000_000 + drift)
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            session_timeout: Duration::from_millis(1_700),
            ttl_max: Duration::from_millis(400),
            drift_ppm: 500,
            on_coordinator_loss: OnCoordinatorLoss::Serve,
        }
    }
}

/// Why sessions can't be kept by some options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOptionsError {
    /// A time that is zero or above an hour.
    OutOfRange {
        /// The option.
        field: &'static str,
        /// Its value.
        value: Duration,
    },
    /// A drift above 100,000 ppm.
    Drift {
        /// The value.
        drift_ppm: u32,
    },
    /// A session timeout that is not longer than the longest permission.
    TimeoutWithinTtl {
        /// The session timeout.
        session_timeout: Duration,
        /// How long the longest permission lives.
        ttl_max: Duration,
    },
    /// Fewer than three heartbeats in a session timeout.
    HeartbeatTooRare {
        /// How often a node speaks.
        heartbeat: Duration,
        /// The session timeout.
        session_timeout: Duration,
    },
}

impl fmt::Display for SessionOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { field, value } => {
                write!(f, "{field} must be above zero and at most an hour, not {value:?}")
            }
            Self::Drift { drift_ppm } => {
                write!(f, "drift_ppm must be at most {DRIFT_PPM_MAX}, not {drift_ppm}")
            }
            Self::TimeoutWithinTtl { session_timeout, ttl_max } => write!(
                f,
                "session_timeout ({session_timeout:?}) must be longer than ttl_max ({ttl_max:?})"
            ),
            Self::HeartbeatTooRare { heartbeat, session_timeout } => write!(
                f,
                "heartbeat ({heartbeat:?}) must be at most a third of session_timeout \
                 ({session_timeout:?})"
            ),
        }
    }
}

impl std::error::Error for SessionOptionsError {}

/// Beyond it nobody waits for a fleet; products of it with rates fit easily.
const DURATION_MAX: Duration = Duration::from_secs(3_600);
const DRIFT_PPM_MAX: u32 = 100_000;

const _: () = assert!(DRIFT_PPM_MAX < 1_000_000, "the slowest clock goes on");

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_defaults_are_sound_and_their_neighbours_are_refused_with_both_values() {
        let sound = SessionOptions::default();
        assert_eq!(sound.check(), Ok(()));
        let options = SessionOptions { heartbeat: ms(567), ..sound };
        let (heartbeat, session_timeout) = (ms(567), ms(1_700));
        let error = SessionOptionsError::HeartbeatTooRare { heartbeat, session_timeout };
        assert_eq!(options.check(), Err(error));
        assert_eq!(
            error.to_string(),
            "heartbeat (567ms) must be at most a third of session_timeout (1.7s)"
        );
        let options = SessionOptions { ttl_max: ms(1_700), ..sound };
        let (session_timeout, ttl_max) = (ms(1_700), ms(1_700));
        let error = SessionOptionsError::TimeoutWithinTtl { session_timeout, ttl_max };
        assert_eq!(options.check(), Err(error));
        assert_eq!(error.to_string(), "session_timeout (1.7s) must be longer than ttl_max (1.7s)");
        let options = SessionOptions { drift_ppm: 100_001, ..sound };
        assert_eq!(options.check(), Err(SessionOptionsError::Drift { drift_ppm: 100_001 }));
        let options = SessionOptions { heartbeat: ms(0), ..sound };
        let error = SessionOptionsError::OutOfRange { field: "heartbeat", value: ms(0) };
        assert_eq!(options.check(), Err(error));
    }

    #[test]
    fn a_wait_is_longer_by_twice_the_drift_and_a_lease_shorter() {
        let options = SessionOptions { drift_ppm: 100_000, ..SessionOptions::default() };
        // 400 ms on the slowest clock are 400 · 1.1 / 0.9 on the fastest.
        assert_eq!(options.loss_wait().as_nanos(), 488_888_890);
        assert_eq!(options.close_lease().as_nanos(), 327_272_727);
        assert_eq!(options.heartbeat_lease().as_nanos(), 1_718_181_818);
    }
}
