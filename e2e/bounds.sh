#!/usr/bin/env bash
# What happens at the daemon's bounds, seen by curl and redis-cli: slow bodies, a full table of
# keys, too many connections.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

start bounds --config "$E2E/limits.toml" --request-seconds 1 --idle-seconds 2 --keys-max 64 \
  --table-full deny --connections-max 4 --threads 1
at=127.0.0.1:$HTTP

status() { curl -sS --max-time 10 -o /dev/null -w '%{http_code}' "$@"; }

same 'bounds: a body that does not come' 408 \
  "$(status -H 'Content-Length: 100' -d x "$at/v1/check")"

# More keys than have a place are denied, and told so as a reduced capacity.
for ((n = 0; n < 200; n++)); do
  printf 'next\nwrite-out = "%%{http_code}\\n"\nurl = "http://%s/v1/check"\n' "$at"
  printf 'data = "{\\"entries\\":{\\"tenant\\":\\"%s\\"}}"\n' "$n"
  printf 'output = "%s"\n' "$WORK/bounds.body"
done > "$WORK/bounds.curl"
statuses=$(curl -sS -K "$WORK/bounds.curl" | sort | uniq -c | awk '{ print $2 }' | paste -sd ' ' -)
same 'bounds: the table of keys is full' '200 503' "$statuses"
like 'bounds: a full table is a problem' \
  '.*#temporary-reduced-capacity".*"status":503.*"reason":"key_table_full".*"retry_us":[0-9]+.*' \
  "$(cat "$WORK/bounds.body")"

# Connections that ask nothing take all places; each door has a last word for the next.
hold() { exec {fd}<> "/dev/tcp/127.0.0.1/$HTTP"; held+=("$fd"); }
held=()
for n in 1 2 3 4; do hold; done
sleep 0.2
same 'bounds: too many connections, HTTP' 503 \
  "$(status "$at/healthz")"
like 'bounds: too many connections, RESP' '.*max number of clients reached.*' \
  "$(redis-cli -p "$RESP" PING 2>&1 | paste -sd ' ' -)"
# They are ended when they have asked nothing for the time that is theirs.
sleep 3
same 'bounds: idle connections make room' 200 \
  "$(status "$at/healthz")"
for fd in "${held[@]}"; do exec {fd}>&-; done
