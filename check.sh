#!/usr/bin/env bash
# The one command that people and CI run.
#
#   ./check.sh          the short loop: format, lints, tests, documentation, dependencies
#   ./check.sh --full   also loom, a mutant for every rule, a minute of fuzzing, and real clients
set -euo pipefail
cd "$(dirname "$0")"

step() { printf '\n== %s\n' "$*"; }
skipped=
skip() { skipped+="; skipped: $1 ($2 is not installed)"; }

# Mutants and loom have target folders of their own, so that nothing else is built anew for them.
loom() {
  CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true RUSTFLAGS="--cfg loom $*" \
    cargo test --quiet --locked -p tollgate --lib --release --target-dir target/loom loom_
}

# Builds the crate, and nothing that it stands on, without one of its rules, and runs the rule's test.
mutant() {
  local name=$1 target=$2 test=$3 wrapper=target/mutants/$1.sh
  if [ "$target" = loom ]; then
    loom "--cfg tollgate_mutant=\"$name\""
    return
  fi
  mkdir -p target/mutants
  printf '#!/bin/sh\nexec "$@" --cfg '\''tollgate_mutant="%s"'\''\n' "$name" > "$wrapper"
  chmod +x "$wrapper"
  local where=(-p tollgate --test "$target") optimized=1
  case "$target" in
    lib) where=(-p tollgate --lib) ;;
    # A daemon takes longer to optimize than its unit tests take.
    daemon) where=(-p tollgated --lib) optimized=0 ;;
  esac
  CARGO_PROFILE_TEST_OPT_LEVEL=$optimized CARGO_PROFILE_TEST_DEBUG=0 \
    RUSTC_WORKSPACE_WRAPPER=$PWD/$wrapper \
    cargo test --quiet --locked "${where[@]}" --target-dir target/mutants "$test"
}

mutants() {
  local name target test log=target/mutants.log
  while read -r name target test; do
    if mutant "$name" "$target" "$test" > "$log" 2>&1; then
      echo "mutant $name survives $test"
      return 1
    fi
    # It must have failed a test, not the build.
    if ! grep -q 'test result: FAILED' "$log"; then
      cat "$log"
      return 1
    fi
    echo "mutant $name is caught"
  done < <(grep -v '^#' crates/tollgate/tests/mutants.txt)
}

fuzz() {
  if ! command -v cargo-fuzz > /dev/null || ! cargo +nightly --version > /dev/null 2>&1; then
    skip fuzzing 'cargo-fuzz or a nightly toolchain'
    return
  fi
  local target
  for target in rate limiter resp http grpc config; do
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
step tests; cargo test --quiet --workspace --locked
step documentation; RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --workspace --locked
step dependencies; deny
if [ "$full" = yes ]; then
  step loom; loom
  step mutants; mutants
  step fuzz; fuzz
  step clients; e2e/run
fi
step "all good$skipped"
