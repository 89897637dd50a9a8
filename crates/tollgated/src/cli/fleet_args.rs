//! What is said on the command line about the fleet that a daemon belongs to.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tollgate::TableFull;
use tollgate::coordinator::{OnCoordinatorLoss, SessionOptions};
use tollgate_tokio::wire::PeerSecret;

use super::secret_in;
use crate::fleet::Setup;

#[derive(Args)]
#[command(next_help_heading = "Fleet")]
pub(crate) struct FleetArgs {
    /// Be a member of a fleet, which other members reach at this address, such as 127.0.0.1:7800
    #[arg(long, env = "TOLLGATE_PEER", value_name = "ADDRESS")]
    peer: Option<SocketAddr>,
    /// Where other members reach it, if not there
    #[arg(long, env = "TOLLGATE_ADVERTISE", value_name = "HOST:PORT", requires = "peer")]
    advertise: Option<String>,
    /// Peer addresses of any members; without them an empty --data founds a new fleet
    #[arg(
        long,
        env = "TOLLGATE_JOIN",
        value_name = "ADDRESS",
        value_delimiter = ',',
        requires = "peer"
    )]
    join: Vec<String>,
    /// The folder of what outlives the process: this node's number, the fleet's policies
    #[arg(long, env = "TOLLGATE_DATA", default_value = "tollgate-data", value_name = "FOLDER")]
    data: PathBuf,
    /// A file with a secret that all members know; needed beyond this machine
    #[arg(long, env = "TOLLGATE_PEER_SECRET_FILE", value_name = "FILE", requires = "peer")]
    peer_secret_file: Option<PathBuf>,
    /// This node's share of the keys in proportion to others', 1 to 65535
    #[arg(long, env = "TOLLGATE_WEIGHT", default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65_535))]
    weight: u32,
    /// How many daemons keep what the fleet agrees on, at most; its founder says so once
    #[arg(long, env = "TOLLGATE_VOTERS", default_value = "3", value_name = "N",
          value_parser = ["1", "3", "5"])]
    voters: String,
    /// What an owner of keys does when no coordinator hears it
    #[arg(
        long,
        env = "TOLLGATE_ON_COORDINATOR_LOSS",
        default_value = "serve",
        value_name = "WHAT"
    )]
    on_coordinator_loss: OnLoss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnLoss {
    /// It goes on: should others take over meanwhile, more may pass, within the envelope
    Serve,
    /// It stops before others could take over
    Deny,
}

impl FleetArgs {
    /// Whether the daemon is to be a member.
    pub(crate) fn is_member(&self) -> bool {
        self.peer.is_some()
    }

    /// How the daemon is to be a member, if it is to be one.
    pub(crate) fn setup(
        &self,
        keys_max: u64,
        table_full: TableFull,
        tally: bool,
    ) -> Result<Option<Setup>, String> {
        let Some(peer) = self.peer else { return Ok(None) };
        if peer.ip().is_unspecified() && self.advertise.is_none() {
            return Err(format!(
                "--peer {peer}: no other member could reach it there; give --advertise too"
            ));
        }
        let on_coordinator_loss = match self.on_coordinator_loss {
            OnLoss::Serve => OnCoordinatorLoss::Serve,
            OnLoss::Deny => OnCoordinatorLoss::Deny,
        };
        Ok(Some(Setup {
            peer,
            advertise: self.advertise.clone(),
            secret: self.secret()?,
            data: self.data.clone(),
            join: self.join.clone(),
            weight: self.weight,
            voters_max: self.voters.parse().unwrap_or(3),
            keys_max,
            table_full,
            tally,
            sessions: SessionOptions { on_coordinator_loss, ..SessionOptions::default() },
        }))
    }

    fn secret(&self) -> Result<PeerSecret, String> {
        let Some(path) = &self.peer_secret_file else { return Ok(PeerSecret::default()) };
        let of = |bytes: &[u8]| Some(PeerSecret::new(bytes.trim_ascii_end()));
        secret_in(path, |bytes| of(bytes).filter(PeerSecret::is_some))
    }
}
