#!/usr/bin/env bash
# redis-cli over RESP2 and RESP3: what redis-cell answers (its golden replies), what clients say
# when they connect, and errors to the letter.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

# Replies as redis-cli prints them when nobody looks, each on one line: numbers with blanks between.
cli() { redis-cli -p "$RESP" "$@"; }
line() { tr '\n' ' ' | sed 's/ $//'; }

# Commands from stdin, as one process says them: the replies, each array on one line.
batch() { cli "$@" | paste -sd ' ' -; }

times() { for ((n = 0; n < $1; n++)); do echo "$2"; done; }

# One instant for redis-cell is a moment here: each batch is one process, and its answers hold for
# most of a second.
all() {
  local r=("$@") name="redis-cli${*:+ $*}" key="cli$*" wanted='' n
  for ((n = 1; n <= 16; n++)); do wanted+="0 16 $((16 - n)) -1 $((2 * n)) "; done
  same "$name user123 15 30 60" "${wanted}1 16 0 2 32" \
    "$(times 17 "CL.THROTTLE \"user123$key\" 15 30 60" | batch "${r[@]}")"
  same "$name k 0 1 2" '0 1 0 -1 2 1 1 0 2 2' \
    "$(times 2 "cl.throttle \"k$key\" 0 1 2" | batch "${r[@]}")"
  same "$name n 4 1 1, then back" '0 5 4 -1 1 0 5 5 -1 0' \
    "$(printf "CL.THROTTLE \"n$key\" 4 1 1 %d\n" 1 -1 | batch "${r[@]}")"
  same "$name v 4 1 1 6, then one by one" \
    '1 5 5 -1 0 0 5 4 -1 1 0 5 3 -1 2 0 5 2 -1 3 0 5 1 -1 4 0 5 0 -1 5 1 5 0 1 5 1 5 0 1 5' \
    "$(printf "CL.THROTTLE \"v$key\" 4 1 1 %d\n" 6 1 1 1 1 1 1 1 | batch "${r[@]}")"
  same "$name a fast rate" '0 10 9 -1 1' "$(cli "${r[@]}" CL.THROTTLE "f$key" 9 1000 1 | line)"
  same "$name nothing is spent at 0" '0 5 5 -1 0 0 5 5 -1 0' \
    "$(times 2 "CL.THROTTLE \"zero$key\" 4 1 60 0" | batch "${r[@]}")"

  same "$name PING" PONG "$(cli "${r[@]}" PING)"
  same "$name PING with a word" hi "$(cli "${r[@]}" PING hi)"
  same "$name ECHO" 'a b' "$(cli "${r[@]}" ECHO 'a b')"
  same "$name COMMAND" '' "$(cli "${r[@]}" COMMAND | line)"
  same "$name COMMAND DOCS" '' "$(cli "${r[@]}" COMMAND DOCS | line)"
  same "$name COMMAND COUNT" 16 "$(cli "${r[@]}" COMMAND COUNT)"
  same "$name SELECT 0" OK "$(cli "${r[@]}" SELECT 0)"
  same "$name CONFIG GET" 'save  ' "$(cli "${r[@]}" CONFIG GET save | tr '\n' ' ')"
  same "$name CLIENT SETINFO" OK "$(cli "${r[@]}" CLIENT SETINFO LIB-NAME e2e)"
  same "$name QUIT" OK "$(cli "${r[@]}" QUIT)"
  like "$name INFO" '# Server redis_version:7\.0\.15 tollgate_version:.*limits_revision:.*' \
    "$(cli "${r[@]}" INFO | tr -d '\r' | line)"
  like "$name DBSIZE" '[0-9]+' "$(cli "${r[@]}" DBSIZE)"

  # Several commands on stdin; what begins with "COMMAND DOCS" there is redis-cli's own.
  same "$name from stdin" 'PONG two 0 1 0 -1 60' \
    "$(printf 'PING\nECHO two\nCL.THROTTLE "stdin%s" 0 1 60\n' "$key" | batch "${r[@]}")"

  local cell='Cell error: Store error:'
  local usage="$cell Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
  fails() { same "$name error: $1" "$2" "$(cli "${r[@]}" "${@:3}")"; }
  fails 'no words' "$usage" CL.THROTTLE
  fails 'four words' "$usage" CL.THROTTLE k 1 1
  fails 'seven words' "$usage" CL.THROTTLE k 1 1 1 1 1
  fails 'no number' "$cell Couldn't parse as integer: abc" CL.THROTTLE k abc 1 1
  fails 'a fraction' "$cell Couldn't parse as integer: 1.5" CL.THROTTLE k 1 1 1 1.5
  fails 'too large' "$cell Couldn't parse as integer: 9223372036854775808" \
    CL.THROTTLE k 9223372036854775808 1 1
  fails 'count 0' "$cell Zero rates are not supported" CL.THROTTLE k 1 0 1
  fails 'period 0' "$cell Zero rates are not supported" CL.THROTTLE k 1 1 0
  fails 'unknown command' "ERR unknown command 'FOO', with args beginning with: 'u' '15' " FOO u 15
  fails 'PING with two' "ERR wrong number of arguments for 'ping' command" PING a b
  fails 'a database' 'ERR DB index is out of range' SELECT 1
  fails 'a protocol' 'NOPROTO unsupported protocol version' HELLO 4
  fails 'no protocol' 'ERR Protocol version is not an integer or out of range' HELLO x
  fails 'an option' "ERR Syntax error in HELLO option 'X'" HELLO 3 X
  fails 'a subcommand' "ERR unknown subcommand 'KILL'. Try CLIENT HELP." CLIENT KILL
}

all
all -3

like 'redis-cli HELLO' \
  'server redis version 7\.0\.15 proto 2 id [0-9]+ mode standalone role master modules *' \
  "$(cli HELLO | line)"
like 'redis-cli -3 HELLO is a map' '1# "server" => "redis".*3# "proto" => \(integer\) 3.*' \
  "$(cli -3 --no-raw HELLO | line)"
