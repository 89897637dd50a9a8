//! Schedules that chance seldom finds, one for each story of a hole that an earlier version of the
//! rules had: every message's fate and every instant is written by hand.
//!
//! Each passes on the rules as they are, and fails when a rule is taken away that it was written
//! for: `mutants.txt` says which.

mod course;
mod fleets;
mod limits;
mod mutants;
mod owners;
mod shares;
mod spending;
mod stage;
mod tallies;

use crate::check::Violation;

#[cfg(tollgate_mutants)]
pub use mutants::play_without;
pub use mutants::{Mutant, mutants};

/// A schedule.
#[derive(Clone, Copy)]
pub struct Schedule {
    /// What it shows, as a sentence.
    pub name: &'static str,
    /// Plays it, and says what was wrong.
    pub play: fn() -> Vec<Violation>,
}

macro_rules! schedules {
    ($($module:ident: $($name:ident)*;)*) => {
        /// All schedules.
        pub const SCHEDULES: &[Schedule] =
            &[$($(Schedule { name: stringify!($name), play: $module::$name },)*)*];

        #[cfg(test)]
        mod tests {
            $($(
                #[test]
                fn $name() {
                    assert_eq!(super::$module::$name(), []);
                }
            )*)*
        }
    };
}

schedules! {
    fleets:
        whoever_follows_a_lost_heir_waits_for_its_predecessor
        a_limit_that_is_gone_admits_nothing;
    spending:
        a_cell_that_comes_again_is_another
        a_snapshot_for_a_former_life_permits_nothing
        a_worker_that_starts_again_leaves_its_record
        a_refund_of_what_has_leaked_gives_nothing
        two_refunds_share_what_has_not_leaked
        the_older_of_two_refunds_counts
        a_late_return_of_what_has_leaked_gives_nothing
        a_return_is_matched_to_what_expired
        the_older_of_two_expiries_counts
        a_stale_report_corrects_nothing
        a_spend_between_a_report_and_the_expiry
        a_return_crosses_a_snapshot
        a_smaller_wish_cuts_nothing
        a_short_permission_after_a_long_one_is_lost
        a_short_permission_after_a_long_one_that_is_spent
        a_renewal_over_a_lost_grant
        what_is_outstanding_takes_its_room
        a_late_snapshot_permits_no_longer
        what_was_spent_before_the_first_report_counts
        each_first_contact_has_its_allowance
        costs_above_one
        a_key_that_its_owner_forgot_is_served;
    owners:
        a_new_owner_starts_with_the_burst_spent
        a_rested_key_is_full_at_its_new_owner
        an_owner_that_starts_again_holds
        a_snapshot_of_an_owners_former_life_comes_late
        what_a_dead_owner_permitted_is_returned
        a_new_owner_that_permits_less_cuts_nothing
        a_handover_has_what_is_outstanding
        a_handover_does_not_shorten_a_hold
        a_handover_does_not_shorten_a_hold_of_unknown_keys
        a_report_that_comes_before_the_handover_gets_nothing
        a_part_of_a_handover_is_not_all
        a_handover_that_comes_twice_counts_once
        a_handover_that_never_comes_counts_as_a_crash
        a_ring_that_changes_while_a_handover_is_awaited
        an_old_owner_that_is_deaf_is_waited_for_over_another_change
        an_old_owner_that_is_deaf_is_waited_for_by_a_third
        a_handover_that_is_overtaken_by_a_change_is_held
        an_old_owner_that_is_deaf_is_waited_for_over_a_restart
        a_missed_ring_counts_as_a_crash
        what_is_known_from_before_a_missed_ring_is_forgotten
        an_owner_of_an_old_ring_is_not_listened_to
        two_owners_at_once_are_measured
        an_owner_sees_what_another_permitted
        what_an_owners_former_life_permitted_is_no_excess
        an_owner_that_hears_of_a_planned_change_too_late_is_measured
        an_owner_whose_lease_ends_stops_in_time
        a_return_of_an_old_owners_time_gives_nothing
        a_refund_of_an_old_owners_time_gives_nothing;
    limits:
        a_changed_limit_keeps_what_was_spent
        a_changed_limit_keeps_what_is_outstanding
        a_lowered_limit_is_in_force
        an_allowance_of_its_own_changes_a_key_in_place
        an_unknown_revision_permits_nothing
        a_fast_owner_waits_for_a_slow_worker
        a_slow_owner_and_a_fast_worker
        a_fast_owner_admits_as_much_more
        a_process_that_stands_still_past_its_deadline
        a_process_that_stands_still_for_a_moment;
    tallies:
        what_is_hot_over_the_fleet_and_cold_on_each_node
        a_new_key_is_read_again_soon
        what_was_low_for_long_is_limited_after_a_window
        a_new_key_is_read_with_the_next_tick
        what_is_counted_goes_out_before_anything_is_read
        what_is_counted_while_a_read_is_under_way_stays
        what_a_store_forgets_its_nodes_know
        what_waits_counts_beside_what_was_read
        what_is_hot_stays_limited_in_an_outage
        what_may_have_been_written_is_not_written_again;
    shares:
        nodes_that_are_alone_admit_an_equal_part
        a_node_that_wants_more_has_an_equal_part_at_once
        no_node_is_rounded_to_nothing
        a_thousand_nodes_are_not_rounded_to_nothing
        who_asks_seldom_is_not_forgotten_between
        a_first_request_is_no_rate
        a_load_that_moves_is_followed
        what_is_denied_is_told_at_once
        what_is_busy_is_reported
        what_is_given_up_is_held_until_it_is_confirmed
        a_new_owner_learns_what_members_hold
        a_report_that_comes_late_is_no_news
        a_raised_limit_is_in_force_in_cells_that_are_in_use
        what_chance_makes_of_few_units_is_no_change
        who_rests_gives_up_its_part;
}
