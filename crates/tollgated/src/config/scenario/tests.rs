//! Scenario files: what they come to, and what is said of those that are wrong.

use tollgate_sim::scenario::{Fault, MS, SECOND, Shape, Wrong};

use super::*;

const SOUND: &str = "\
nodes = 3
lasts = \"10s\"
[[limit]]
name = \"api\"
rate = \"1000/s\"
[[demand]]
limit = \"api\"
key = \"acme\"
rate = \"3000/s\"
";

fn parsed(text: &str) -> Result<Staged, Vec<String>> {
    let shown = |found: Vec<Finding>| found.iter().map(Finding::to_string).collect();
    parse(Path::new("a.toml"), text.into()).map_err(shown)
}

fn found(text: &str) -> Vec<String> {
    parsed(text).expect_err("it is wrong")
}

fn fault(text: &str) -> Fault {
    parsed(&format!("{SOUND}[[fault]]\n{text}")).expect("sound").scenario.faults[0].1
}

#[test]
fn a_short_scenario_is_a_fleet_with_the_daemons_defaults() {
    let Staged { scenario, names, warnings } = parsed(SOUND).expect("sound");
    assert_eq!((scenario.seed, scenario.nodes, scenario.lasts), (1, 3, 10 * SECOND));
    assert_eq!(scenario.limits[0].burst, 1_000);
    // In all nodes together.
    assert!((scenario.demands[0].per_second - 1_000.0).abs() < 1e-9);
    assert_eq!((scenario.demands[0].from, scenario.demands[0].until), (0, 10 * SECOND));
    assert_eq!((names.title.as_str(), names.of(0, 0)), ("a", "api/acme".into()));
    assert!(scenario.serves_alone && warnings.is_empty());
}

#[test]
fn every_field_has_its_effect() {
    let text = "seed = 7\ndrift_ppm = 50\non_coordinator_loss = \"deny\"\n\
                sync_interval = \"10ms\"\n[network]\ndelay_min = \"1ms\"\ndelay_max = \"2ms\"\n\
                loss = 0.05\nrepeats = 0\nslow = 0.1\nslow_delay = \"50ms\"\n";
    let more = "nodes = [3, 1]\nshape = { bursts = 50 }\ncost = [1, 10]\nwaits = \"10ms\"\n\
                from = \"1s\"\nuntil = \"2s\"\nrefunds = 0.2\nrefund_after = \"20ms\"\n";
    let sound = SOUND.replacen("[[limit]]\n", &format!("{text}[[limit]]\nlocal_cap = 9\n"), 1);
    let Staged { scenario, .. } = parsed(&format!("{sound}{more}")).expect("sound");
    assert_eq!((scenario.seed, scenario.drift_ppm, scenario.serves_alone), (7, 50, false));
    assert_eq!(scenario.times.sync_interval.as_millis(), 10);
    assert_eq!((scenario.network.delay_min, scenario.network.delay_max), (MS, 2 * MS));
    assert!((scenario.network.loss, scenario.network.slow_max) == (0.05, 50 * MS));
    assert_eq!(scenario.limits[0].local_cap, Some(9));
    let demand = &scenario.demands[0];
    assert_eq!((&demand.nodes[..], demand.shape), (&[2, 0][..], Shape::Bursts(50)));
    assert!((demand.per_second - 1_500.0).abs() < 1e-9);
    assert_eq!((demand.cost, demand.waits), ((1, 10), 10 * MS));
    assert_eq!((demand.from, demand.until), (SECOND, 2 * SECOND));
    assert!(demand.refunds == 0.2 && demand.refund_after == 20 * MS);
}

#[test]
fn faults_hit_nodes_that_count_from_1_or_the_owner_of_a_key() {
    let crash = Fault::Crash { node: 1, back_after: Some(SECOND) };
    assert_eq!(fault("at = \"3s\"\ncrash = { node = 2, back_after = \"1s\" }"), crash);
    let wrong = Wrong::Pause { lasts: SECOND };
    let owner = Fault::Owner { limit: 0, key: 0, wrong };
    assert_eq!(fault("at = \"3s\"\npause = { owner_of = \"api/acme\", lasts = \"1s\" }"), owner);
    let cut = Fault::Cut { from: 0, to: None, lasts: MS };
    assert_eq!(fault("at = \"3s\"\ncut = { from = 1, lasts = \"1ms\" }"), cut);
    assert_eq!(fault("at = \"3s\"\nfailover = true"), Fault::Failover);
    let text = "at = \"3s\"\nchange = { limit = \"api\", rate = \"5/s\", burst = 2 }";
    assert!(matches!(fault(text), Fault::Change { limit: 0, burst: 2, .. }));
    let text = "at = \"3s\"\nreset = { node = 1, back_after = \"1ms\" }";
    assert_eq!(fault(text), Fault::Reset { node: 0, back_after: MS });
}

#[test]
fn nonsense_is_told_at_its_place() {
    for (replaced, by, said) in [
        (
            "nodes = 3",
            "node = 3\nnodes = 3",
            "1:1: error: unknown field `node`; did you mean `nodes`?",
        ),
        ("nodes = 3", "nodes = 0", "1:9: error: must be 1 to 1,000"),
        ("nodes = 3", "nodes = 1001", "1:9: error: must be 1 to 1,000"),
        (
            "\"10s\"",
            "\"10 s\"",
            "2:9: error: must be a whole number of ns, us, ms or s, such as 250us \
          or 1ms",
        ),
        ("\"10s\"", "\"99ms\"", "2:9: error: must be at least 100ms"),
        ("\"1000/s\"", "\"zero\"", "5:8: error: must not be zero"),
        ("\"1000/s\"", "\"1000/s\"\nburst = 0", "6:9: error: must be 1 to 1000000000000"),
        (
            "limit = \"api\"",
            "limit = \"apo\"",
            "7:9: error: there is no limit \"apo\"; known are \"api\"",
        ),
        (
            "key = \"acme\"",
            "nodes = [1, 9]",
            "8:13: error: there is no node 9: they are numbered from 1 \
          to 3",
        ),
        ("key = \"acme\"", "weight = 1", "8:1: error: unknown field `weight`; known are"),
        ("key = \"acme\"", "cost = \"x\"", "8:8: error: must be a whole number, or two: [1, 10]"),
        ("key = \"acme\"", "from = \"10s\"", "8:8: error: is not before the end"),
        ("3000/s", "3000000/s", "1:1: error: asks 30,000,000 requests in all, at most 20,000,000"),
        ("lasts", "drift_ppm = 501\nlasts", "2:13: error: must be at most 500"),
        ("lasts", "network.loss = 5\nlasts", "2:16: error: must be 0 to 1"),
    ] {
        let text = SOUND.replacen(replaced, by, 1);
        assert_ne!(text, SOUND);
        let found = found(&text);
        assert!(found[0].starts_with(&format!("a.toml:{said}")), "{found:?}\n{said}");
        assert_eq!(found.len(), 1, "{found:?}");
    }
    assert_eq!(found("nodes = 1\nlasts = \"1s\"\n").len(), 1);
}

#[test]
fn nonsense_in_a_fault_is_told_at_its_place() {
    for (text, said) in [
        ("at = \"10s\"\nfailover = true", "11:6: error: is not before the end, which is at 10 s"),
        ("at = \"1s\"", "10:1: error: nothing goes wrong here; write one of `crash`,"),
        (
            "at = \"1s\"\nfailover = true\nstop = { node = 1 }",
            "10:1: error: more than one thing goes",
        ),
        ("at = \"1s\"\ncrash = { node = 9 }", "12:18: error: there is no node 9: they are"),
        ("at = \"1s\"\ncrash = { }", "12:9: error: needs `node`, or `owner_of`"),
        (
            "at = \"1s\"\ncrash = { owner_of = \"api/x\" }",
            "12:22: error: nothing asks a key \"api/x\"; \
          known are \"api/acme\"",
        ),
        ("at = \"1s\"\nreset = { node = 1 }", "12:9: error: needs `back_after`"),
        (
            "at = \"1s\"\ncrash = { node = 1, lasts = \"1s\" }",
            "12:21: error: unknown field `lasts`",
        ),
    ] {
        let found = found(&format!("{SOUND}[[fault]]\n{text}\n"));
        assert!(found[0].starts_with(&format!("a.toml:{said}")), "{found:?}\n{said}");
    }
}

#[test]
fn a_cost_that_never_passes_is_worth_a_warning() {
    let fleet = parsed(&format!("{SOUND}cost = 1001\n")).expect("it can be simulated");
    let told = fleet.warnings[0].to_string();
    assert_eq!(told, "a.toml:10:8: warning: a cost of 1001 never passes a burst of 1000");
}
