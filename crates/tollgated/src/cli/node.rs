//! `tollgate node`: who belongs to a fleet, and how nodes go; and what is left to do when most
//! voters are lost.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Request;
use hyper::http::request::Builder;
use serde_json::Value;

use super::client::Door;
use super::limit::{good, table};
use super::{NO, say, wrong_arguments};
use crate::coordinator;

#[derive(Args)]
pub(crate) struct Node {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the nodes of a fleet
    List(List),
    /// Let a node own no keys: it hands over what it owns, and goes on deciding
    Drain(Named),
    /// Give a node another share of the keys, in proportion to others'
    Weight(Weight),
    /// Let a node that is stopped for good keep no replica of the coordinator any more
    Remove(Named),
    /// Make a stopped node's replica the fleet's only one: when most voters are lost for good
    Recover(Recover),
}

#[derive(Args)]
struct List {
    /// Print the daemon's answer as it is, in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct Named {
    /// Its number, as `tollgate node list` has it
    #[arg(value_name = "NODE", value_parser = clap::value_parser!(u32).range(1..))]
    node: u32,
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct Weight {
    #[command(flatten)]
    named: Named,
    /// Its share of the keys; 0 drains it
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65_535))]
    weight: u32,
}

#[derive(Args)]
struct Recover {
    /// The data folder of the replica that is left; of several, one that knows the latest policy
    #[arg(long, env = "TOLLGATE_DATA", value_name = "FOLDER")]
    data: PathBuf,
    /// Where others will reach its daemon: what it will have as --advertise, or as --peer
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,
    /// Do it: what only the lost voters knew is lost
    #[arg(long)]
    yes: bool,
}

impl Node {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        match &self.command {
            Command::List(list) => list.run(),
            Command::Drain(Named { node, door }) => {
                let path = format!("{NODES}/{node}/drain");
                let told = format!(
                    "node {node} owns no keys now and goes on deciding; `tollgate node weight \
                     {node} 1` undoes it"
                );
                ask(door, Request::post(path), &told)
            }
            Command::Weight(Weight { named: Named { node, door }, weight }) => {
                let path = format!("{NODES}/{node}/weight/{weight}");
                ask(door, Request::put(path), &format!("node {node} has weight {weight} now"))
            }
            Command::Remove(Named { node, door }) => {
                let path = format!("{NODES}/{node}");
                let told = format!(
                    "node {node} has no vote any more; should it start again with its data \
                     folder, it comes back"
                );
                ask(door, Request::delete(path), &told)
            }
            Command::Recover(recover) => recover.run(),
        }
    }
}

impl List {
    fn run(&self) -> Result<ExitCode, String> {
        let answer = self.door.ask(Request::get(NODES), String::new())?;
        let body = match good(&answer) {
            Ok(body) => body,
            Err(told) => return Ok(told.print()),
        };
        if self.json {
            say(&format!("{body:#}"));
            return Ok(ExitCode::SUCCESS);
        }
        let nodes = body["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let row = |node: &Value| {
            let number = |name: &str| node[name].as_u64().map(|number| number.to_string());
            let text = |name: &str| super::changes::plain(node[name].as_str().unwrap_or_default());
            let stands = match (node["start"].is_u64(), node["in_ring"].as_bool()) {
                (false, _) => "away",
                (true, Some(true)) => "in the ring",
                (true, _) => "drained",
            };
            [
                number("node").unwrap_or_default(),
                text("address"),
                stands.into(),
                number("weight").unwrap_or_default(),
                number("start").unwrap_or_else(|| "-".into()),
                text("replica"),
            ]
        };
        for line in table(HEADS, nodes.iter().map(row).collect()) {
            say(&line);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Recover {
    fn run(&self) -> Result<ExitCode, String> {
        let folder = self.data.display();
        if self.peer.parse::<hyper::http::uri::Authority>().is_err() {
            wrong_arguments(&format!("--peer {}: must be HOST:PORT", self.peer));
        }
        if !self.yes {
            say(&format!(
                "This makes the replica in {folder} the only one of its fleet, with what it \
                 knows: a policy that only the lost voters knew is lost. Stop the daemons of all \
                 voters first. Nothing was changed: give --yes to do it."
            ));
            return Ok(ExitCode::from(NO));
        }
        let identity = coordinator::recover(&self.data, &self.peer)
            .map_err(|error| coordinator::in_folder(&self.data, &error))?;
        say(&format!(
            "ok, node {} alone keeps what its fleet has agreed on.\n\
             1. Start it as before: tollgate serve --peer {} --data {folder}\n\
             2. Let all other voters that are left join with an empty folder: tollgate serve \
             --peer ADDRESS --data EMPTY --join {}\n   (their old folders must not be used again)",
            identity.node, self.peer, self.peer
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Has the fleet do something, and says that it is done.
fn ask(door: &Door, request: Builder, told: &str) -> Result<ExitCode, String> {
    let answer = door.ask(request, String::new())?;
    match good(&answer) {
        Ok(_) => {
            say(told);
            Ok(ExitCode::SUCCESS)
        }
        Err(told) => Ok(told.print()),
    }
}

const NODES: &str = "/v1/fleet/nodes";
const HEADS: [&str; 6] = ["node", "address", "is", "weight", "start", "replica"];
