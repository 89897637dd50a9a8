#!/usr/bin/env bash
# Schemathesis: requests made up from /openapi.json, valid and invalid, are answered as it says, and
# never with an error of the daemon's own.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

cd "$WORK" # It leaves a folder where it runs.
run() {
  "$TOOLS/python/bin/schemathesis" --config-file "$E2E/schemathesis.toml" run \
    "http://127.0.0.1:$HTTP/openapi.json" "$@"
}
check 'schemathesis: answers are as /openapi.json says' run
