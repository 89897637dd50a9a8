//! The promises of the library, one file each.

mod brief;
mod brought;
mod busy;
mod cases;
mod changes;
mod concurrency;
mod coordinator;
mod counted;
mod counting;
mod credits;
mod fleet;
mod flood;
mod garbage;
mod gcra;
mod lint;
mod matching;
mod paths;
mod permitted;
mod reserve;
mod ring;
mod sessions;
mod several;
mod support;
mod tally;
mod tidy;
mod windows;
