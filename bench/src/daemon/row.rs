//! How servers are compared: rounds in which each gets its load once, and the ratio in each round.
//!
//! All servers of a row run, but only one is loaded at a time. A round shares the machine's mood,
//! so that its ratio means something where its figures do not. CPU time of the server is the
//! steadier figure: the client's core and other processes change the rate much more.

use super::client::Client;
use super::server::Server;
use crate::measure::Quartiles;

/// Contenders that could be started, with their loads.
pub struct Row {
    name: &'static str,
    checks_per_request: f64,
    contenders: Vec<Contender>,
}

struct Contender {
    name: &'static str,
    server: Server,
    client: Client,
    samples: Vec<Sample>,
}

/// What a server did in one round.
pub struct Sample {
    pub checks_per_second: f64,
    /// Microseconds of the server's CPU for each check.
    pub cpu_micros: f64,
    /// The part of the time for which the server had its core.
    pub busy: f64,
}

/// The samples of those that were there in every round.
pub struct Measured {
    contenders: Vec<(&'static str, Vec<Sample>)>,
}

impl Row {
    pub fn new(name: &'static str, checks_per_request: u32) -> Self {
        Self { name, checks_per_request: f64::from(checks_per_request), contenders: Vec::new() }
    }

    /// Adds a contender, or says why it is not there.
    pub fn add(&mut self, name: &'static str, started: Result<(Server, Client), String>) {
        match started {
            Ok((server, client)) => {
                self.contenders.push(Contender { name, server, client, samples: Vec::new() });
            }
            Err(why) => println!("# {}: {name} is not measured: {why}", self.name),
        }
    }

    /// Samples all in turn, and prints what each did.
    pub fn measure(mut self) -> Measured {
        for round in 0..=ROUNDS {
            self.contenders.retain_mut(|contender| {
                match contender.sample(self.checks_per_request) {
                    // The first fills caches, tables and connections' buffers.
                    Ok(_) if round == 0 => true,
                    Ok(sample) => {
                        contender.samples.push(sample);
                        true
                    }
                    Err(why) => {
                        println!("# {}: {} is not measured: {why}", self.name, contender.name);
                        false
                    }
                }
            });
        }
        let named = |contender: Contender| (contender.name, contender.samples);
        let measured = Measured { contenders: self.contenders.into_iter().map(named).collect() };
        measured.print(self.name);
        measured
    }
}

impl Contender {
    fn sample(&mut self, checks_per_request: f64) -> Result<Sample, String> {
        let before = self.server.cpu()?;
        let done = self.client.run(&self.server)?;
        let cpu = (self.server.cpu()? - before).as_secs_f64();
        let checks = done.requests * checks_per_request;
        Ok(Sample {
            checks_per_second: checks / done.seconds,
            cpu_micros: cpu * 1e6 / checks,
            busy: cpu / done.seconds,
        })
    }
}

impl Measured {
    /// A figure of one contender.
    pub fn values(&self, name: &str, figure: fn(&Sample) -> f64) -> Option<Quartiles> {
        Some(Quartiles::of(self.samples(name)?.iter().map(figure).collect()))
    }

    /// A figure of ours divided by theirs, round by round.
    pub fn ratio(&self, ours: &str, theirs: &str, figure: fn(&Sample) -> f64) -> Option<Quartiles> {
        let pairs = self.samples(ours)?.iter().zip(self.samples(theirs)?);
        Some(Quartiles::of(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()))
    }

    fn samples(&self, name: &str) -> Option<&[Sample]> {
        let found = self.contenders.iter().find(|(known, _)| *known == name);
        found.map(|(_, samples)| &samples[..])
    }

    fn print(&self, row: &str) {
        for (name, samples) in &self.contenders {
            let figures =
                |figure: fn(&Sample) -> f64| Quartiles::of(samples.iter().map(figure).collect());
            let rate = figures(|sample| sample.checks_per_second / 1000.0);
            let cpu = figures(|sample| sample.cpu_micros);
            let busy = figures(|sample| sample.busy * 100.0);
            println!(
                "# {row}: {name} {:.1} k/s, {:.2} µs of its CPU each (quartiles {:.2} and {:.2}), \
                 {:.0} % of its core",
                rate.median, cpu.median, cpu.lower, cpu.upper, busy.median
            );
        }
    }
}

/// Enough for quartiles, and for a run of four minutes.
const ROUNDS: usize = 11;
