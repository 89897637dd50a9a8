#!/usr/bin/env bash
# wrk while a successor takes over the same ports (--reuse-port) and the old daemon gets SIGTERM:
# with connections that are kept no request fails.
set -euo pipefail
source "$E2E/lib.sh"

# restart NAME [ARGUMENT]: three restarts under one load; prints what wrk counted.
restart() {
  local name=$1 old status n wrk
  shift
  HTTP_AT='' RESP_AT='' start "$name" --config "$E2E/limits.toml" --reuse-port
  HTTP_AT=127.0.0.1:$HTTP RESP_AT=127.0.0.1:$RESP
  wrk -t1 -c16 -d7s -s "$E2E/load.lua" "http://$HTTP_AT" -- "$@" > "$WORK/wrk.$name" &
  wrk=$!
  for n in 1 2 3; do
    sleep 0.7
    old=$PID
    start "$name$n" --config "$E2E/limits.toml" --reuse-port
    sleep 0.3
    status=0
    end "$old" || status=$?
    same "restart, $name connections: daemon $n exits with 0" 0 "$status"
  done
  wait "$wrk"
  said=$(tail -1 "$WORK/wrk.$name")
  echo "  $name connections: $said"
}

nothing_fails='allowed=[1-9][0-9]+ denied=[0-9]+ other=0 connect=0 read=0 write=0 timeout=0 '
restart kept
like 'restart, kept connections: no request fails' "$nothing_fails" "$said"
restart new close
like 'restart, new connections: no request fails' "$nothing_fails" "$said"
