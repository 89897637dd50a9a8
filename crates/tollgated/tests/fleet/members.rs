//! Daemons become members, stop and come back.

use crate::harness::Fleet;

#[test]
fn a_fleet_is_whole_again_when_a_member_that_left_or_died_is_back() {
    let mut fleet = Fleet::start(3);
    fleet.daemon(1).kill9();
    fleet.daemon(1).restart();
    fleet.wait_until_whole();
    assert!(fleet.daemon(2).stop_term().success());
    fleet.daemon(2).restart();
    fleet.wait_until_whole();
}
