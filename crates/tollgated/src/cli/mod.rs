//! What people type. Exit codes are the same everywhere and are told by `--help`.

mod ask;
mod changes;
mod client;
mod demo;
mod differences;
mod fleet;
mod fleet_args;
mod limit;
mod lint;
mod node;
mod paint;
mod plan;
mod plan_page;
mod serve;
mod signals;
mod sim;
mod store;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

/// Rate limits for many tenants, each with the guarantee it names.
#[derive(Parser)]
#[command(name = "tollgate", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve decisions to Envoy, over HTTP and over the Redis protocol
    Serve(Box<serve::Serve>),
    /// Ask a running daemon whether a request may pass; spends its cost if it may
    Check(ask::Check),
    /// Show which limits apply to a request, which don't and why
    Explain(ask::Explain),
    /// Look for mistakes in a policy, and tell how it differs from Envoy's rate-limit service
    Lint(lint::Lint),
    /// Read and change the limits of a fleet
    Limit(limit::Limit),
    /// List the nodes of a fleet, drain and remove them
    Node(node::Node),
    /// Show a fleet: its members, and what each limit promises beside what was observed
    Fleet(fleet::Fleet),
    /// Back up what a fleet has agreed on, and restore it
    Store(store::Store),
    /// Watch three nodes keep one limit together while one of them is killed
    Demo(demo::Demo),
    /// Tell what a limit will promise and cost in a fleet that shares it
    Plan(plan::Plan),
    /// Play a scenario of a fleet in virtual time: what its limits promise, and what is seen
    Sim(sim::Sim),
    /// Print the JSON schema of the policy file in TOML
    Schema,
}

/// How a policy is read, wherever one is.
#[derive(Args)]
struct Merging {
    /// Let a domain be in several YAML files of a folder, as one
    #[arg(long, env = "TOLLGATE_MERGE_DOMAINS",
          value_parser = clap::builder::BoolishValueParser::new())]
    merge_domains: bool,
}

/// What is in a file that has to hold a secret; `of` makes one of its bytes.
fn secret_in<T>(path: &Path, of: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    of(&bytes).ok_or_else(|| format!("{}: holds no secret", path.display()))
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    // Wrong arguments end the process here, with 2.
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Serve(serve) => serve.run(),
        Command::Check(check) => check.run(),
        Command::Explain(explain) => explain.run(),
        Command::Lint(lint) => lint.run(),
        Command::Limit(limit) => limit.run(),
        Command::Node(node) => node.run(),
        Command::Fleet(fleet) => fleet.run(),
        Command::Store(store) => store.run(),
        Command::Demo(demo) => demo.run(),
        Command::Plan(plan) => plan.run(),
        Command::Sim(sim) => sim.run(),
        Command::Schema => {
            say(&format!("{:#}", crate::config::schema()));
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("{} {error}", paint::Paint::of_stderr().red("error:"));
        ExitCode::from(FAILED)
    })
}

/// Prints a line. Whoever listens may have heard enough, as `head` has.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Ends the process as it ends for arguments that were wrong by themselves.
fn wrong_arguments(message: &str) -> ! {
    Arguments::command().error(ErrorKind::ValueValidation, message).exit()
}

/// The answer was no: denied, mistakes or differences were found, another policy is in force, or a
/// promise was broken.
const NO: u8 = 1;
/// What was to be done is not sound: as for wrong arguments.
const WRONG: u8 = 2;
/// There was no answer.
const FAILED: u8 = 3;
const EXIT_CODES: &str = "\
Exit codes: 0 yes (allowed, no mistakes, no differences, ended as asked), 1 no (denied, mistakes \
or differences found, another policy in force than expected, a promise broken), 2 wrong arguments \
or a wrong scenario, 3 no answer (nothing listens there, a file can't be read).";
