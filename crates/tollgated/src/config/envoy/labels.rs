//! What limits are called in answers and metrics: by their written names, or by the names of their
//! path's entries; never by values, which may be many and private.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::super::draft::StepDraft;

/// The labels that were given in each domain.
#[derive(Debug, Default)]
pub(super) struct Labels {
    taken: HashMap<Rc<str>, Domain>,
}

#[derive(Debug, Default)]
struct Domain {
    labels: HashSet<String>,
    /// The number that the next label of this beginning tries first.
    next: HashMap<String, usize>,
}

impl Labels {
    /// A label that no other limit of the domain has.
    pub(super) fn give(
        &mut self,
        domain: &Rc<str>,
        name: Option<&str>,
        path: &[StepDraft],
    ) -> String {
        let begin = match name {
            Some(name) => label_of(name),
            None => {
                let names: Vec<&str> = path.iter().map(|step| &*step.name).collect();
                label_of(&names.join("."))
            }
        };
        let domain = self.taken.entry(domain.clone()).or_default();
        let next = domain.next.entry(begin.clone()).or_insert(1);
        loop {
            let label = match *next {
                1 => begin.clone(),
                number => {
                    let end = format!(".{number}");
                    format!("{}{end}", &begin[..begin.len().min(LABEL_BYTES_MAX - end.len())])
                }
            };
            *next += 1;
            if domain.labels.insert(label.clone()) {
                return label;
            }
        }
    }
}

/// A label has letters, digits and a few signs; all of them are one byte.
fn label_of(name: &str) -> String {
    let sign = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '-' | '_' | '.') => c,
        _ => '_',
    };
    name.chars().take(LABEL_BYTES_MAX).map(sign).collect()
}

const LABEL_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::super::finding::Place;
    use super::*;

    #[test]
    fn a_label_that_is_taken_is_numbered_and_stays_within_64_bytes() {
        let mut labels = Labels::default();
        let domain: Rc<str> = "edge".into();
        let step = |name: &str| StepDraft {
            name: name.into(),
            value: "secret".into(),
            shared: false,
            place: Place { file: 0, offset: 0 },
        };
        let path = [step("Remote Address"), step("überpfad")];
        assert_eq!(labels.give(&domain, None, &path), "remote_address._berpfad");
        assert_eq!(labels.give(&domain, None, &path), "remote_address._berpfad.2");
        assert_eq!(labels.give(&domain, Some("a"), &path), "a");
        assert_eq!(labels.give(&domain, Some("a.3"), &path), "a.3");
        assert_eq!(labels.give(&domain, Some("A"), &path), "a.2");
        assert_eq!(labels.give(&domain, Some("a"), &path), "a.4", "since a.3 is taken");
        assert_eq!(labels.give(&"other".into(), Some("a"), &path), "a");
        let long = "n".repeat(100);
        assert_eq!(labels.give(&domain, Some(&long), &path), "n".repeat(64));
        assert_eq!(labels.give(&domain, Some(&long), &path), format!("{}.2", "n".repeat(62)));
    }
}
