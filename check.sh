#!/usr/bin/env bash
# The one command that people and CI run.
#
#   ./check.sh          the short loop: format, lints, tests, a minute of simulation, documentation, dependencies
#   ./check.sh --full   also loom, a mutant for every rule, a minute of fuzzing, and real clients
set -euo pipefail
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }
skipped=
skip() { skipped+="; skipped: $1 ($2 is not installed)"; }

# Mutants and loom have target folders of their own, so that nothing else is built anew for them.
loom() {
  CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true RUSTFLAGS='--cfg loom' \
    cargo test --quiet --locked -p tollgate --lib --release --target-dir target/loom "$@"
}

# The other tests that catch mutants: few of all, which take less long than to optimize them.
library_and_daemon() {
  CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_TEST_OPT_LEVEL=0 \
    cargo test --quiet --locked -p tollgate -p tollgated --lib --test spec \
    --target-dir target/mutants "$@"
}

simulator() {
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=1 \
    cargo build --quiet --locked -p tollgate-sim --bin tollgate-sim --target-dir target/mutants "$@"
}

# Builds what is tested once for all mutants, and nothing anew that they stand on; each run of them says
# which rule it lacks. Prints what was built and where: "tollgate path", "spec path".
with_mutants() {
  local wrapper=target/mutants/rustc.sh
  mkdir -p target/mutants
  printf '#!/bin/sh\nexec "$@" --cfg tollgate_mutants\n' > "$wrapper"
  chmod +x "$wrapper"
  RUSTC_WORKSPACE_WRAPPER=$PWD/$wrapper "$@" --message-format=json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\/\([a-z]*\)-[^"]*\)".*/\2 \1/p'
}

# Runs tests of a target without a rule, where cargo would run them. What proptest finds then is
# nothing to keep.
lacking() {
  local rule=$1 target=$2 built where=crates/tollgate
  shift 2
  case "$target" in
    lib) built=tollgate ;;
    daemon) built=tollgated where=crates/tollgated ;;
    *) built=$target ;;
  esac
  built=$(sed -n "s/^$built //p" target/mutants/built)
  (
    cd "$where"
    export TOLLGATE_MUTANT=$rule PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
    exec "$built" --quiet "$@"
  )
}

# The schedules of a fleet, each without the rule that it was written for.
fleet_mutants() {
  with_mutants simulator > /dev/null
  target/mutants/debug/tollgate-sim mutants > target/mutants.log || {
    grep -B 1 -A 1 -e SURVIVES -e fails target/mutants.log
    return 1
  }
  grep -c '^    ' target/mutants.log | sed 's/$/ rules of a fleet are missed when they are gone/'
}

mutants() {
  local list=crates/tollgate/tests/mutants.txt log=target/mutants.log name target test tests
  mkdir -p target/mutants
  with_mutants library_and_daemon --no-run > target/mutants/built
  with_mutants loom --no-run | sed 's/^tollgate /loom /' >> target/mutants/built
  # What fails with every rule in place catches nothing.
  for target in lib spec loom daemon; do
    mapfile -t tests < <(awk -v target="$target" '$1 != "#" && $2 == target { print $3 }' "$list")
    if ! lacking '' "$target" "${tests[@]}" > "$log" 2>&1; then
      cat "$log"
      return 1
    fi
  done
  while read -r name target test; do
    if lacking "$name" "$target" "$test" > "$log" 2>&1; then
      echo "mutant $name survives $test"
      return 1
    fi
    # It must have failed a test, not to start.
    if ! grep -q 'test result: FAILED' "$log"; then
      cat "$log"
      return 1
    fi
    echo "mutant $name is caught"
  done < <(grep -v '^#' "$list")
}

fuzz() {
  if ! command -v cargo-fuzz > /dev/null || ! cargo +nightly --version > /dev/null 2>&1; then
    skip fuzzing 'cargo-fuzz or a nightly toolchain'
    return
  fi
  local target
  for target in rate limiter resp http grpc quota_reports config command peer_frame session_frame \
    hello; do
    local seeds=() words=()
    if [ "$target" = config ]; then
      seeds=(fuzz/corpus/config examples) words=(-dict=fuzz/config.dict)
    fi
    mkdir -p "fuzz/corpus/$target"
    cargo +nightly fuzz run --fuzz-dir fuzz "$target" "${seeds[@]}" -- \
      -max_total_time=15 -verbosity=0 "${words[@]}"
  done
}

deny() {
  if ! command -v cargo-deny > /dev/null; then
    skip dependencies cargo-deny
    return
  fi
  cargo deny --locked check licenses bans sources
}

full=no
case "${1:-}" in
  --full) full=yes ;;
  '') ;;
  *) sed -n '2,5p' "$0"; exit 2 ;;
esac

step format; cargo fmt --check
step lints; cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
# Limits that are counted in a store are tested against real ones.
if ! command -v redis-server > /dev/null; then
  step redis-server
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get -q update
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get -q install -y --no-install-recommends \
    redis-server
fi
step tests; cargo test --quiet --workspace --locked
step simulation; cargo run --quiet --release --locked -p tollgate-sim -- --seconds 60
step documentation; RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --workspace --locked
step dependencies; deny
if [ "$full" = yes ]; then
  step loom; loom loom_
  step mutants; mutants; fleet_mutants
  step fuzz; fuzz
  step clients; e2e/run
fi
step "all good$skipped"
