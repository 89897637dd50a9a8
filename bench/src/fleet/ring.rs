//! Who owns which key: how evenly, how much moves when a node joins, how long it takes to find out.
//!
//! A million keys, numbered through: the ring has to spread them itself. All weights are 1.

use tollgate::{KeyId, Member, NodeId, Ring, RingEpoch};

use crate::bar::{judge, judge_exact};
use crate::keys::CHUNK;
use crate::measure::{Contender, Quartiles, Worker, thread_cpu};

/// The busiest node's keys, divided by the mean; the worst of all sizes.
pub fn evenness(name: &str) -> bool {
    let busiest = |nodes: u32| {
        let ring = ring(nodes);
        let mut keys_of = vec![0_u64; nodes as usize];
        for key in keys() {
            keys_of[owner(&ring, key) as usize] += 1;
        }
        let most = keys_of.iter().max().copied().unwrap_or_default();
        let ratio = most as f64 * f64::from(nodes) / KEYS as f64;
        println!("# {name}: {nodes} nodes, busiest {ratio:.4} of the mean");
        ratio
    };
    judge_exact(name, [3, 5, 10, 30, 100].map(busiest).into_iter().fold(0.0, f64::max))
}

/// The share of the keys that move when a node joins, less the newcomer's fair share; the worst of
/// all sizes, or 0.
pub fn join(name: &str) -> bool {
    let beyond = |nodes: u32| {
        let (before, after) = (ring(nodes - 1), ring(nodes));
        let moved = keys().filter(|&key| owner(&before, key) != owner(&after, key)).count();
        let (moved, fair) = (moved as f64 / KEYS as f64, 1.0 / f64::from(nodes));
        println!("# {name}: {moved:.5} move when node {nodes} joins, a fair share is {fair:.5}");
        moved - fair
    };
    // The 33rd is the first whose ring is a list.
    judge_exact(name, [3, 4, 10, 33, 100, 1_000].map(beyond).into_iter().fold(0.0, f64::max))
}

/// Nanoseconds to find a key's owner.
pub fn lookup(name: &str) -> bool {
    let mut short = false;
    for (nodes, bar) in [
        (3, Some("ring-lookup-3-ns")),
        (10, None),
        (32, None),
        (100, Some("ring-lookup-100-ns")),
        (1_000, Some("ring-lookup-1000-ns")),
    ] {
        let times = Contender::new("tollgate", vec![finder(ring(nodes))]).alone(SAMPLES);
        let Quartiles { lower, median, upper } = times;
        println!("# {name}: {nodes} nodes {median:.1} ns (quartiles {lower:.1} and {upper:.1})");
        short |= bar.is_some_and(|bar| judge(bar, &times));
    }
    short
}

/// Milliseconds of CPU time to make the ring of a new epoch and find a first owner.
pub fn build(name: &str) -> bool {
    let mut short = false;
    for (nodes, bar) in [(32, None), (100, None), (1_000, Some("ring-build-ms"))] {
        let sample = |_| {
            let start = thread_cpu();
            // The first to ask has the owners listed.
            std::hint::black_box(ring(nodes).owner(KeyId::default()));
            (thread_cpu() - start).as_secs_f64() * 1e3
        };
        let times = Quartiles::of((0..SAMPLES_BUILD).map(sample).collect());
        let Quartiles { lower, median, upper } = times;
        println!("# {name}: {nodes} nodes {median:.3} ms (quartiles {lower:.3} and {upper:.3})");
        short |= bar.is_some_and(|bar| judge(bar, &times));
    }
    short
}

/// Finds owners of ever other keys.
fn finder(ring: Ring) -> Worker {
    let keys: Vec<KeyId> = keys().take(CHUNKS * CHUNK).collect();
    let mut at = 0;
    Box::new(move || {
        let chunk = &keys[at..at + CHUNK];
        at = (at + CHUNK) % keys.len();
        chunk.iter().filter(|&&key| std::hint::black_box(ring.owner(key)).is_some()).count() as u64
    })
}

/// Nodes 0 to `nodes` - 1.
fn ring(nodes: u32) -> Ring {
    let members = (0..nodes).map(|node| Member { node: NodeId::new(node), weight: 1 });
    Ring::new(RingEpoch::ZERO, members).expect("each node is there once")
}

fn keys() -> impl Iterator<Item = KeyId> {
    // The two smallest numbers stand for the next two.
    (2..KEYS + 2).map(|number| KeyId::from_bits(number, 0))
}

fn owner(ring: &Ring, key: KeyId) -> u32 {
    ring.owner(key).expect("a ring with members").get()
}

const KEYS: u64 = 1_000_000;
const CHUNKS: usize = 512;
const SAMPLES: usize = 31;
const SAMPLES_BUILD: usize = 11;
