#!/usr/bin/env bash
# wrk while the policy file is rewritten, in place and by renaming, valid and invalid: no request
# fails, and what is in force at the end is the last valid file.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

policy() {
  printf '[[limit]]\nname = "load"\ndomain = "load"\nkey = ["tenant"]\n'
  printf 'rate = "%s"\nburst = %s\n' "$1" "$2"
}
policy 100/s 100 > "$WORK/policy.toml"
start reload --config "$WORK/policy.toml"

wrk -t1 -c16 -d8s -s "$E2E/load.lua" "http://127.0.0.1:$HTTP" > "$WORK/wrk.reload" &
wrk=$!
for n in 1 2 3 4; do
  sleep 0.8
  policy "${n}00/s" "${n}0" > "$WORK/policy.toml" # In place.
  sleep 0.8
  if [ $((n % 2)) = 0 ]; then
    policy never 1 > "$WORK/policy.toml.new"
  else
    policy "${n}50/s" "${n}5" > "$WORK/policy.toml.new"
  fi
  mv "$WORK/policy.toml.new" "$WORK/policy.toml"
done
wait "$wrk"
said=$(tail -1 "$WORK/wrk.reload")
like 'reload: no request fails' \
  'allowed=[1-9][0-9]+ denied=[1-9][0-9]+ other=0 connect=0 read=0 write=0 timeout=0 longest_ms=[0-9]+ ' "$said"
echo "  $said"
sleep 0.6
same 'reload: the last file is invalid' 0 "$(metric tollgate_config_valid)"
same 'reload: valid files were loaded' 7 "$(metric 'tollgate_config_loads_total{result="ok"}')"
same 'reload: invalid files were refused' 2 \
  "$(metric 'tollgate_config_loads_total{result="error"}')"
like 'reload: the one before is in force' '.*"burst":40,.*' \
  "$(curl -sS "127.0.0.1:$HTTP/v1/limits")"
status=0
end "$PID" || status=$?
same 'reload: the daemon exits with 0' 0 "$status"
