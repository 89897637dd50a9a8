//! The policy file: read at the start, watched, and put in force as a whole or not at all.
//!
//! A file that is found wrong changes nothing; that is said in the log, in a metric and by
//! `/v1/limits` until it is right again. What a file says is known in `config`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tollgate::coordinator::{Document, LimitText};
use tollgate::{FleetRules, Guarantee, Limit};
use tollgate_tokio::limit_text::to_texts;
use tracing::{error, info, warn};

use crate::config::{self, Finding, KeptKeys, Reading, Severity, TallySettings, Watch};
use crate::service::Service;

/// Where the limits come from, and how the last reading went.
#[derive(Debug)]
pub(crate) struct Policy {
    path: PathBuf,
    merge_domains: bool,
    service: Arc<Service>,
    status: Mutex<Status>,
    before: Mutex<Before>,
}

/// What is kept from one reading to the next.
#[derive(Debug, Default)]
struct Before {
    keys: KeptKeys,
    /// How stores are used since the start.
    tally: Option<TallySettings>,
    /// Whether it was said that limits have no store.
    told_of_no_store: bool,
}

/// How the last reading went.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// The files whose limits are in force.
    pub(crate) files: Vec<PathBuf>,
    /// When they took force.
    pub(crate) loaded_at: Option<SystemTime>,
    /// What is wrong with what was read since; empty unless older limits are in force.
    pub(crate) errors: Vec<Finding>,
    /// What is doubtful about the limits in force.
    pub(crate) warnings: Vec<Finding>,
    /// Whether the limits are a fleet's, of the revision that the service says, and no file's.
    pub(crate) is_fleets: bool,
}

impl Policy {
    pub(crate) fn new(path: &Path, service: Arc<Service>) -> Self {
        let (status, before) = (Mutex::default(), Mutex::default());
        Self { path: path.into(), merge_domains: false, service, status, before }
    }

    /// The same policy, if a domain may be in several YAML files.
    pub(crate) fn with_merged_domains(self, merge_domains: bool) -> Self {
        Self { merge_domains, ..self }
    }

    /// Reads the file and puts its limits in force.
    ///
    /// # Errors
    /// What is wrong with it; the limits before stay in force.
    pub(crate) fn load(&self) -> Result<(), Vec<Finding>> {
        let metrics = self.service.metrics();
        match self.read() {
            Ok(()) => {
                metrics.loads_good.fetch_add(1, Relaxed);
                Ok(())
            }
            Err(findings) => {
                for finding in &findings {
                    log(finding);
                }
                let mut status = self.lock();
                status.errors = findings.clone();
                if status.loaded_at.is_some() {
                    error!(target: "policy", "the limits before stay in force");
                }
                drop(status);
                // Whoever sees it counted finds the errors.
                metrics.loads_bad.fetch_add(1, Relaxed);
                Err(findings)
            }
        }
    }

    fn read(&self) -> Result<(), Vec<Finding>> {
        let mut kept = self.before();
        let loaded = config::load(&self.path, self.reading(&kept.keys))?;
        let count = loaded.limits.iter().filter(|limit| !limit.is_blank()).count();
        let before = self.names();
        let revision =
            self.service.replace(loaded.limits, &loaded.as_written).map_err(|error| {
                // `load` tried them together, so that this does not happen.
                let (file, message) = (self.path.clone(), error.to_string());
                let severity = Severity::Error;
                vec![Finding { severity, file, line: 1, column: 1, message, no_effect: false }]
            })?;
        for warning in &loaded.warnings {
            log(warning);
        }
        kept.keys = loaded.keys;
        let settings = kept.tally.get_or_insert_with(|| loaded.tally.clone());
        if *settings != loaded.tally {
            warn!(target: "policy", "how stores are used has changed: it takes force with the next \
                  start");
        }
        self.tell_of_no_store(&mut kept);
        let source = self.path.display();
        info!(target: "policy", limits = count, revision, %source, "limits are in force");
        let after = self.names();
        let list = |names: &mut dyn Iterator<Item = &String>| {
            names.map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let gone = list(&mut before.difference(&after));
        if !gone.is_empty() {
            let new = list(&mut after.difference(&before));
            warn!(target: "policy", gone, new, "usage under limits that are gone is forgotten");
        }
        *self.lock() = Status {
            files: loaded.files,
            loaded_at: Some(SystemTime::now()),
            errors: Vec::new(),
            warnings: loaded.warnings,
            is_fleets: false,
        };
        Ok(())
    }

    /// Puts a policy of the fleet in force, and returns what the fleet's member is to know of it.
    ///
    /// # Errors
    /// Why it can't be, for people; the limits before stay in force.
    pub(crate) fn enforce(&self, document: &Document) -> Result<FleetRules, String> {
        let metrics = self.service.metrics();
        let revision = document.revision.get();
        let enforced = self.service.enforce(document);
        match &enforced {
            Ok(_) => {
                metrics.loads_good.fetch_add(1, Relaxed);
                let limits = document.limits.len();
                info!(target: "policy", limits, revision, "the fleet's limits are in force");
                let loaded_at = Some(SystemTime::now());
                *self.lock() = Status { loaded_at, is_fleets: true, ..Status::default() };
                self.tell_of_no_store(&mut self.before());
            }
            Err(why) => {
                metrics.loads_bad.fetch_add(1, Relaxed);
                let message = format!("revision {revision} of the fleet's store: {why}");
                self.lock().errors = vec![Finding::whole(&self.path, &message)];
            }
        }
        enforced
    }

    /// What the file says, as the texts of a fleet's store.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn texts(&self) -> Result<Vec<LimitText>, Vec<Finding>> {
        let reading = self.reading(&KeptKeys::NONE);
        let loaded = config::load(&self.path, reading).inspect_err(|findings| {
            findings.iter().for_each(log);
        })?;
        loaded.warnings.iter().for_each(log);
        Ok(to_texts(&loaded.limits))
    }

    /// Has the file of custom keys watched too that the policy in force names.
    pub(crate) fn watch_beside(&self, watch: &mut Watch) {
        watch.beside(&self.before().keys);
    }

    /// Says once that limits in force are to be counted in a store, and there is none.
    fn tell_of_no_store(&self, before: &mut Before) {
        let limits = self.service.limits();
        let counted = limits.iter().find(|one| one.limit.guarantee() == Guarantee::Tally);
        if let Some(one) = counted
            && self.service.limiter().tally().is_none()
            && !before.told_of_no_store
        {
            before.told_of_no_store = true;
            let limit = one.limit.name();
            warn!(target: "policy", limit, "a limit with guarantee = \"tally\" is this node's \
                  alone: no store counts it for all; give one with --redis redis://host:6379, or \
                  `redis` in [tally]");
        }
    }

    fn reading<'k>(&self, kept: &'k KeptKeys) -> Reading<'k> {
        Reading { kept, ..Reading::of(self.service.keys_max(), self.merge_domains) }
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits in force, by what their usage is kept by: domain/name, or domain/path.
    fn names(&self) -> BTreeSet<String> {
        let limits = self.service.limits();
        let name = |limit: &Limit| match limit.path().len() {
            0 => limit.name().to_owned(),
            _ => limit.path_text(),
        };
        limits.iter().map(|s| format!("{}/{}", s.limit.domain(), name(&s.limit))).collect()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().clone()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lock().errors.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(finding: &Finding) {
    let Finding { severity, file, line, column, message, .. } = finding;
    let file = file.display();
    match severity {
        Severity::Error => error!(target: "policy", "{file}:{line}:{column}: {message}"),
        Severity::Warning => warn!(target: "policy", "{file}:{line}:{column}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Clock, Options};

    use super::*;

    #[test]
    fn a_folder_in_which_files_share_a_domain_is_a_policy_if_they_are_merged() {
        let folder = tempfile::tempdir().expect("a folder");
        for key in ["a", "b"] {
            let text = format!(
                "domain: d\ndescriptors:\n- key: {key}\n  value: v\n  rate_limit: {{ unit: \
                 day, requests_per_unit: 1 }}\n"
            );
            std::fs::write(folder.path().join(format!("{key}.yaml")), text).expect("written");
        }
        let options = Options { keys_max: 1_000, clock: Clock::manual().0, ..Options::default() };
        let service = Arc::new(Service::new(options).expect("sound options"));
        let policy = Policy::new(folder.path(), service);
        assert_eq!(policy.load().expect_err("one domain, two files").len(), 1);
        assert!(!policy.is_valid());
        let policy = policy.with_merged_domains(true);
        policy.load().expect("one domain");
        assert!(policy.is_valid());
        assert_eq!(policy.names(), ["d/a=v", "d/b=v"].map(str::to_owned).into());
    }
}
