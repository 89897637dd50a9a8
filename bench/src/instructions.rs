//! Instructions of a check, by callgrind: the figure that does not drift with the machine.
//!
//! They are counted in [`hot_loop`] and what it calls, so the loop around the checks (about 8
//! instructions each) is included, for everyone alike.

use std::process::Command;

use crate::bar::judge_exact;
use crate::keys::{CHUNK, stream};
use crate::measure::Worker;
use crate::{ours, peers};

/// Counts each case, and returns whether a bar is short.
pub fn run() -> bool {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("# valgrind is not installed");
        println!("# instructions-keyed-1k, instructions-handle: not measured, so not judged");
        return false;
    }
    for case in CASES {
        if !BARS.iter().any(|(barred, _)| *barred == case) {
            println!("# instructions: {case} {:.1}", count(case));
        }
    }
    BARS.iter().fold(false, |short, (case, bar)| short | judge_exact(bar, count(case)))
}

/// The child under callgrind: one case, with all that is lazy done before.
pub fn hot(case: &str) -> Option<()> {
    let keys = stream(1000, 64 * CHUNK);
    let tenants = || keys.iter().map(|key| crate::keys::text(key).to_owned()).collect();
    let mut workers = match case {
        "handle" => ours::handle(1),
        "handle-denied" => vec![ours::denied()],
        "keyed-1k" => ours::keyed(1000, &keys, 1),
        "fleet-keyed-1k" => vec![ours::fleet_keyed(1000, &keys)],
        "fleet-handle" => vec![ours::fleet_handle()],
        "request" => vec![ours::request(tenants())],
        "disabled" => vec![ours::disabled()],
        "governor" => peers::governor_direct(1),
        "governor-denied" => vec![peers::governor_denied()],
        "governor-keyed-1k" => peers::governor_keyed(1000, &keys, 1),
        "throttlecrab-keyed-1k" => peers::throttlecrab(1000, &keys, 1),
        "limitador-request" => vec![peers::limitador(tenants())],
        _ => return None,
    };
    workers[0]();
    hot_loop(&mut workers[0]);
    Some(())
}

/// callgrind counts from where this is entered to where it is left; its name is in [`count`].
#[inline(never)]
fn hot_loop(worker: &mut Worker) {
    for _ in 0..CHUNKS {
        std::hint::black_box(worker());
    }
}

fn count(case: &str) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*hot_loop*")
        .arg(program)
        .args(["hot", case])
        .output()
        .expect("valgrind can be started");
    let printed = String::from_utf8_lossy(&output.stderr);
    let collected = printed.lines().find_map(|line| line.split("Collected : ").nth(1));
    let collected: f64 = collected
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or_else(|| panic!("callgrind counted nothing: {printed}"));
    collected / (CHUNKS * CHUNK) as f64
}

const CHUNKS: usize = 64;
/// In the order of printing.
const CASES: [&str; 12] = [
    "governor",
    "governor-denied",
    "governor-keyed-1k",
    "throttlecrab-keyed-1k",
    "limitador-request",
    "handle",
    "handle-denied",
    "keyed-1k",
    "fleet-handle",
    "fleet-keyed-1k",
    "request",
    "disabled",
];
const BARS: [(&str, &str); 2] =
    [("keyed-1k", "instructions-keyed-1k"), ("handle", "instructions-handle")];
