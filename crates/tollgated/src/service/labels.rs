//! The limits by their ids, kept ready so that answers copy and never search.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::{Descriptor, Limit, LimitId, LimitStatus, Limiter};

use crate::config::{AsWritten, WrittenLimits};

/// How answers call a limit, and what its keys are made of.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Label {
    /// None for a limit that is gone since it decided.
    limit: Option<Limit>,
    as_written: Option<AsWritten>,
}

impl Label {
    pub(crate) fn domain(&self) -> &str {
        self.limit.as_ref().map_or("", Limit::domain)
    }

    pub(crate) fn name(&self) -> &str {
        self.limit.as_ref().map_or("", Limit::name)
    }

    /// What an Envoy file calls it, and the unit it gives there.
    pub(crate) fn as_written(&self) -> Option<&AsWritten> {
        self.as_written.as_ref()
    }

    /// The parts of the key that a descriptor has.
    pub(crate) fn key_of<'a>(
        &'a self,
        descriptor: &Descriptor<'a>,
    ) -> Vec<(&'a str, Option<&'a [u8]>)> {
        let parts = self.limit.as_ref().map(|limit| limit.key_of(descriptor));
        parts.into_iter().flatten().collect()
    }
}

/// The labels of all limits in force.
#[derive(Debug, Default)]
pub(crate) struct Labels(ArcSwap<HashMap<LimitId, Arc<Label>>>);

impl Labels {
    pub(crate) fn replace(&self, limits: Vec<LimitStatus>, written: &WrittenLimits) {
        let label = |LimitStatus { id, limit, .. }| {
            let key = (limit.domain().to_owned(), limit.name().to_owned());
            let as_written = written.get(&key).cloned();
            (id, Arc::new(Label { limit: Some(limit), as_written }))
        };
        self.0.store(Arc::new(limits.into_iter().map(label).collect()));
    }

    /// The label of a limit. One that took force a moment ago is asked for.
    pub(crate) fn of(&self, id: LimitId, limiter: &Limiter) -> Arc<Label> {
        if let Some(label) = self.0.load().get(&id) {
            return label.clone();
        }
        let current = limiter.limits().into_iter().find(|status| status.id == id);
        let limit = current.map(|status| status.limit);
        Arc::new(Label { limit, as_written: None })
    }
}
