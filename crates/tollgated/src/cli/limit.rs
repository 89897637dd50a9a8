//! `tollgate limit`: what a fleet's limits are, and how they become others.
//!
//! A change is shown before it is made, and is made to what was shown: if another policy has taken
//! force meanwhile, the fleet refuses it. What a policy file says is known in `config`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use hyper::header::IF_MATCH;
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};
use serde_json::{Value, json};
use tollgate_tokio::limit_text::LimitFields;

use super::changes::{Changes, plain};
use super::client::{Answer, Door};
use super::lint::shown;
use super::paint::Paint;
use super::{FAILED, Merging, NO};
use crate::agreement::when;
use crate::config::{self, Reading, no_env};

#[derive(Args)]
pub(crate) struct Limit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put the limits of a file in force in the whole fleet, in place of all that are
    Apply(Apply),
    /// Print the limits in force as a file that `apply` takes
    Get(Get),
    /// Tell what `apply` would change; ends with 1 if anything
    Diff(Diff),
    /// List the policies that are kept, the one in force first
    History(History),
    /// Put an older policy in force again, as a new revision
    Rollback(Rollback),
}

/// A policy file.
#[derive(Args)]
struct Source {
    /// A policy: a .toml, .yaml or .json file, or a folder of .toml and .yaml files
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    merging: Merging,
}

/// Who changes the policy, and on what grounds.
#[derive(Args)]
struct Grounds {
    /// On what grounds, for the history
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    comment: String,
    /// By whom, for the history
    #[arg(
        long,
        env = "USER",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true,
        value_name = "NAME"
    )]
    author: String,
}

#[derive(Args)]
struct Apply {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    grounds: Grounds,
    /// Change nothing unless this revision is in force [default: the one that is shown]
    #[arg(long, value_name = "REVISION")]
    expect: Option<u64>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct Get {
    /// An older one that is kept, as `tollgate limit history` lists them
    #[arg(long, value_name = "REVISION")]
    revision: Option<u64>,
    /// How it is written [default: toml, or json if a limit has a path]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    door: Door,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Toml,
    Json,
}

#[derive(Args)]
struct Diff {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct History {
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct Rollback {
    /// The revision whose limits are to be in force again
    #[arg(value_name = "REVISION")]
    to: u64,
    #[command(flatten)]
    grounds: Grounds,
    #[command(flatten)]
    door: Door,
}

/// What is said, where, and how the process ends.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) code: u8,
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
}

/// What is said, or why there is nothing more to be said.
type Telling = Result<Told, Told>;

impl From<String> for Told {
    /// There was no answer.
    fn from(error: String) -> Self {
        Self::error(FAILED, &error)
    }
}

impl Told {
    fn yes(out: Vec<String>) -> Self {
        Self { code: 0, out, err: Vec::new() }
    }

    fn error(code: u8, message: &str) -> Self {
        let message = format!("{} {message}", Paint::of_stderr().red("error:"));
        Self { code, out: Vec::new(), err: vec![message] }
    }

    /// Says it.
    pub(super) fn print(self) -> ExitCode {
        self.out.iter().for_each(|line| super::say(line));
        self.err.iter().for_each(|line| eprintln!("{line}"));
        ExitCode::from(self.code)
    }

    /// The same after something else was said.
    fn after(self, mut before: Vec<String>) -> Self {
        before.extend(self.out);
        Self { out: before, ..self }
    }
}

impl Limit {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        Ok(self.told().print())
    }

    pub(crate) fn told(&self) -> Told {
        let told = match &self.command {
            Command::Apply(apply) => apply.told(),
            Command::Get(get) => get.told(),
            Command::Diff(diff) => diff.told(),
            Command::History(history) => history.told(),
            Command::Rollback(rollback) => rollback.told(),
        };
        told.unwrap_or_else(|told| told)
    }
}

impl Source {
    /// The limits, and warnings as lines; mistakes are told, and end it.
    fn load(&self) -> Result<(Vec<tollgate::Limit>, Vec<String>), Told> {
        let unreadable = |error| format!("{}: {error}", self.file.display());
        std::fs::metadata(&self.file).map_err(unreadable)?;
        let merge_domains = self.merging.merge_domains;
        // What a fleet is to have must not depend on who says it where.
        let reading = Reading { env: no_env, ..Reading::of(KEYS_MAX, merge_domains) };
        let paint = Paint::of_stdout();
        let lines = |findings: &[config::Finding]| -> Vec<String> {
            findings.iter().map(|finding| shown(finding, paint)).collect()
        };
        match config::load(&self.file, reading) {
            Ok(loaded) => Ok((loaded.limits, lines(&loaded.warnings))),
            Err(findings) => Err(Told { code: NO, out: lines(&findings), err: Vec::new() }),
        }
    }
}

/// A policy of the fleet.
struct Document {
    revision: u64,
    limits: Vec<tollgate::Limit>,
}

impl Document {
    /// The one in force, or an older one.
    fn fetch(door: &Door, revision: Option<u64>) -> Result<Self, Told> {
        let answer = door.ask(Request::get(path_of(revision)), String::new())?;
        let body = good(&answer)?;
        let strange = || format!("the answer is no policy: {}", body_start(&answer));
        let revision = body["revision"].as_u64().ok_or_else(strange)?;
        let list = body["limits"].as_array().ok_or_else(strange)?;
        let limit = |limit: &Value| {
            let fields =
                LimitFields::read(&limit.to_string()).map_err(|error| error.to_string())?;
            fields.limit().map_err(|error| error.to_string())
        };
        let limits: Result<Vec<_>, String> = list.iter().map(limit).collect();
        let limits = limits.map_err(|error| {
            format!("this version can't read a limit of revision {revision}: {error}")
        })?;
        Ok(Self { revision, limits })
    }
}

impl Apply {
    fn told(&self) -> Telling {
        let (limits, mut out) = self.source.load()?;
        let before = Document::fetch(&self.door, None)?;
        let seen = before.revision;
        if let Some(expected) = self.expect.filter(|expected| *expected != seen) {
            return Err(another(expected, seen).after(out));
        }
        let changes = Changes::between(&before.limits, &limits);
        if changes.are_none() {
            out.push(format!("revision {seen} says the same already: nothing was changed"));
            return Ok(Told::yes(out));
        }
        out.extend(changes.lines(Paint::of_stdout()));
        if self.dry_run {
            out.push(format!("nothing was changed (--dry-run): revision {seen} stays in force"));
            return Ok(Told::yes(out));
        }
        let limits: Vec<LimitFields> = limits.iter().map(LimitFields::of).collect();
        let Grounds { author, comment } = &self.grounds;
        let body = json!({ "limits": limits, "author": author, "comment": comment });
        let put = Request::put(POLICY);
        revise(&self.door, put, seen, &body, out)
    }
}

impl Rollback {
    fn told(&self) -> Telling {
        let before = Document::fetch(&self.door, None)?;
        let older = Document::fetch(&self.door, Some(self.to))?;
        let seen = before.revision;
        let changes = Changes::between(&before.limits, &older.limits);
        if changes.are_none() {
            let same = format!(
                "revision {seen}, which is in force, says the same as {}: nothing was changed",
                self.to
            );
            return Ok(Told::yes(vec![same]));
        }
        let out = changes.lines(Paint::of_stdout());
        let Grounds { author, comment } = &self.grounds;
        let body = json!({ "to": self.to, "author": author, "comment": comment });
        let post = Request::post(format!("{POLICY}/rollback"));
        revise(&self.door, post, seen, &body, out)
    }
}

impl Get {
    fn told(&self) -> Telling {
        if self.format != Some(Format::Json) {
            let path = path_of(self.revision) + "?format=toml";
            let answer = self.door.ask(Request::get(path), String::new())?;
            if answer.status == StatusCode::OK {
                return Ok(Told::yes(answer.text().lines().map(str::to_owned).collect()));
            }
            let has_path = answer.status == StatusCode::NOT_ACCEPTABLE;
            if !has_path || self.format == Some(Format::Toml) {
                good(&answer)?;
            }
        }
        let answer = self.door.ask(Request::get(path_of(self.revision)), String::new())?;
        let mut body = good(&answer)?;
        let document = json!({ "limits": body["limits"].take() });
        Ok(Told::yes(vec![format!("{document:#}")]))
    }
}

impl Diff {
    fn told(&self) -> Telling {
        let (limits, mut out) = self.source.load()?;
        let before = Document::fetch(&self.door, None)?;
        let changes = Changes::between(&before.limits, &limits);
        if changes.are_none() {
            out.push(format!("revision {}, which is in force, says the same", before.revision));
            return Ok(Told::yes(out));
        }
        out.extend(changes.lines(Paint::of_stdout()));
        Ok(Told { code: NO, out, err: Vec::new() })
    }
}

impl History {
    fn told(&self) -> Telling {
        let answer = self.door.ask(Request::get(format!("{POLICY}/history")), String::new())?;
        let body = good(&answer)?;
        let list = body["history"].as_array().map_or(&[][..], Vec::as_slice);
        if list.is_empty() {
            let first = "no policy was ever put; `tollgate limit apply FILE` puts the first";
            return Ok(Told::yes(vec![first.into()]));
        }
        let row = |change: &Value| {
            let text = |name: &str| plain(change[name].as_str().unwrap_or_default());
            let number = |name: &str| change[name].as_u64().unwrap_or_default();
            [
                number("revision").to_string(),
                when(number("unix_seconds")),
                number("limits").to_string(),
                number("changed").to_string(),
                text("author"),
                text("comment"),
            ]
        };
        Ok(Told::yes(table(HEADS, list.iter().map(row).collect())))
    }
}

/// Has the fleet change its policy from the revision that was seen.
fn revise(door: &Door, request: Builder, seen: u64, body: &Value, mut out: Vec<String>) -> Telling {
    let request = request.header(IF_MATCH, format!("\"{seen}\""));
    let answer = door.ask(request, body.to_string());
    let answer = answer.map_err(|error| Told::from(error).after(out.clone()))?;
    let body = good(&answer).map_err(|told| told.after(out.clone()))?;
    let revision = body["revision"].as_u64().unwrap_or_default();
    let paint = Paint::of_stdout();
    out.push(format!("{} revision {revision} is in force in the fleet", paint.green("ok,")));
    if seen > 0 {
        out.push(format!("    `tollgate limit rollback {seen}` undoes it"));
    }
    Ok(Told::yes(out))
}

/// The answer's body if it is a good one; else what is wrong, and what to do.
pub(super) fn good(answer: &Answer) -> Result<Value, Told> {
    let body = answer.json()?;
    if answer.status == StatusCode::OK {
        return Ok(body);
    }
    let detail = plain(body["detail"].as_str().unwrap_or("no detail was given"));
    Err(match answer.status {
        StatusCode::PRECONDITION_FAILED => {
            let number = |name: &str| body[name].as_u64().unwrap_or_default();
            another(number("expected"), number("current"))
        }
        StatusCode::BAD_REQUEST if body["findings"].is_array() => {
            let findings = body["findings"].as_array().into_iter().flatten();
            let messages = findings.filter(|finding| finding["severity"] == "error");
            let lines = messages.filter_map(|finding| finding["message"].as_str()).map(plain);
            let refused = "the daemon found mistakes; nothing was changed";
            Told::error(NO, refused).after(lines.collect())
        }
        StatusCode::BAD_REQUEST => Told::error(NO, &detail),
        status => Told::error(FAILED, &format!("{status}: {detail}")),
    })
}

/// Another policy is in force than the one that was to be changed.
fn another(expected: u64, current: u64) -> Told {
    let message = format!(
        "revision {current} is in force, and not {expected}: somebody else has changed the policy, \
         and nothing was changed now; see `tollgate limit history` and `tollgate limit diff FILE`, \
         then apply again"
    );
    Told::error(NO, &message)
}

fn path_of(revision: Option<u64>) -> String {
    revision.map_or(POLICY.into(), |revision| format!("{POLICY}/{revision}"))
}

fn body_start(answer: &Answer) -> String {
    plain(&answer.text().chars().take(100).collect::<String>())
}

/// Rows under their heads, columns as wide as their widest cell, the last as it is; numbers are to
/// the right.
pub(super) fn table<const COLUMNS: usize>(
    heads: [&str; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
) -> Vec<String> {
    let mut rows = rows;
    rows.insert(0, heads.map(str::to_owned));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| {
            let is_number = cell.parse::<u64>().is_ok();
            if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

const POLICY: &str = "/v1/policy";
const HEADS: [&str; 6] = ["revision", "put", "limits", "changed", "by", "comment"];
/// As many keys as a daemon has room for unless it is told otherwise; the daemon knows its own.
const KEYS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests;
