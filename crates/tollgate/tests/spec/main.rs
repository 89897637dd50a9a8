//! The promises of the library, one file each.

mod cases;
mod changes;
mod concurrency;
mod counting;
mod flood;
mod gcra;
mod lint;
mod matching;
mod several;
mod support;
mod tidy;
