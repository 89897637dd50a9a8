//! Real processes with clients of their own: what goes wrong, and what clients saw of it.

mod course;
mod first;
mod judge;
mod load;
mod partition;
mod path;
mod policies;
mod schedules;
