//! A run for people: what was promised of each key and what was seen, as numbers and as a page.
//!
//! What is right and wrong is decided by [`check`](crate::check). How a chart looks is decided by
//! [`plot`](crate::plot).

mod fault;
mod over_time;
mod report;
mod page;

use crate::scenario::{Nanos, Scenario};

pub use fault::words;
pub use page::page;
pub use report::{KeyReport, NodeReport, Report, Verdict};

/// What the limits and keys of a scenario, which knows them by number, are called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// The scenario.
    pub title: String,
    /// Its limits.
    pub limits: Vec<String>,
    /// The keys of each limit.
    pub keys: Vec<Vec<String>>,
}

impl Names {
    /// `api/acme`: a limit and one of its keys.
    #[must_use]
    pub fn of(&self, limit: usize, key: u32) -> String {
        let name = self.limits.get(limit).map_or("?", |name| name);
        let key = self.keys.get(limit).and_then(|keys| keys.get(key as usize));
        format!("{name}/{}", key.map_or("?", |key| key))
    }
}

/// How often a run is to be sampled, so that its charts show 500 parts of it.
#[must_use]
pub fn every(scenario: &Scenario) -> Nanos {
    scenario.lasts.div_ceil(PARTS).max(1)
}

/// Parts of a run that are sampled.
const PARTS: u64 = 500;
