//! Compares tollgate with other rate limiters: the rows of `bench/bars`, and the children they
//! start.
//!
//! Every subcommand prints one line a bar and ends with 1 when a bar is short. What is measured is
//! written in `ns`, `memory`, `instructions`, `daemon` and `fleet`; how, in `measure` and
//! `daemon::row`.
//! Bars are ratios in one run on one machine, counts or sizes: an absolute time says more about the
//! machine than about the code.

mod bar;
mod keys;
mod measure;
mod ours;
mod peers;
mod ns;
mod memory;
mod instructions;
mod daemon;
mod fleet;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let short = match words[..] {
        ["ns"] => ns::run(""),
        ["ns", filter] => ns::run(filter),
        ["memory"] => memory::run(),
        ["memory", case, keys] => return done(memory::fill(case, keys)),
        ["instructions"] => instructions::run(),
        ["daemon"] => return daemon::run(""),
        ["daemon", filter] => return daemon::run(filter),
        ["fleet"] => fleet::run(""),
        ["fleet", filter] => fleet::run(filter),
        ["hot", case] => return done(instructions::hot(case)),
        _ => return done(None),
    };
    ExitCode::from(u8::from(short))
}

/// How a child ends: without a result, it was called with arguments that it does not know.
fn done(result: Option<()>) -> ExitCode {
    if result.is_some() {
        return ExitCode::SUCCESS;
    }
    eprintln!("usage: tollgate-bench ns [part of a row's name] | memory [<case> <keys>]");
    eprintln!("       tollgate-bench instructions | hot <case>");
    eprintln!("       tollgate-bench daemon [part of a row's name] | fleet [part of a row's name]");
    ExitCode::from(2)
}
