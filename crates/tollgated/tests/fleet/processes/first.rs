//! What the first requests of a key find: a fleet that knows that nothing was spent yet.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use super::course::alone;
use super::load::{Door, Outcome};
use crate::harness::Fleet;

/// How many of so many requests, each of a tenant that nobody has met, are allowed by a daemon.
fn allowed_at_first(door: SocketAddr, name: &str) -> usize {
    let door = Door::Tcp(door);
    let checks = (0..FIRST).map(|number| door.check(&format!("{name}-{number}")));
    let outcomes: Vec<Outcome> = checks.map(|outcome| outcome.expect("an answer")).collect();
    // Only a machine that is busy answers too late to be waited for.
    assert!(!outcomes.contains(&Outcome::Denied), "there was room: {outcomes:?}");
    outcomes.iter().filter(|outcome| **outcome == Outcome::Allowed).count()
}

/// A fleet that was just founded took every key for spent, as the successor of an owner that has
/// crashed must: a limit of ten an hour denied everything for six minutes. And so it was after a
/// rolling restart, when each owner's clock was a second old.
#[test]
fn a_key_has_its_burst_at_once_in_a_new_fleet_and_after_a_rolling_restart() {
    let _alone = alone();
    let (mut fleet, doors) = Fleet::with_doors(3, TEN_AN_HOUR, &[]);
    for (index, door) in doors.iter().enumerate() {
        let allowed = allowed_at_first(*door, &format!("new-{index}"));
        assert!(allowed > FIRST / 2, "{allowed} of {FIRST}");
    }
    for index in 0..3 {
        assert!(fleet.daemon(index).stop_term().success());
        fleet.daemon(index).restart();
        fleet.wait_until_whole();
    }
    sleep(Duration::from_millis(200));
    for (index, door) in doors.iter().enumerate() {
        let allowed = allowed_at_first(*door, &format!("later-{index}"));
        assert!(allowed > FIRST / 2, "{allowed} of {FIRST}");
    }
}

/// The table of credit cells was written at the start: a member with no key at all took 127 MB, and
/// nobody served what it had just been given until that was done.
#[test]
fn a_member_without_keys_takes_little_memory() {
    let _alone = alone();
    let (fleet, _) = Fleet::with_doors(1, TEN_AN_HOUR, &[]);
    let bytes = fleet.member(0).running().resident_bytes();
    assert!(bytes < 64 << 20, "{bytes} bytes");
}

const TEN_AN_HOUR: &str = "[[limit]]\nname = \"api\"\nkey = [\"tenant\"]\nrate = \"10/h\"\n\
                           guarantee = \"eventual\"\n";
const FIRST: usize = 30;
