//! The binary `tollgate`: everything is in the library beside it, where tests and fuzzers reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tollgated::run()
}
