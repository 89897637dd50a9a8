# What the shell parts share: one line for each check, and daemons that end with the part.
# shellcheck shell=bash

# check NAME COMMAND...: prints that it holds, or what the command said.
check() {
  local name=$1 said
  shift
  if said=$("$@" 2>&1); then
    echo "ok $name"
  else
    echo "FAILED $name"
    echo "  ${said//$'\n'/$'\n'  }"
  fi
}

# same NAME WANTED GOT
same() {
  if [ "$2" = "$3" ]; then
    echo "ok $1"
  else
    echo "FAILED $1"
    printf '  wanted: %s\n  got:    %s\n' "$2" "$3"
  fi
}

# like NAME PATTERN GOT: the whole of it is like the extended regular expression.
like() {
  if [[ $3 =~ ^($2)$ ]]; then
    echo "ok $1"
  else
    echo "FAILED $1"
    printf '  wanted: %s\n  got:    %s\n' "$2" "$3"
  fi
}

# start NAME OPTION...: starts a daemon; sets PID, HTTP, RESP and GRPC (its ports). HTTP_AT, RESP_AT
# and GRPC_AT say where it is to listen, if not at free ports.
start() {
  local log=$WORK/$1.log tries
  shift
  : > "$log"
  "$TOLLGATE_BIN" serve --http "${HTTP_AT:-127.0.0.1:0}" --resp "${RESP_AT:-127.0.0.1:0}" \
    --grpc "${GRPC_AT:-127.0.0.1:0}" "$@" > /dev/null 2> "$log" &
  PID=$!
  STARTED+=("$PID")
  for ((tries = 0; tries < 200; tries++)); do
    HTTP=$(port http "$log")
    RESP=$(port resp "$log")
    GRPC=$(port grpc "$log")
    [ -n "$HTTP" ] && [ -n "$RESP" ] && [ -n "$GRPC" ] && return
    kill -0 "$PID" 2> /dev/null || break
    sleep 0.05
  done
  echo "FAILED the daemon does not listen"
  sed 's/^/  /' "$log"
  exit 1
}
port() { sed -n "s/.*listening face=\"$1\" address=.*:\([0-9]*\)$/\1/p" "$2" | head -1; }

# end PID: asks a daemon of ours to end, and returns what it exits with.
end() {
  local status=0
  kill -TERM "$1"
  wait "$1" || status=$?
  return "$status"
}

STARTED=()
stop_all() {
  local pid
  for pid in "${STARTED[@]}"; do
    kill -KILL "$pid" 2> /dev/null || true
  done
}
trap stop_all EXIT

# The value of one metric of the daemon at port $HTTP: metric 'name{labels}'
metric() {
  curl -sS "127.0.0.1:$HTTP/metrics" \
    | awk -v start="$1 " 'index($0, start) == 1 { print substr($0, length(start) + 1) }'
}
