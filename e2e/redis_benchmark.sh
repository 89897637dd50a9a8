#!/usr/bin/env bash
# redis-benchmark: no errors, alone and pipelined, over RESP2 and RESP3; and every CL.THROTTLE that
# it says it sent was decided once.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

decided() {
  curl -sS "127.0.0.1:$HTTP/metrics" | grep -E '^tollgate_decisions_total\{face="resp"' \
    | awk '{ n += $NF } END { print n }'
}

# A server that it can't ask, or that answers with an error, it says so of, and goes on.
benchmark() {
  local said
  # shellcheck disable=SC2153 # It is e2e/run's.
  said=$(redis-benchmark -p "$RESP" -c 20 -r 1000 -q "$@" 2>&1) || { echo "$said"; return 1; }
  if grep -qiE 'error|warning|could not' <<< "$said" \
    || ! grep -q 'requests per second' <<< "$said"; then
    echo "$said"
    return 1
  fi
}

n=20000 # A multiple of 16.
for pipeline in 1 16; do
  for resp in '' -3; do
    options=(-n "$n" -P "$pipeline" ${resp:+"$resp"})
    name="redis-benchmark -P $pipeline${resp:+ $resp}"
    before=$(decided)
    check "$name CL.THROTTLE" benchmark "${options[@]}" CL.THROTTLE bench:__rand_int__ 15 30 60
    same "$name each was decided once" "$n" "$(($(decided) - before))"
    check "$name PING" benchmark "${options[@]}" -t ping_inline,ping_mbulk
  done
done
