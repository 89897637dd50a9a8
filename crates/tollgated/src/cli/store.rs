//! `tollgate store`: what a fleet has agreed on, as a file, and a fleet from such a file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::{Request, StatusCode};

use super::client::Door;
use super::limit::good;
use super::{say, wrong_arguments};
use crate::coordinator::{self, BackupError};

#[derive(Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write all that a fleet has agreed on to a new file; it holds the fleet's secret
    Backup(Backup),
    /// Make a fleet of a backup, in an empty folder, when all voters are lost
    Restore(Restore),
}

#[derive(Args)]
struct Backup {
    /// Where to; there must be no such file yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Read this data folder, whose daemon is stopped, instead of asking a daemon
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    #[command(flatten)]
    door: Door,
}

#[derive(Args)]
struct Restore {
    /// A backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data folder to make, which is empty or missing
    #[arg(long, env = "TOLLGATE_DATA", value_name = "FOLDER")]
    data: PathBuf,
    /// Where others will reach its daemon: what it will have as --advertise, or as --peer
    #[arg(long, value_name = "HOST:PORT")]
    peer: String,
}

impl Store {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        match &self.command {
            Command::Backup(backup) => backup.run(),
            Command::Restore(restore) => restore.run(),
        }
    }
}

impl Backup {
    fn run(&self) -> Result<ExitCode, String> {
        let bytes = match &self.data {
            Some(folder) => coordinator::back_up_stopped(folder)
                .map_err(|error| coordinator::in_folder(folder, &error))?,
            None => {
                let answer = self.door.ask(Request::get("/v1/fleet/backup"), String::new())?;
                if answer.status != StatusCode::OK {
                    return match good(&answer) {
                        Ok(_) => Err("the answer is no backup".into()),
                        Err(told) => Ok(told.print()),
                    };
                }
                answer.into_bytes().into()
            }
        };
        let file = self.file.display();
        coordinator::write_backup(&self.file, &bytes)
            .map_err(|error| format!("{file}: {error}"))?;
        say(&format!(
            "ok, {} bytes in {file}; keep it as you keep the fleet's secret",
            bytes.len()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

impl Restore {
    fn run(&self) -> Result<ExitCode, String> {
        let (folder, file) = (self.data.display(), self.file.display());
        if self.peer.parse::<hyper::http::uri::Authority>().is_err() {
            wrong_arguments(&format!("--peer {}: must be HOST:PORT", self.peer));
        }
        let restored = coordinator::restore(&self.data, &self.file, &self.peer);
        let identity = restored.map_err(|error| match error {
            BackupError::NotEmpty => format!(
                "--data {folder}: the folder is not empty; a fleet is restored into an empty one"
            ),
            BackupError::Store(error) => coordinator::in_folder(&self.data, &error),
            BackupError::NoBackup
            | BackupError::Damaged(_)
            | BackupError::NotFounded
            | BackupError::Io(_) => format!("{file}: {error}"),
        })?;
        say(&format!(
            "ok, {folder} has the fleet of the backup, with node {} as its only replica.\n\
             1. Stop all daemons of the fleet that still run: numbers would be given twice.\n\
             2. Start this one: tollgate serve --peer {} --data {folder}\n\
             3. Let all others join with an empty folder: tollgate serve --peer ADDRESS \
             --data EMPTY --join {}",
            identity.node, self.peer, self.peer
        ));
        Ok(ExitCode::SUCCESS)
    }
}
