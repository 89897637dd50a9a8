//! `tollgate demo`: three nodes in this process that keep one limit together, over real sockets. A
//! noisy tenant asks for far more than it may have, a quiet one for little, and half-way the node
//! that keeps the noisy one's level is killed.
//!
//! What was decided is judged as the simulator judges its runs: over every window of time.

mod clients;
mod members;
mod table;
mod tally;
mod verdict;

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;

use super::paint::Paint;
use super::{NO, say};
use clients::Clients;
use members::Members;
use table::View;
use tally::Tally;
use verdict::Verdict;

#[derive(Args)]
pub(crate) struct Demo {
    /// How long it lasts
    #[arg(long, default_value_t = 20, value_name = "S",
          value_parser = clap::value_parser!(u64).range(6..=3_600))]
    seconds: u64,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode, String> {
        say("Three nodes found a fleet, in this process and over loopback sockets ...");
        let mut members = Members::start()?;
        say(&format!("One limit for all of them: {}, for each tenant.\n", members::LIMIT_WORDS));
        let tally = Arc::new(Tally::new(members.roles().clone(), members::promise()?));
        let clients = Clients::start(&members, &tally)?;
        let (began, lasts) = (Instant::now(), Duration::from_secs(self.seconds));
        let mut screen = Screen::new();
        let (mut looks, mut is_killed) = (0, false);
        while began.elapsed() < lasts {
            looks += 1;
            std::thread::sleep((LOOK * looks).saturating_sub(began.elapsed()));
            if !is_killed && began.elapsed() >= lasts / 2 {
                is_killed = true;
                tally.kill();
                members.kill(tally.roles().noisy_owner);
            }
            if looks % LOOKS_A_SECOND == 0 {
                tally.turn_second();
            }
            screen.show(&View::of(&tally, &members, lasts), looks % LOOKS_A_SECOND == 0);
        }
        drop(clients);
        let verdict = Verdict::of(&tally);
        drop(members);
        say("");
        verdict.lines(Paint::of_stdout()).iter().for_each(|line| say(line));
        Ok(ExitCode::from(if verdict.is_kept() { 0 } else { NO }))
    }
}

/// Where the table goes: in its own place on a terminal, and elsewhere a line a second.
struct Screen {
    is_terminal: bool,
    /// Lines of the table that stands there.
    drawn: usize,
    /// Which of the things that happen were told.
    told: [bool; 3],
}

impl Screen {
    fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self { is_terminal: stdout().is_terminal() && !is_dumb, drawn: 0, told: [false; 3] }
    }

    fn show(&mut self, view: &View, is_full_second: bool) {
        if !self.is_terminal {
            for (told, line) in self.told.iter_mut().zip(view.happened()) {
                if let Some(line) = line.filter(|_| !*told) {
                    say(&line);
                    *told = true;
                }
            }
            if is_full_second {
                say(&view.line());
            }
            return;
        }
        let lines = view.table(Paint::of_stdout());
        let mut out = String::new();
        if self.drawn > 0 {
            out = format!("\x1b[{}A", self.drawn);
        }
        for line in &lines {
            out += &format!("\r{line}\x1b[K\n");
        }
        self.drawn = lines.len();
        // Whoever looks on may have closed the terminal.
        let _ = stdout().write_all(out.as_bytes());
        let _ = stdout().flush();
    }
}

const LOOK: Duration = Duration::from_millis(250);
const LOOKS_A_SECOND: u32 = 4;
