//! Makes Rust of the protocols in `proto`, without a compiler of theirs on the machine.

use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let services = [
        "envoy/service/ratelimit/v3/rls.proto",
        "envoy/service/rate_limit_quota/v3/rlqs.proto",
        "grpc/health/v1/health.proto",
    ];
    let described = protox::compile(services, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // What reflection shows to clients.
    fs::write(out.join("proto.bin"), described.encode_to_vec())?;
    prost_build::Config::new().include_file("proto.rs").compile_fds(described)?;
    Ok(())
}
