#!/usr/bin/env bash
# wrk and redis-py while a successor takes over the same ports (--reuse-port) and the old daemon
# gets SIGTERM: no request fails on connections that are kept, next to none on new ones, and the old
# daemon exits with 0.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

# restart NAME COMMAND...: three restarts under one load; prints what it counted.
restart() {
  local name=$1 old status n load
  shift
  HTTP_AT='' RESP_AT='' start "$name" --config "$E2E/limits.toml" --reuse-port
  HTTP_AT=127.0.0.1:$HTTP RESP_AT=127.0.0.1:$RESP
  "$@" > "$WORK/load.$name" &
  load=$!
  for n in 1 2 3; do
    sleep 0.7
    old=$PID
    start "$name$n" --config "$E2E/limits.toml" --reuse-port
    sleep 0.3
    status=0
    end "$old" || status=$?
    same "restart, $name: daemon $n exits with 0" 0 "$status"
  done
  wait "$load"
  said=$(tail -1 "$WORK/load.$name")
  echo "  $name: $said"
}

kept() { wrk -t1 -c16 -d6s -s "$E2E/load.lua" "http://$HTTP_AT"; }
# A few connections may begin a second late: that is no failure.
new() { wrk -t1 -c16 -d6s --timeout 10s -s "$E2E/load.lua" "http://$HTTP_AT" -- close; }
redis_py() { RESP=${RESP_AT#*:} HTTP=0 "$TOOLS/python/bin/python" "$E2E/redis_py_load.py" 6; }
nothing_fails='allowed=[1-9][0-9]+ denied=[0-9]+ other=0 connect=0 read=0 write=0 timeout=0 longest_ms=[0-9]+ '

restart kept kept
like 'restart, kept connections: no request fails' "$nothing_fails" "$said"
restart new new
# A handshake that is under way when the listener ends is cut off: one in some hundred restarts.
failed=$(grep -oE '(other|connect|read|write|timeout)=[0-9]+' <<< "$said" \
  | awk -F= '{ n += $2 } END { print n }')
like 'restart, new connections: at most one request fails' '[01]' "$failed"
restart redis_py redis_py
like 'restart, redis-py: no request fails' 'asked=[1-9][0-9]+ failed=0' "$said"
