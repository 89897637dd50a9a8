//! The stores in which limits with the guarantee `tally` are counted, as far as this daemon is
//! concerned. What is asked of them is decided by `tollgate::TallyNode`.

use tollgate::Limiter;
use tracing::info;

use crate::config::TallySettings;

/// Counts limits in stores from now on.
///
/// This is where a driver of `tollgate::TallyNode` is to be started for `limiter`, whose
/// [`Options::tally`](tollgate::Options::tally) is on. Until then nothing is written or read.
pub(crate) fn start_tally(settings: TallySettings, limiter: Limiter) {
    let TallySettings { stores, read_timeout, write_timeout, reconnect_interval, .. } = &settings;
    let commands = settings.commands_max;
    info!(target: "tally", ?stores, ?read_timeout, ?write_timeout, ?reconnect_interval, commands,
          keys = limiter.tally_rules().limits.len(), "limits are counted in stores");
}
