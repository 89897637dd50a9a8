#!/usr/bin/env bash
# curl: every call of the HTTP door, its header styles, its problems; and HTTP/2 unasked.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

at=127.0.0.1:$HTTP
problem='application/problem\+json'
wait_us='(5[0-9]|60)[0-9]{6}' # A minute, or a little less.

# post PATH BODY [OPTION...]: the status, the content type and the body, on one line.
post() { get "$1" -X POST --data-binary "$2" "${@:3}"; }
get() {
  curl -sS --max-time 10 -w '\n%{http_code} %{content_type}' "${@:2}" "$at$1" \
    | awk '{ lines[NR] = $0 } END { print lines[NR]; for (n = 1; n < NR; n++) print lines[n] }' \
    | paste -sd ' ' - \
    | sed 's/ *$//'
}
# fields PATH BODY: the header fields about limits, sorted, on one line.
fields() {
  curl -sS -o /dev/null -D - -X POST --data-binary "$2" "$at$1" | tr -d '\r' \
    | grep -iE 'rate-?limit|retry-after' | tr '[:upper:]' '[:lower:]' | sort | paste -sd ' ' -
}
tenant() { printf '{"entries":{"tenant":"%s"}%s}' "$1" "${2:-}"; }
json() { printf '200 application/json \\{%s\\}' "$1"; }

# Decisions.
reset_us="\"reset_us\":$wait_us"
like check "$(json "\"allowed\":true,\"limit\":\"api\",\"burst\":20,\"remaining\":19,$reset_us")" \
  "$(post /v1/check "$(tenant curl)")"
like 'check at a cost' \
  "$(json '"allowed":true,"limit":"api","burst":20,"remaining":0,"reset_us":1[0-9]{9}')" \
  "$(post /v1/check "$(tenant curl ',"cost":19')")"
denial="\"allowed\":false,\"reason\":\"over_limit\",\"limit\":\"api\",\"burst\":20,\"remaining\":0"
denial+=",\"retry_us\":$wait_us,\"reset_us\":1[0-9]{9}"
quota='"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"'
quota+=',"title":"Over the limit"'
like 'check denied' \
  "429 $problem \\{$quota,\"status\":429,\"violated-policies\":\\[\"api\"\\],$denial\\}" \
  "$(post /v1/check "$(tenant curl)")"
like 'check never fits' "413 $problem .*\"reason\":\"cost_exceeds_burst\".*\"never\":true.*" \
  "$(post /v1/check "$(tenant curl ',"cost":21')")"
like 'check at rate zero' "429 $problem .*\"burst\":0,.*\"never\":true.*" \
  "$(post /v1/check "$(tenant closed)")"
post /v1/check "$(tenant closing ',"cost":5')" > /dev/null
like 'check at rate zero when a burst is used up' \
  "429 $problem .*\"burst\":5,\"remaining\":0,\"never\":true\\}" \
  "$(post /v1/check "$(tenant closing)")"
like 'check unlimited' "$(json '"allowed":true')" "$(post /v1/check "$(tenant open)")"
like 'check in a domain without limits' "$(json '"allowed":true')" \
  "$(post /v1/check '{"domain":"none","entries":{}}')"
like 'check of descriptors' "$(json '"allowed":true,"limit":"api","burst":20,"remaining":17,.*')" \
  "$(post /v1/check "{\"descriptors\":[$(tenant d1 ',"cost":3'),$(tenant d2)]}")"
login='{"entries":{"tenant":"shadow","route":"login","user":"u"}}'
like 'a shadow passes' "$(json '"allowed":true,.*')" "$(post /v1/check "$login")"
like 'a shadow tells what it would deny' "$(json '"allowed":true,.*,"shadow_denied_by":"login"')" \
  "$(post /v1/check "$login")"
like peek "$(json "$denial")" "$(post /v1/peek "$(tenant curl)")"
like refund "$(json '"allowed":true,"limit":"api","burst":20,"remaining":5,.*')" \
  "$(post /v1/refund "$(tenant curl ',"cost":5')")"
like reset "$(json '"allowed":true,"limit":"api","burst":20,"remaining":20,"reset_us":0')" \
  "$(post /v1/reset "$(tenant curl)")"
like explain \
  "$(json '"decision":\{"allowed":true.*"limits":\[.*"why":"the request has no entry \\"route\\"".*\]')" \
  "$(post /v1/explain "$(tenant curl)")"

# Batches.
like batch \
  "$(json '"results":\[\{"allowed":true.*"remaining":19.*\},\{"allowed":true.*"remaining":17.*\}\]')" \
  "$(post /v1/check "{\"requests\":[$(tenant batch),$(tenant batch ',"cost":2')]}")"
like 'batch with a wrong item' \
  "$(json '"results":\[\{"error":\{.*"status":400.*\}\},\{"allowed":true.*\}\]')" \
  "$(post /v1/check "{\"requests\":[7,$(tenant batch)]}")"
batch() { for ((n = 1; n < $1; n++)); do printf '%s,' "$(tenant thousand)"; done; tenant thousand; }
printf '{"requests":[%s]}' "$(batch 1000)" > "$WORK/batch.json"
same 'batch of 1000' '20 980' "$(post /v1/check "@$WORK/batch.json" \
  | grep -oE '"allowed":(true|false)' | sort -r | uniq -c | awk '{ print $1 }' | paste -sd ' ' -)"
printf '{"requests":[%s]}' "$(batch 1001)" > "$WORK/batch.json"
like 'batch of 1001' "400 $problem .*at most 1000 items.*" "$(post /v1/check "@$WORK/batch.json")"
same 'empty batch' '200 application/json {"results":[]}' "$(post /v1/check '{"requests":[]}')"

# Header fields. Nothing that is asked here is spent before the last.
seconds='(59|60)'
peeked=$(tenant styles ',"cost":0')
post /v1/check "$(tenant styles)" > /dev/null
like 'headers=ietf' "ratelimit-policy: \"api\";q=20;w=1200 ratelimit: \"api\";r=19;t=$seconds" \
  "$(fields '/v1/check?headers=ietf' "$peeked")"
same 'headers=ietf is the default' "$(fields '/v1/check?headers=ietf' "$peeked" | sed 's/t=.*//')" \
  "$(fields /v1/check "$peeked" | sed 's/t=.*//')"
three='limit: 20, 20;w=1200 RATELIMIT-remaining: 19 RATELIMIT-reset: '
like 'headers=draft03' "ratelimit-${three//RATELIMIT/ratelimit}$seconds" \
  "$(fields '/v1/check?headers=draft03' "$peeked")"
like 'headers=x-draft03' "x-ratelimit-${three//RATELIMIT/x-ratelimit}$seconds" \
  "$(fields '/v1/check?headers=x-draft03' "$peeked")"
github='x-ratelimit-limit: 20 x-ratelimit-remaining: 19 x-ratelimit-reset: [0-9]{10}'
like 'headers=github' "$github x-ratelimit-resource: api x-ratelimit-used: 1" \
  "$(fields '/v1/check?headers=github' "$peeked")"
same 'headers=none' '' "$(fields '/v1/check?headers=none' "$peeked")"
like 'headers=other' "400 $problem .*must be one of.*" "$(post '/v1/check?headers=other' "$peeked")"
like 'another query' "400 $problem .*the only query.*" "$(post '/v1/check?a=b' "$peeked")"
post /v1/check "$(tenant styles ',"cost":19')" > /dev/null
like 'a denial tells when to retry' \
  "ratelimit-policy: .* ratelimit: \"api\";r=0;t=$seconds retry-after: $seconds" \
  "$(fields /v1/check "$(tenant styles)")"
like 'with headers=none too' "retry-after: $seconds" \
  "$(fields '/v1/check?headers=none' "$(tenant styles)")"
same 'what never passes has no time to retry' '' \
  "$(fields '/v1/check?headers=none' "$(tenant styles ',"cost":21')")"

# Reservations.
reserve() { post /v1/reserve "$(tenant reserve ",\"cost\":$1")"; }
id_of() { sed 's/.*"reservation":"\([^"]*\)".*/\1/'; }
id='[0-9a-f]{8}-[0-9a-f]{16}'
reserved=$(reserve 10)
like reserve \
  "$(json "\"allowed\":true,.*\"remaining\":10,.*\"reservation\":\"$id\",\"expires_ms\":(5[0-9]{4}|60000)")" \
  "$reserved"
settle="{\"reservation\":\"$(id_of <<< "$reserved")\",\"used\":4}"
like settle "$(json "\"reservation\":\"$id\",\"state\":\"settled\",\"repeated\":false")" \
  "$(post /v1/settle "$settle")"
like 'settle again' "$(json '.*"repeated":true')" "$(post /v1/settle "$settle")"
like 'settle at something else' "409 $problem .*already-corrected.*" \
  "$(post /v1/settle "${settle/:4/:5}")"
like 'what was not used is back' "$(json '.*"remaining":16,"reset_us":2[0-9]{8}')" \
  "$(post /v1/peek "$(tenant reserve ',"cost":0')")"
cancel="{\"reservation\":\"$(reserve 5 | id_of)\"}"
like cancel "$(json '.*"state":"cancelled","repeated":false')" "$(post /v1/cancel "$cancel")"
like 'an unknown reservation' "410 $problem .*unknown-reservation.*" \
  "$(post /v1/cancel "$(sed -E 's/-[0-9a-f]{16}/-0000000000000000/' <<< "$cancel")")"
like 'a reservation of another process' "421 $problem .*other-node.*" \
  "$(post /v1/cancel '{"reservation":"00000000-0000000000000000"}')"
like 'no reservation' "400 $problem .*" "$(post /v1/cancel '{"reservation":"x"}')"
like 'too many costs' "400 $problem .*used: 2 costs.*" \
  "$(post /v1/settle "{\"reservation\":\"$(reserve 1 | id_of)\",\"used\":[1,2]}")"
like 'reserve denied' "429 $problem .*" "$(reserve 20)"
like 'reserve never fits' "413 $problem .*" "$(reserve 21)"

# What people and their tools look at.
like key \
  "$(json '"burst":20,"key":\{"tenant":"batch"\},"limit":"api","remaining":16,"reset_us":2[0-9]{8}')" \
  "$(post /v1/key '{"limit":"api","key":{"tenant":"batch"}}')"
like 'no such limit' "404 $problem .*unknown-limit.*" "$(post /v1/key '{"limit":"x"}')"
like 'no such part of a key' "400 $problem .*no part of the limit's key.*" \
  "$(post /v1/key '{"limit":"api","key":{"user":"u"}}')"
like limits "$(json '.*"valid":true.*"limits":\[.*"name":"api".*\].*')" "$(get /v1/limits)"
like offenders "$(json '"offenders":\[.*"key":\{"tenant":"thousand"\}.*\]')" "$(get /v1/offenders)"
same healthz '200 text/plain; charset=utf-8 ok' "$(get /healthz)"
same readyz '200 text/plain; charset=utf-8 ready' "$(get /readyz)"
like index '200 text/plain; charset=utf-8 tollgate: .*' "$(get /)"
like openapi.json '200 application/json \{.*"openapi": "3\.1\.0".*' "$(get /openapi.json)"
same 'HEAD has no body' '200 text/plain; charset=utf-8' "$(get /healthz --head -o /dev/null)"

# Problems.
invalid="400 $problem \\{\"type\":\"urn:tollgate:problem:invalid-request\",.*\"detail\":"
like 'no body' "$invalid.*" "$(post /v1/check '')"
like 'no JSON' "$invalid.*line 1 column 1.*" "$(post /v1/check '{')"
like 'nothing asked' "$invalid\"entries \\(or descriptors\\) are needed\"\\}" \
  "$(post /v1/check '{}')"
like 'an unknown member' "$invalid\"unknown field \`costs\`.*" \
  "$(post /v1/check '{"entries":{},"costs":1}')"
like 'a list for an object' "$invalid.*expected an object.*" "$(post /v1/check '[]')"
like 'a name twice' "$invalid\"entry 1 repeats an earlier name\"\\}" \
  "$(post /v1/check '{"entries":{"a":"1","a":"2"}}')"
like 'no such path' "404 $problem .*\"about:blank\".*" "$(get /v2/check)"
like 'POST only' "405 $problem .*allowed: POST\"\\}" "$(get /v1/check)"
like 'GET only' "405 $problem .*allowed: GET, HEAD\"\\}" "$(post /v1/limits '')"
same 'Allow' 'allow: POST' \
  "$(curl -sS -D - -o /dev/null "$at/v1/check" | tr -d '\r' | grep -i '^allow')"
head -c 2097153 /dev/zero > "$WORK/large"
like 'a large body' "413 $problem .*body-too-large.*" "$(post /v1/check "@$WORK/large")"
like 'a large head' '431.*' "$(get /healthz -H "X-Large: $(head -c 17000 /dev/zero | tr '\0' x)")"

# HTTP/2 without being asked first.
two() { curl -sS --http2-prior-knowledge -o "$WORK/two" -w '%{http_version} %{http_code}' "$@"; }
same 'HTTP/2' '2 200' "$(two "$at/healthz")"
same 'HTTP/2 check' '2 200' "$(two -d "$(tenant two)" "$at/v1/check")"
same 'HTTP/2 denied' '2 413' "$(two -d "$(tenant two ',"cost":21')" "$at/v1/check")"
