#!/usr/bin/env bash
# A daemon that asks for a secret: who does not show it is told so, in each door's words.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

echo 'open sesame' > "$WORK/secret"
start auth --config "$E2E/limits.toml" --secret-file "$WORK/secret"
check='{"entries":{}}'
status() { curl -sS -o "$WORK/auth.body" -w '%{http_code}' "$@"; }
at=127.0.0.1:$HTTP

same 'secret: curl without it' 401 "$(status "$at/v1/check" -d "$check")"
like 'secret: the problem' '\{"type":"about:blank","title":"Unauthorized","status":401,.*' \
  "$(cat "$WORK/auth.body")"
like 'secret: what is asked for' 'www-authenticate: Bearer' \
  "$(curl -sS -D - -o /dev/null "$at/v1/limits" | tr -d '\r' | grep -i '^www')"
same 'secret: curl with it' 200 \
  "$(status "$at/v1/check" -d "$check" -H 'Authorization: Bearer open sesame')"
same 'secret: a scheme has no case' 200 \
  "$(status "$at/metrics" -H 'Authorization: bearer open sesame')"
same 'secret: a wrong one' 401 "$(status "$at/metrics" -H 'Authorization: Bearer open')"
same 'secret: health needs none' 200 "$(status "$at/healthz")"
same 'secret: the description needs none' 200 "$(status "$at/openapi.json")"

cli() { redis-cli -p "$RESP" --no-auth-warning "$@"; }
throttle=(CL.THROTTLE k 0 1 60 0)
zero='0 1 1 -1 0'
line() { paste -sd ' ' -; }
same 'secret: redis-cli without it' 'NOAUTH Authentication required.' "$(cli "${throttle[@]}")"
same 'secret: redis-cli with it' "$zero" "$(cli -a 'open sesame' "${throttle[@]}" | line)"
same 'secret: redis-cli -3 with it' "$zero" "$(cli -3 -a 'open sesame' "${throttle[@]}" | line)"
same 'secret: redis-cli as default' "$zero" \
  "$(cli --user default -a 'open sesame' "${throttle[@]}" | line)"
like 'secret: redis-cli with a wrong one' '.*WRONGPASS.*NOAUTH.*' \
  "$(cli -a sesame "${throttle[@]}" 2>&1 | line)"
like 'secret: redis-benchmark with it' '.*requests per second.*' \
  "$(redis-benchmark -p "$RESP" -a 'open sesame' -3 -n 1000 -q PING 2>&1 \
    | tr '\r' '\n' | tail -2 | line)"
python() {
  local ping="import redis; print(redis.Redis(port=$RESP, $1).ping())"
  "$TOOLS/python/bin/python" -c "$ping" 2>&1 | tail -1
}
same 'secret: redis-py with it' True "$(python "password='open sesame'")"
like 'secret: redis-py without it' 'redis.exceptions.AuthenticationError: .*' "$(python 'db=0')"
