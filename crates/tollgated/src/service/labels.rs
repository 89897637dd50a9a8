//! The limits' names by their ids, kept ready so that answers copy and never search.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::{LimitId, LimitStatus, Limiter};

/// How answers call a limit, and what its key is made of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    domain: String,
    name: String,
    key: Vec<String>,
}

impl Label {
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        self.key.iter().map(String::as_str)
    }
}

/// The labels of all limits in force.
#[derive(Debug, Default)]
pub(crate) struct Labels(ArcSwap<HashMap<LimitId, Arc<Label>>>);

impl Labels {
    pub(crate) fn replace(&self, limits: &[LimitStatus]) {
        let label = |status: &LimitStatus| (status.id, Arc::new(label_of(status)));
        self.0.store(Arc::new(limits.iter().map(label).collect()));
    }

    /// The label of a limit. One that took force a moment ago is asked for; one that is gone since
    /// it decided has no name any more.
    pub(crate) fn of(&self, id: LimitId, limiter: &Limiter) -> Arc<Label> {
        if let Some(label) = self.0.load().get(&id) {
            return label.clone();
        }
        let current = limiter.limits().into_iter().find(|status| status.id == id);
        Arc::new(current.as_ref().map(label_of).unwrap_or_default())
    }
}

fn label_of(status: &LimitStatus) -> Label {
    let limit = &status.limit;
    Label {
        domain: limit.domain().into(),
        name: limit.name().into(),
        key: limit.key().map(str::to_owned).collect(),
    }
}
