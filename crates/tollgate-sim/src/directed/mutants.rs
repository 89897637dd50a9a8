//! A mutant for each rule: which rules there are to take away, and which schedule must then fail.
//!
//! Only a build with `--cfg tollgate_mutants` can take one away; the list can be read by any.

#[cfg(tollgate_mutants)]
use super::{SCHEDULES, Schedule};
#[cfg(tollgate_mutants)]
use crate::check::Violation;

/// A rule that can be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    /// Its name, as the code asks for it.
    pub name: &'static str,
    /// The schedule that fails without it.
    pub schedule: &'static str,
    /// What the rule says.
    pub rule: &'static str,
}

/// All that are listed.
#[must_use]
pub fn mutants() -> Vec<Mutant> {
    let of = |line: &'static str| {
        let (name, rest) = line.split_once(' ')?;
        let (schedule, rule) = rest.trim_start().split_once(' ')?;
        Some(Mutant { name, schedule, rule: rule.trim_start() })
    };
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(of).collect()
}

/// What its schedule has to say of a fleet without a rule. Nobody else may play meanwhile.
#[cfg(tollgate_mutants)]
#[must_use]
pub fn play_without(mutant: &Mutant) -> Vec<Violation> {
    let is_it = |schedule: &&Schedule| schedule.name == mutant.schedule;
    let Some(schedule) = SCHEDULES.iter().find(is_it) else { return Vec::new() };
    tollgate::mutant::set_mutant(mutant.name);
    let violations = (schedule.play)();
    tollgate::mutant::set_mutant("");
    violations
}

const LIST: &str = include_str!("../../mutants.txt");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directed::SCHEDULES;

    #[test]
    fn every_mutant_names_its_rule_and_a_schedule() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(mutants().len(), lines);
        for Mutant { name, schedule, rule } in mutants() {
            assert!(SCHEDULES.iter().any(|known| known.name == schedule), "{name}: {schedule}");
            assert!(rule.starts_with(|first: char| first.is_ascii_digit()), "{name}: {rule}");
        }
    }
}
