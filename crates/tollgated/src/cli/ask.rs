//! `tollgate check` and `tollgate explain`: a request in `name=value` words.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use hyper::StatusCode;
use serde_json::Value;
use tollgate::{Clock, Options};

use super::client::Door;
use super::paint::Paint;
use super::{FAILED, Merging, NO, say, wrong_arguments};
use crate::config::{self, Reading};
use crate::faces::http;
use crate::service::Service;

/// A request, as words.
#[derive(Args)]
struct Words {
    /// The request's entries, such as tenant=acme metric=read_iops
    #[arg(value_name = "NAME=VALUE", required = true, value_parser = entry)]
    entries: Vec<(String, String)>,
    /// What it costs
    #[arg(long, default_value_t = 1, value_name = "UNITS")]
    cost: u64,
    /// The domain of its limits
    #[arg(long, default_value = tollgate::DEFAULT_DOMAIN)]
    domain: String,
    #[command(flatten)]
    door: Door,
    /// Print the daemon's answer as it is, in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    words: Words,
}

#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    words: Words,
    /// Explain by this policy, with nothing used, instead of asking a daemon
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    #[command(flatten)]
    merging: Merging,
}

fn entry(word: &str) -> Result<(String, String), String> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("must be NAME=VALUE, such as tenant=acme".into()),
    }
}

impl Words {
    /// The request in JSON, its entries in the order in which they are given: to limits with paths
    /// it counts.
    fn body(&self) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let entry = |(name, value): &(String, String)| format!("{}:{}", text(name), text(value));
        let entries: Vec<String> = self.entries.iter().map(entry).collect();
        let (domain, entries) = (text(&self.domain), entries.join(","));
        format!("{{\"domain\":{domain},\"entries\":{{{entries}}},\"cost\":{}}}", self.cost)
    }

    /// Refuses a name that is given twice, as the daemon would, had JSON room for it.
    fn check(&self) {
        for (index, (name, _)) in self.entries.iter().enumerate() {
            if self.entries[..index].iter().any(|(earlier, _)| earlier == name) {
                wrong_arguments(&format!("{name} is given twice"));
            }
        }
    }
}

impl Check {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        self.words.check();
        let (status, answer) = self.words.door.post("/v1/check", self.words.body())?;
        let Some(allowed) = answer["allowed"].as_bool() else { return refused(status, &answer) };
        if self.words.json {
            say(&format!("{answer:#}"));
        } else {
            say(&decision(&answer, "no limit applies", Paint::of_stdout()));
        }
        Ok(ExitCode::from(if allowed { 0 } else { NO }))
    }
}

impl Explain {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        self.words.check();
        let answer = match &self.config {
            Some(path) => self.explain_by(path)?,
            None => {
                let (status, answer) = self.words.door.post("/v1/explain", self.words.body())?;
                if status != StatusCode::OK {
                    return refused(status, &answer);
                }
                answer
            }
        };
        if self.words.json {
            say(&format!("{answer:#}"));
            return Ok(ExitCode::SUCCESS);
        }
        let paint = Paint::of_stdout();
        say(&decision(&answer["decision"], "no limit applies", paint));
        if let Some(domains) = answer["domains"].as_array() {
            let known: Vec<&str> = domains.iter().filter_map(Value::as_str).collect();
            let domain = &self.words.domain;
            say(&format!("  no limit is in domain {domain:?}; domains: {}", known.join(", ")));
        }
        for walk in answer["walks"].as_array().into_iter().flatten() {
            say(&format!("  {}", walked(walk)));
        }
        for limit in answer["limits"].as_array().into_iter().flatten() {
            let name = limit["limit"].as_str().unwrap_or_default();
            if limit["applies"] == true {
                let kind = kind(limit);
                let alone = decision(&limit["alone"], "unlimited", paint);
                let (applies, key) = (paint.green("applies"), &limit["key"]);
                say(&format!("  {applies} {name}{kind} key {key}: {alone}"));
            } else {
                let why = limit["why"].as_str().unwrap_or_default();
                say(&format!("  {} {name}: {why}", paint.dim("not    ")));
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Explains by a file, at an instant at which nothing was used.
    fn explain_by(&self, path: &Path) -> Result<Value, String> {
        let options = Options { clock: Clock::manual().0, ..Options::default() };
        let service = Service::new(options).map_err(|error| error.to_string())?;
        let merge_domains = self.merging.merge_domains;
        let reading = Reading::of(service.keys_max(), merge_domains);
        let loaded = config::load(path, reading).map_err(|findings| {
            findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        service.replace(loaded.limits, &loaded.as_written).map_err(|error| error.to_string())?;
        http::explanation(self.words.body().as_bytes(), &service)
    }
}

/// What is not as with most limits: another guarantee than `local`, a shadow.
fn kind(limit: &Value) -> String {
    let guarantee = limit["guarantee"].as_str().filter(|name| *name != "local");
    let shadow = (limit["shadow"] == true).then_some("shadow");
    let told: Vec<&str> = guarantee.into_iter().chain(shadow).collect();
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

/// The daemon understood and said no to the question itself.
fn refused(status: StatusCode, answer: &Value) -> Result<ExitCode, String> {
    let detail = answer["detail"].as_str().unwrap_or("no detail was given");
    eprintln!("{} {status}: {detail}", Paint::of_stderr().red("error:"));
    Ok(ExitCode::from(FAILED))
}

/// The way of the request along paths, in a line.
fn walked(walk: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let step = |step: &Value| format!("{} ({})", text(&step["step"]), text(&step["how"]));
    let steps = walk["steps"].as_array().into_iter().flatten();
    let steps: Vec<String> = steps.map(step).collect();
    let to = if steps.is_empty() { "" } else { ", " };
    format!("path: {}{to}ends {}", steps.join(" / "), text(&walk["ends"]))
}

/// One decision in a line; `open` is why it passes when no limit decided.
fn decision(answer: &Value, open: &str, paint: Paint) -> String {
    let number = |name: &str| answer[name].as_u64();
    let shadow = answer["shadow_denied_by"].as_str().map_or_else(String::new, |shadow| {
        format!("; the shadow {} would have denied it", paint.yellow(shadow))
    });
    let Some(limit) = answer["limit"].as_str() else {
        let open = if shadow.is_empty() { open } else { "nothing denies it" };
        return format!("{}: {open}{shadow}", paint.green("allowed"));
    };
    let left = match (number("remaining"), number("burst")) {
        (Some(remaining), Some(burst)) => format!(", {remaining} of {burst} left"),
        _ => String::new(),
    };
    if answer["allowed"] == true {
        return format!("{} by {limit}{left}{shadow}", paint.green("allowed"));
    }
    let reason = answer["reason"].as_str().unwrap_or("for no reason");
    let retry = match number("retry_us") {
        Some(micros) => format!(", retry in {}", duration(micros)),
        None => ", and waiting does not help".into(),
    };
    format!("{} by {limit}: {reason}{left}{retry}", paint.red("denied"))
}

/// A wait as people read it, rounded up.
fn duration(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{micros} us"),
        10_000..10_000_000 => format!("{} ms", micros.div_ceil(1_000)),
        _ => format!("{} s", micros.div_ceil(1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_is_told_in_a_line() {
        let plain = |answer: Value| {
            decision(&answer, "unlimited", Paint::of_stdout()).replace("\x1b[0m", "")
        };
        let allowed = json!({"allowed": true, "limit": "api", "burst": 20, "remaining": 19});
        assert!(plain(allowed).ends_with("by api, 19 of 20 left"));
        let denied = json!({
            "allowed": false, "limit": "api", "burst": 20, "remaining": 0,
            "reason": "over_limit", "retry_us": 10_001,
        });
        let line = plain(denied);
        assert!(line.ends_with("by api: over_limit, 0 of 20 left, retry in 11 ms"), "{line}");
        let never = json!({"allowed": false, "limit": "api", "reason": "cost_exceeds_burst"});
        assert!(plain(never).ends_with("cost_exceeds_burst, and waiting does not help"));
        assert!(plain(json!({"allowed": true})).ends_with(": unlimited"));
        let shadow = plain(json!({"allowed": true, "shadow_denied_by": "s"}));
        assert!(shadow.contains("nothing denies it; the shadow"), "{shadow}");
    }

    #[test]
    fn a_walk_is_told_in_a_line() {
        let step = json!({"entry": "k", "step": "k=v", "how": "as it is"});
        let walk = json!({"descriptor": 0, "steps": [step], "ends": "at a limit"});
        assert_eq!(walked(&walk), "path: k=v (as it is), ends at a limit");
        assert_eq!(walked(&json!({"steps": [], "ends": "nowhere"})), "path: ends nowhere");
    }

    #[test]
    fn a_request_keeps_the_order_of_its_words() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            words: Words,
        }
        let only: Only = clap::Parser::parse_from(["x", "b=\"", "a=2", "--domain", "d"]);
        let expected = r#"{"domain":"d","entries":{"b":"\"","a":"2"},"cost":1}"#;
        assert_eq!(only.words.body(), expected);
    }

    #[test]
    fn a_word_is_a_name_and_a_value() {
        assert_eq!(entry("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(entry("a="), Ok(("a".into(), String::new())));
        assert!(entry("=b").is_err() && entry("a").is_err());
    }
}
