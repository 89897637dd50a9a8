//! Bytes of memory for each key that is limited and has not rested: growth of the resident set
//! while the keys come, in a process of its own for each case.

use std::process::Command;

use crate::bar::judge_exact;
use crate::{ours, peers};

/// Starts a child for each case, and returns whether a bar is short.
pub fn run() -> bool {
    let mut short = false;
    for (size, keys, bar) in SIZES {
        for case in ["governor", "governor-string"] {
            println!("# memory-{size}-bytes: {case} {:.1}", child(case, keys));
        }
        short |= judge_exact(bar, child("tollgate", keys));
    }
    short
}

/// The child: fills one limiter and prints the bytes a key.
pub fn fill(case: &str, keys: &str) -> Option<()> {
    let keys: u64 = keys.parse().ok()?;
    let before = resident_bytes("self");
    let after = match case {
        "tollgate" => resident_with(ours::filled(keys)),
        "governor" => resident_with(peers::governor_filled(keys, |key| key)),
        "governor-string" => {
            let name = |key| crate::keys::text(&key).to_owned();
            resident_with(peers::governor_filled(keys, name))
        }
        _ => return None,
    };
    println!("{}", (after - before) as f64 / keys as f64);
    Some(())
}

fn child(case: &str, keys: u64) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new(program)
        .args(["memory", case, &keys.to_string()])
        .output()
        .expect("this program can be started again");
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.trim().parse().expect("the child prints one number")
}

/// The resident set while `held` is alive.
fn resident_with<T>(held: T) -> u64 {
    let bytes = resident_bytes("self");
    drop(held);
    bytes
}

/// The resident set of a process that runs, by its number or `self`.
pub fn resident_bytes(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.expect("Linux tells it there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
    let kibibytes: u64 =
        line.trim().trim_end_matches("kB").trim().parse().expect("a number of KiB");
    kibibytes * 1024
}

const SIZES: [(&str, u64, &str); 2] =
    [("1m", 1_000_000, "memory-1m-bytes"), ("5m", 5_000_000, "memory-5m-bytes")];
