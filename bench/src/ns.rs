//! Nanoseconds of a check against the best peer for each way of asking.
//!
//! Time is read at every check, by everyone's default clock. Every key has its cell before anything
//! is timed, and all checks are allowed, except in the row that says denied.

use std::sync::Arc;

use crate::bar::judge;
use crate::keys::{CHUNK, Key, stream, text};
use crate::measure::{Contender, Quartiles, Worker, pairs};
use crate::{ours, peers};

/// Measures the rows with `filter` in their names, and returns whether a bar is short.
pub fn run(filter: &str) -> bool {
    let wanted = |name: &str| name.contains(filter);
    let mut short = false;
    if wanted("floor") {
        print_alone("floor", "the clock alone", vec![ours::clock()]);
        print_alone("floor", "the clock and one exchange", ours::floor(1));
        print_alone("floor", "the same, 2 threads on one word", ours::floor(2));
    }
    if wanted("handle") {
        short |= compare("handle", ours::handle(1), "governor", peers::governor_direct(1));
    }
    if wanted("handle-2-threads") {
        let (ours, theirs) = (ours::handle(2), peers::governor_direct(2));
        short |= compare("handle-2-threads", ours, "governor", theirs);
    }
    if wanted("denied") {
        let ours = Contender::denied("tollgate", ours::denied());
        let theirs = Contender::denied("governor", peers::governor_denied());
        short |= compare_contenders("denied", ours, theirs);
    }
    if wanted("keyed-1k") {
        short |= keyed("keyed-1k", 1000, &stream(1000, 64 * CHUNK), 1);
    }
    if wanted("keyed-1m-2-threads") {
        let stream = stream(MILLION, STREAM_MILLION);
        if wanted("keyed-1m") {
            short |= keyed("keyed-1m", MILLION, &stream, 1);
        }
        short |= keyed("keyed-1m-2-threads", MILLION, &stream, 2);
    }
    if wanted("credit-keyed-1k") {
        let stream = stream(1000, 64 * CHUNK);
        let ours = Contender::new("credit cells", vec![ours::credit(1000, &stream)]);
        let theirs = Contender::new("rate cells", ours::keyed(1000, &stream, 1));
        short |= compare_contenders("credit-keyed-1k", ours, theirs);
    }
    if wanted("fleet-keyed-1k") {
        let stream = stream(1000, 64 * CHUNK);
        let ours = Contender::new("a fleet's", vec![ours::fleet_keyed(1000, &stream)]);
        let theirs = Contender::new("a node's", ours::keyed(1000, &stream, 1));
        short |= compare_contenders("fleet-keyed-1k", ours, theirs);
    }
    if wanted("fleet-handle") {
        let ours = Contender::new("a fleet's", vec![ours::fleet_handle()]);
        let theirs = Contender::new("a node's", ours::handle(1));
        short |= compare_contenders("fleet-handle", ours, theirs);
    }
    for (name, leaks) in [("tally-keyed-1k", false), ("tally-keyed-1k-leaking", true)] {
        if wanted(name) {
            let stream = stream(1000, 64 * CHUNK);
            let ours = Contender::new("a store's", vec![ours::tally_keyed(1000, &stream, leaks)]);
            let theirs = Contender::new("a node's", ours::keyed(1000, &stream, 1));
            short |= compare_contenders(name, ours, theirs);
        }
    }
    if wanted("tally-handle") {
        let ours = Contender::new("a store's", vec![ours::tally_handle()]);
        let theirs = Contender::new("a node's", ours::handle(1));
        short |= compare_contenders("tally-handle", ours, theirs);
    }
    if wanted("share-keyed-1k") {
        let stream = stream(1000, 64 * CHUNK);
        let ours = Contender::new("a part", vec![ours::share_keyed(1000, &stream)]);
        let theirs = Contender::new("a node's", ours::keyed(1000, &stream, 1));
        short |= compare_contenders("share-keyed-1k", ours, theirs);
    }
    if wanted("request") {
        let tenants: Arc<[String]> =
            stream(1000, 64 * CHUNK).iter().map(|key| text(key).to_owned()).collect();
        let (ours, theirs) = (ours::request(tenants.clone()), peers::limitador(tenants));
        short |= compare("request", vec![ours], "limitador", vec![theirs]);
    }
    if wanted("disabled-ns") {
        short |=
            judge("disabled-ns", &print_alone("disabled-ns", "tollgate", vec![ours::disabled()]));
    }
    short
}

/// One row of keys: against governor, with throttlecrab beside it.
fn keyed(name: &str, keys: u64, stream: &Arc<[Key]>, threads: usize) -> bool {
    let mut crab = Contender::new("throttlecrab", peers::throttlecrab(keys, stream, threads));
    print_times(name, crab.name(), &crab.alone(SAMPLES_CRAB));
    drop(crab);
    let ours = ours::keyed(keys, stream, threads);
    compare(name, ours, "governor+ahash", peers::governor_keyed(keys, stream, threads))
}

fn compare(name: &str, ours: Vec<Worker>, their_name: &'static str, theirs: Vec<Worker>) -> bool {
    let (ours, theirs) = (Contender::new("tollgate", ours), Contender::new(their_name, theirs));
    compare_contenders(name, ours, theirs)
}

fn compare_contenders(name: &str, mut ours: Contender, mut theirs: Contender) -> bool {
    let pairs = pairs(&mut ours, &mut theirs);
    print_times(name, ours.name(), &pairs.ours);
    print_times(name, theirs.name(), &pairs.theirs);
    let Quartiles { lower, upper, .. } = pairs.ratio;
    println!("# {name}: half of the ratios are between {lower:.4} and {upper:.4}");
    judge(name, &pairs.ratio)
}

fn print_alone(name: &str, who: &'static str, workers: Vec<Worker>) -> Quartiles {
    let times = Contender::new(who, workers).alone(SAMPLES_ALONE);
    print_times(name, who, &times);
    times
}

fn print_times(name: &str, who: &str, times: &Quartiles) {
    let Quartiles { lower, median, upper } = times;
    println!("# {name}: {who} {median:.1} ns (quartiles {lower:.1} and {upper:.1})");
}

const MILLION: u64 = 1_000_000;
const STREAM_MILLION: usize = 4096 * CHUNK;
const SAMPLES_ALONE: usize = 31;
const SAMPLES_CRAB: usize = 7;
