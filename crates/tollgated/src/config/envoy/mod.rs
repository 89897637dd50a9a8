//! The dialect of Envoy's rate-limit service: YAML, each document a domain with a tree of
//! descriptors.
//!
//! It means here what it means there: `N` requests a unit are the rate N/unit with N at once. What
//! would change decisions is built or refused, and what has no effect here is said to have none.
//! How descriptors are matched is the library's, by paths; how the two differ is told by
//! `tollgate lint --differences`.

mod descriptor;
mod fields;
mod labels;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use tollgate::{Allowance, Limit, Oversize, Rate};

use super::draft::{AllowanceDraft, Draft, Places, StepDraft};
use super::finding::{Findings, Place, short};
use super::yaml::{self, Document};
use descriptor::{Amount, Reader, Siblings, Unit, Written};
use fields::{Fields, Level, Reported};
use labels::Labels;

/// What a limit with a rate says of itself on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AsWritten {
    /// Exactly `rate_limit.name`, or empty.
    pub name: String,
    /// The length of its unit.
    pub unit: Duration,
}

/// Limits by domain and label.
pub(crate) type WrittenLimits = HashMap<(String, String), AsWritten>;

/// What a unit of this length is called.
pub(crate) fn unit_name(length: Duration) -> &'static str {
    // Each of them was read by its name.
    Unit::name_of(length).unwrap_or_default()
}

/// The same of limits of which only the limits are known, as a fleet's store has them.
///
/// A limit that admits nothing has lost its unit: it is given the longest.
pub(crate) fn as_written_of(limits: &[Limit]) -> WrittenLimits {
    let with_path = limits.iter().filter(|limit| limit.path().len() > 0);
    let of = |limit: &Limit| {
        let Allowance::Metered { rate, .. } = limit.allowance() else { return None };
        let period = Duration::from_nanos(rate.period_ns());
        let unit = if rate == Rate::ZERO { YEAR } else { period };
        Unit::name_of(unit)?;
        let of = AsWritten { name: limit.group().into(), unit };
        Some(((limit.domain().to_owned(), limit.name().to_owned()), of))
    };
    with_path.filter_map(of).collect()
}

/// The domains of all files, and their limits in the order in which they are written.
#[derive(Debug)]
pub(super) struct Domains {
    merge: bool,
    known: HashMap<Rc<str>, Domain>,
    limits: Vec<Written>,
}

#[derive(Debug)]
struct Domain {
    place: Place,
    siblings: Siblings,
}

impl Domains {
    /// With `merge`, a domain may be in several files, whose descriptors are then its own together.
    pub(super) fn new(merge: bool) -> Self {
        Self { merge, known: HashMap::new(), limits: Vec::new() }
    }

    /// Reads a file; what is wrong with it is reported and left out.
    pub(super) fn read(&mut self, text: &str, file: usize, findings: &mut Findings<'_>) {
        let Some(documents) = yaml::documents(text, file, findings) else { return };
        if documents.is_empty() {
            let message = "holds no limits; write `domain: …` and `descriptors: []` to have none";
            findings.error(Place { file, offset: 0 }, message);
        }
        for (index, document) in documents.iter().enumerate() {
            if index > 0 {
                let message = "this document is read too; Envoy's rate-limit service reads only \
                               the first of a file";
                findings.warning(document.place, message);
            }
            let _ = self.document(document, findings);
        }
    }

    /// Each domain, and where it is named first.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, Place)> {
        self.known.iter().map(|(name, domain)| (&**name, domain.place))
    }

    /// The limits with their labels, and what was written of them.
    pub(super) fn finish(self, findings: &mut Findings<'_>) -> (Vec<Draft>, WrittenLimits) {
        let named: HashSet<(Rc<str>, Rc<str>)> = self
            .limits
            .iter()
            .filter_map(|written| Some((written.domain.clone(), written.name()?.clone())))
            .collect();
        let mut labels = Labels::default();
        let mut as_written = WrittenLimits::new();
        let mut drafts = Vec::with_capacity(self.limits.len());
        for written in self.limits {
            let label =
                labels.give(&written.domain, written.name().map(|name| &**name), &written.path);
            for (name, place) in written.rate_limit.iter().flat_map(|limit| &limit.replaces) {
                if !named.contains(&(written.domain.clone(), name.clone())) {
                    let (domain, name) = (&written.domain, short(name));
                    let message = format!(
                        "no limit of domain {domain:?} has the name {name:?}: nothing is replaced"
                    );
                    findings.warning(*place, message);
                }
            }
            if let Some(limit) = &written.rate_limit
                && let Amount::Per { unit, .. } = limit.amount
            {
                let name = written.name().map_or_else(String::new, |name| name.to_string());
                let of = AsWritten { name, unit: unit.duration() };
                as_written.insert((written.domain.to_string(), label.clone()), of);
            }
            drafts.push(draft(label, written));
        }
        // A domain without descriptors is known all the same: limits that requests bring hold
        // there.
        let used: HashSet<&str> = drafts.iter().map(|draft| &*draft.domain).collect();
        let empty = self.known.iter().filter(|(name, _)| !used.contains(&***name));
        let empty: Vec<Draft> = empty.map(|(name, domain)| nothing(name, domain.place)).collect();
        drafts.extend(empty);
        (drafts, as_written)
    }

    fn document(
        &mut self,
        document: &Document,
        findings: &mut Findings<'_>,
    ) -> Result<(), Reported> {
        let root = &document.root;
        let fields = Fields::of(root, root.place, Level::Top, findings)?;
        let Some((domain, place)) = fields.text("domain", findings)? else {
            let place = fields.get("domain").map_or(fields.place, |(_, node)| node.place);
            findings.error(place, "`domain` must not be empty");
            return Err(Reported);
        };
        let Some((_, list)) = fields.get("descriptors") else {
            let message = "holds no limits; write `descriptors: []` to have none";
            findings.error(fields.place, message);
            return Err(Reported);
        };
        let mut known = match self.known.remove(&domain) {
            None => Domain { place, siblings: Siblings::new() },
            Some(known) if self.merge => known,
            Some(known) => {
                let (name, first) = (short(&domain), findings.show(known.place));
                let message = format!(
                    "domain {name:?} is already at {first}; with --merge-domains they are one"
                );
                findings.error(place, message);
                self.known.insert(domain, known);
                return Err(Reported);
            }
        };
        let mut reader = Reader {
            domain: domain.clone(),
            domain_place: place,
            findings,
            limits: &mut self.limits,
        };
        reader.list(list, &mut Vec::new(), &mut known.siblings);
        self.known.insert(domain, known);
        Ok(())
    }
}

/// The end of a path that nobody takes, in a domain that has nothing else.
fn nothing(domain: &Rc<str>, place: Place) -> Draft {
    let step = StepDraft { name: "-".into(), value: "".into(), shared: false, place };
    let written = Written {
        domain: domain.clone(),
        domain_place: place,
        whole: place,
        path: vec![step],
        rate_limit: None,
        shadow: None,
        quota: None,
    };
    draft("nothing".into(), written)
}

fn draft(label: String, written: Written) -> Draft {
    let limit = written.rate_limit.as_ref();
    let replaces = limit.iter().flat_map(|limit| &limit.replaces);
    let replaces = replaces.map(|(name, _)| name.to_string()).collect();
    let group = written.name().map_or_else(String::new, |name| name.to_string());
    let (rate, burst) = match limit.map(|limit| limit.amount) {
        None => ("none".into(), None),
        Some(Amount::Unlimited) => ("unlimited".into(), None),
        Some(Amount::Per { requests: 0, .. }) => ("zero".into(), Some(0)),
        Some(Amount::Per { requests, unit }) => {
            (format!("{requests}/{}s", unit.duration().as_secs()), None)
        }
    };
    let whole = written.whole;
    let name = limit.and_then(|limit| limit.name.as_ref()).map(|(_, place)| *place);
    let optional = [
        ("name", name),
        ("rate", limit.map(|limit| limit.amount_place)),
        ("replaces", limit.and_then(|limit| limit.replaces.first()).map(|(_, place)| *place)),
        ("shadow", written.shadow),
        ("quota", written.quota),
        ("domain", Some(written.domain_place)),
    ];
    let fields = optional.into_iter().filter_map(|(name, place)| Some((name, place?))).collect();
    Draft {
        name: label,
        domain: written.domain.to_string(),
        matches: Vec::new(),
        key: Vec::new(),
        path: written.path,
        group,
        replaces,
        quota: written.quota.is_some(),
        allowance: AllowanceDraft { rate, burst, ..AllowanceDraft::default() },
        guarantee: "local".into(),
        on_stale: None,
        count: None,
        mode: None,
        oversize: Oversize::Never,
        shadow: written.shadow.is_some(),
        overrides: Vec::new(),
        places: Places { whole, fields },
    }
}

/// The longest unit.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[cfg(test)]
mod cases;

#[cfg(test)]
mod tests {
    use super::super::tests::{READING, names, parsed_files, shown};
    use super::super::{Loaded, Reading};
    use super::*;

    const MERGING: Reading = Reading { merge_domains: true, ..READING };

    fn loaded(text: &str) -> Loaded {
        parsed_files(&[("a.yaml", text)], READING).expect("a sound file")
    }

    /// What is found in files, whether or not they load.
    fn found_in(files: &[(&str, &str)], reading: Reading) -> Vec<String> {
        let loaded = parsed_files(files, reading);
        loaded.map_or_else(|found| found, |loaded| shown(&loaded.warnings))
    }

    fn found(text: &str) -> Vec<String> {
        found_in(&[("a.yaml", text)], READING)
    }

    /// Finds one thing in a file whose fourth line on is that.
    fn assert_below(rest: &str, expected: &str) {
        let found = found(&format!("domain: d\ndescriptors:\n- key: k\n{rest}"));
        assert_eq!(found.len(), 1, "{rest} {found:?}");
        assert!(found[0].starts_with(&format!("a.yaml:{expected}")), "{rest} {}", found[0]);
    }

    const LIMIT: &str = "  rate_limit: { unit: minute, requests_per_unit: 5 }\n";

    fn domain(name: &str, key: &str) -> String {
        format!("domain: {name}\ndescriptors:\n- key: {key}\n{LIMIT}")
    }

    #[test]
    fn a_limit_is_so_many_requests_at_once_and_in_each_unit() {
        let units = ["second", "MINUTE", "Hour", "day", "week", "month", "yEaR"].map(str::to_owned);
        let seconds = [1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];
        for requests in [1, 7, u32::MAX] {
            let mut text = "domain: d\ndescriptors:\n".to_owned();
            for unit in &units {
                text += &format!(
                    "- key: {unit}\n  rate_limit: {{ unit: {unit}, requests_per_unit: \
                     {requests} }}\n"
                );
            }
            let loaded = loaded(&text);
            for ((limit, unit), seconds) in loaded.limits.iter().zip(&units).zip(seconds) {
                let rate = Rate::new(requests.into(), seconds * 1_000_000_000).expect("sound");
                let burst = requests.into();
                assert_eq!(limit.allowance(), Allowance::Metered { rate, burst });
                let key = ("d".to_owned(), unit.to_ascii_lowercase());
                let unit = Duration::from_secs(seconds);
                assert_eq!(loaded.as_written[&key], AsWritten { name: String::new(), unit });
            }
        }
    }

    #[test]
    fn limits_come_in_the_order_of_the_file_each_before_those_below_it() {
        let text = "
domain: d
descriptors:
- key: a
  descriptors:
  - key: b
    value: x
    rate_limit: { unlimited: true }
  - key: c
    rate_limit: { unit: day, requests_per_unit: 0, name: Per Day }
    quota_mode: yes
    descriptors:
    - key: d
      value: 404
- key: a
  value: true
  shadow_mode: ON
  rate_limit: { unit: second, requests_per_unit: 3, replaces: [{ name: Per Day }] }
";
        let loaded = loaded(text);
        assert_eq!(names(&loaded), ["a.b", "per_day", "a.c.d", "a"]);
        let [open, closed, blank, shadow] = &loaded.limits[..] else { panic!("four limits") };
        let path = |limit: &Limit| {
            let steps = limit.path().map(|step| format!("{}={}", step.name, step.value));
            steps.collect::<Vec<_>>()
        };
        assert_eq!(path(open), ["a=", "b=x"]);
        assert_eq!(open.allowance(), Allowance::Unlimited);
        assert_eq!(path(closed), ["a=", "c="]);
        assert_eq!(closed.allowance(), Allowance::Metered { rate: Rate::ZERO, burst: 0 });
        assert!(closed.is_quota() && !closed.is_shadow());
        assert_eq!(path(blank), ["a=", "c=", "d=404"]);
        assert!(blank.is_blank());
        assert_eq!(path(shadow), ["a=true"]);
        assert!(shadow.is_shadow());
        assert_eq!(shadow.replaces().collect::<Vec<_>>(), ["Per Day"]);
        let written = |label: &str| loaded.as_written.get(&("d".into(), label.into()));
        assert_eq!(written("per_day").expect("a rate").name, "Per Day");
        assert_eq!(written("a").expect("a rate").unit, Duration::from_secs(1));
        assert!(written("a.b").is_none() && written("a.c.d").is_none());
    }

    #[test]
    fn a_name_that_is_replaced_stands_for_all_limits_that_are_called_so() {
        let text = "
domain: d
descriptors:
- { key: a, rate_limit: { unit: day, requests_per_unit: 1, name: X } }
- { key: b, rate_limit: { unlimited: true, name: x } }
- { key: c, rate_limit: { unit: day, requests_per_unit: 1, name: X } }
- { key: d, rate_limit: { unlimited: true, replaces: [name: X, name: none] } }
";
        let loaded = loaded(text);
        assert_eq!(names(&loaded), ["x", "x.2", "x.3", "d"]);
        assert_eq!(loaded.limits[3].replaces().collect::<Vec<_>>(), ["X", "none"]);
        let message = "no limit of domain \"d\" has the name \"none\": nothing is replaced";
        assert_eq!(shown(&loaded.warnings), [format!("a.yaml:7:70: warning: {message}")]);
    }

    #[test]
    fn what_is_wrong_at_the_top_is_an_error_at_its_place() {
        for (text, expected) in [
            ("", "1:1: error: holds no limits; write `domain: …` and `descriptors: []` to have"),
            ("# none\n---\n", "1:1: error: holds no limits"),
            ("- a\n", "1:1: error: must be a mapping, not a list"),
            ("domain: [a]\n", "1:9: error: `domain` must be a text, not a list"),
            ("domain: ''\ndescriptors: []\n", "1:9: error: `domain` must not be empty"),
            ("descriptors: []\n", "1:1: error: `domain` must not be empty"),
            ("domain: d\n", "1:1: error: holds no limits; write `descriptors: []` to have none"),
            ("domain: d\ndescriptors:\n", "1:1: error: holds no limits; write `descriptors: []`"),
            (
                "domain: d\ndescriptors: 3\n",
                "2:14: error: `descriptors` must be a list, not a text",
            ),
            ("domain: d\ndescriptors: [x]\n", "2:15: error: must be a mapping, not a text"),
            ("domain: d\ndescriptors: []\nkey: k\n", "3:1: error: `key` belongs in a descriptor,"),
            (
                "domain: d\ndescriptors: []\ndomian: e\n",
                "3:1: error: unknown field `domian`; did you mean `domain`?",
            ),
            ("domain: d\ndescriptors: [\n", "3:1: error: "),
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text} {found:?}");
            assert!(found[0].starts_with(&format!("a.yaml:{expected}")), "{text} {}", found[0]);
        }
        assert!(loaded("domain: d\ndescriptors: []\n").warnings.is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_descriptor_is_an_error_at_its_place() {
        for (rest, expected) in [
            ("- value: v\n", "4:3: error: descriptor has empty key"),
            ("- key: ''\n", "4:8: error: descriptor has empty key"),
            ("- key:\n  value: v\n", "4:3: error: descriptor has empty key"),
            ("-\n", "4:2: error: descriptor has empty key"),
            ("- key: {}\n", "4:8: error: `key` must be a text, not a mapping"),
            ("  value: [v]\n", "4:10: error: `value` must be a text, not a list"),
            ("  descriptors: v\n", "4:16: error: `descriptors` must be a list, not a text"),
            ("  shadow_mode: maybe\n", "4:16: error: `shadow_mode` must be true or false"),
            ("  shadow_mode: 'true'\n", "4:16: error: `shadow_mode` must be true or false"),
            ("  shadow_mode: tRUE\n", "4:16: error: `shadow_mode` must be true or false"),
            (
                "  share_threshold: true\n",
                "4:3: error: `share_threshold` is for a descriptor with a `*` in its key or value",
            ),
            ("  unlimited: true\n", "4:3: error: `unlimited` belongs inside `rate_limit`"),
            ("  domain: d\n", "4:3: error: `domain` belongs at the top of the file"),
            (
                "  unlimied: true\n",
                "4:3: error: unknown field `unlimied`; did you mean `unlimited`, which belongs \
                 inside `rate_limit`?",
            ),
            (
                "  ratelimit: {}\n",
                "4:3: error: unknown field `ratelimit`; did you mean `rate_limit`?",
            ),
            ("  windows: 3\n", "4:3: error: unknown field `windows`; known are `key`, `value`, "),
            (
                "  shadow_mode: true\n  quota_mode: true\n  rate_limit: { unlimited: true }\n",
                "5:3: error: `quota_mode` excludes `shadow_mode`: of the limits in quota mode",
            ),
        ] {
            assert_below(rest, expected);
        }
    }

    #[test]
    fn what_is_wrong_with_a_rate_limit_is_an_error_at_its_place() {
        for (limit, expected) in [
            ("3", "4:3: error: must be a mapping, not a text"),
            ("{}", "4:3: error: invalid rate limit unit '': give `unit`, or `unlimited: true`"),
            ("{ unlimited: false }", "4:3: error: invalid rate limit unit ''"),
            (
                "{ unit: seconds, requests_per_unit: 1 }",
                "4:23: error: invalid rate limit unit 'seconds'; known are second, minute, hour, \
                 day, week, month, year",
            ),
            ("{ unit: unknown }", "4:23: error: invalid rate limit unit 'unknown'"),
            ("{ unit: day, unlimited: true }", "4:23: error: `unit` excludes `unlimited`"),
            (
                "{ unit: day, requests_per_unit: 4294967296 }",
                "4:47: error: `requests_per_unit` must",
            ),
            ("{ unit: day, requests_per_unit: -1 }", "4:47: error: `requests_per_unit` must"),
            ("{ unit: day, requests_per_unit: 010 }", "4:47: error: `requests_per_unit` must"),
            ("{ unit: day, requests_per_unit: 1_0 }", "4:47: error: `requests_per_unit` must"),
            ("{ unit: day, requests_per_unit: '5' }", "4:47: error: `requests_per_unit` must"),
            ("{ unlimited: true, shadow_mode: true }", "4:34: error: `shadow_mode` belongs in a"),
            ("{ unlimited: true, descriptors: [] }", "4:34: error: `descriptors` belongs in a"),
            ("{ unlimited: true, nmae: x }", "4:34: error: unknown field `nmae`; did you mean `na"),
            ("{ unlimited: true, replaces: x }", "4:44: error: `replaces` must be a list, not a"),
            ("{ unlimited: true, replaces: [x] }", "4:45: error: must be a mapping, not a text"),
            ("{ unlimited: true, replaces: [{}] }", "4:45: error: an entry of `replaces` has no"),
            ("{ unlimited: true, replaces: [{name: ''}] }", "4:45: error: an entry of `replaces`"),
            ("{ unlimited: true, name: x, replaces: [name: x] }", "4:60: error: limit \"x\" repl"),
        ] {
            assert_below(&format!("  rate_limit: {limit}\n"), expected);
        }
    }

    #[test]
    fn a_composite_key_that_is_taken_is_an_error_that_names_both_places() {
        let taken = |key: &str, at: &str| {
            format!(
                "error: duplicate descriptor composite key '{key}', which is already at a.yaml:{at}"
            )
        };
        assert_below("- key: k\n", &format!("4:8: {}", taken("d.k", "3:8")));
        let found = found(
            "domain: d\ndescriptors:\n- key: a\n  value: b_c\n- key: a_b\n  value: c\n  \
             descriptors:\n  - key: x\n- key: p\n  descriptors:\n  - { key: a_b }\n  \
             - { key: a, value: b }\n",
        );
        let expected = [
            format!("a.yaml:5:8: {}", taken("d.a_b_c", "3:8")),
            format!("a.yaml:12:12: {}", taken("d.p.a_b", "11:12")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_has_no_effect_is_read_and_said_to_have_none() {
        for (rest, expected) in [
            ("  detailed_metric: true\n", "4:3: warning: `detailed_metric` has no effect: metrics"),
            ("  value_to_metric: true\n", "4:3: warning: `value_to_metric` has no effect: metrics"),
            ("  metadata: { any: [1] }\n", "4:3: warning: `metadata` has no effect: answers carry"),
            ("  shadow_mode: true\n", "4:3: warning: `shadow_mode` has no effect: there is no `ra"),
            ("  quota_mode: true\n", "4:3: warning: `quota_mode` has no effect: there is no `rate"),
            (
                "  value: '*'\n  share_threshold: true\n",
                "5:3: warning: `share_threshold` has no effect: there is no limit here or below",
            ),
            (
                "  rate_limit:\n    unlimited: true\n    requests_per_unit: 5\n",
                "6:5: warning: `requests_per_unit` has no effect: the limit is `unlimited`",
            ),
        ] {
            assert_below(rest, expected);
            let text = format!("domain: d\ndescriptors:\n- key: k\n{rest}");
            assert!(loaded(&text).warnings[0].no_effect, "{rest}");
        }
        let silent = "  detailed_metric: false\n  value_to_metric: no\n  shadow_mode: off\n  \
                      metadata:\n  rate_limit:\n";
        let text = format!("domain: d\ndescriptors:\n- key: k\n{silent}");
        assert!(found(&text).is_empty());
        let shared = "  value: '*'\n  share_threshold: true\n  descriptors:\n  - key: x\n";
        assert!(found(&format!("domain: d\ndescriptors:\n- key: k\n{shared}")).is_empty());
    }

    #[test]
    fn a_limit_without_a_number_denies_as_in_the_original_and_that_is_worth_a_warning() {
        let rest = "  rate_limit: { unit: day }\n";
        assert_below(rest, "4:3: warning: a `rate_limit` without `requests_per_unit` denies every");
        let text = format!("domain: d\ndescriptors:\n- key: k\n{rest}");
        let closed = Allowance::Metered { rate: Rate::ZERO, burst: 0 };
        assert_eq!(loaded(&text).limits[0].allowance(), closed);
    }

    #[test]
    fn the_17th_level_is_an_error() {
        let nested = |levels: usize| {
            let mut text = "domain: d\ndescriptors:\n".to_owned();
            for level in 0..levels {
                let indent = "  ".repeat(level);
                text += &format!("{indent}- key: k{level}\n{indent}  descriptors:\n");
            }
            text + &"  ".repeat(levels) + "- key: last\n"
        };
        assert_eq!(loaded(&nested(15)).limits[0].path().len(), 16);
        let message = "is the 17th level of descriptors; a request's descriptor has at most 16";
        let found = found(&nested(16));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("a.yaml:35:35: error: {message}")), "{found:?}");
    }

    #[test]
    fn what_the_library_refuses_is_an_error_at_its_place() {
        let long = |bytes: usize| "n".repeat(bytes);
        let limit = "rate_limit: { unlimited: true }";
        let found = found(&format!(
            "domain: d\ndescriptors:\n- key: {}\n  {limit}\n- key: k\n  value: {}\n  {limit}\n",
            long(257),
            long(4_097)
        ));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.yaml:3:8: error: limit \"nnn"), "{}", found[0]);
        assert!(found[1].starts_with("a.yaml:5:8: error: limit \"k\": path = \"k_nnn"));
        let text = domain(&long(257), "k");
        let found = found_in(&[("a.yaml", &text)], READING);
        assert!(
            found[0].starts_with("a.yaml:1:9: error: limit \"k\": domain = \"nnn"),
            "{found:?}"
        );
    }

    #[test]
    fn a_domain_in_two_files_is_an_error_unless_they_are_merged() {
        let (one, two) = (domain("d", "a"), domain("d", "b"));
        let files = [("a.yaml", &*one), ("b.yml", &*two)];
        let message = "domain \"d\" is already at a.yaml:1:9; with --merge-domains they are one";
        assert_eq!(found_in(&files, READING), [format!("b.yml:1:9: error: {message}")]);
        let merged = parsed_files(&files, MERGING).expect("one domain");
        assert_eq!(names(&merged), ["a", "b"]);
        let twice = found_in(&[("a.yaml", &one), ("b.yml", &one)], MERGING);
        let message = "duplicate descriptor composite key 'd.a', which is already at a.yaml:3:8";
        assert_eq!(twice, [format!("b.yml:3:8: error: {message}")]);
    }

    #[test]
    fn each_document_of_a_file_is_read_with_a_warning() {
        let text = format!("---\n{}---\n{}---\n", domain("d", "a"), domain("e", "b"));
        let loaded = loaded(&text);
        assert_eq!(names(&loaded), ["a", "b"]);
        let message = "this document is read too; Envoy's rate-limit service reads only the first";
        let found = shown(&loaded.warnings);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!("a.yaml:6:1: warning: {message}")), "{found:?}");
    }

    #[test]
    fn files_of_all_dialects_are_one_policy_but_a_domain_is_in_one_of_them() {
        let own = "[[limit]]\nname = \"api\"\nrate = \"10/s\"\ndomain = \"own\"\n";
        let tenants = "[rate_limits]\nenabled = true\ndefault.read_iops.rate = 5\n";
        let edge = domain("edge", "k");
        let all = [("a.yaml", &*edge), ("b.toml", own), ("c.toml", tenants)];
        let loaded = parsed_files(&all, READING).expect("three domains");
        assert_eq!(names(&loaded), ["api", "read_iops", "k"]);
        for (name, toml, other) in [
            ("own", own, "limit \"api\" at b.toml:1:1"),
            ("default", tenants, "[rate_limits] at b.toml:1:1"),
        ] {
            let text = domain(name, "k");
            for reading in [READING, MERGING] {
                let message = format!(
                    "domain {name:?} is that of {other}; a domain is loaded from one of them"
                );
                let found = found_in(&[("a.yaml", &text), ("b.toml", toml)], reading);
                assert_eq!(found, [format!("a.yaml:1:9: error: {message}")]);
            }
        }
    }

    #[test]
    fn a_shadow_is_pointed_out_at_its_field_and_paths_are_not_compared_by_their_matches() {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n{LIMIT}- key: b\n{LIMIT}- key: c\n  \
             shadow_mode: true\n{LIMIT}- key: e\n  rate_limit: {{ unlimited: true }}\n"
        );
        let message = "limit \"c\" is a shadow: it counts and never denies";
        assert_eq!(found(&text), [format!("a.yaml:8:3: warning: {message}")]);
    }

    #[test]
    fn errors_end_after_a_thousand() {
        let text = format!("domain: d\ndescriptors: [{}]\n", "{},".repeat(50_000));
        let found = found(&text);
        assert_eq!(found.len(), 1_000);
    }

    #[test]
    fn a_domain_without_descriptors_is_known() {
        let loaded =
            parsed_files(&[("a.yaml", "domain: d\ndescriptors: []\n")], READING).expect("sound");
        let [nothing] = &loaded.limits[..] else { panic!("one end of a path") };
        assert!(nothing.is_blank() && nothing.domain() == "d");
    }
}
