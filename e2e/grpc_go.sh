#!/usr/bin/env bash
# grpc-go with Envoy's own messages, and grpcurl, which has them by reflection.
set -euo pipefail
# shellcheck source=e2e/lib.sh
source "$E2E/lib.sh"

start grpc_aging --config "$E2E/grpc-python/limits" --age-seconds 1
export AGING_GRPC=$GRPC AGING_HTTP=$HTTP
start grpc_lasting --config "$E2E/grpc-python/limits"
export LASTING_GRPC=$GRPC LASTING_HTTP=$HTTP
"$TOOLS/grpc_go"

at=127.0.0.1:$GRPC
service=envoy.service.ratelimit.v3.RateLimitService
grpcurl() { "$TOOLS/grpcurl" -plaintext "$@" 2>&1; }
line() { paste -sd ' ' - | tr -s ' '; }
quotas=envoy.service.rate_limit_quota.v3.RateLimitQuotaService
like 'grpcurl lists the services' "$quotas $service grpc.health.v1.Health .*" "$(grpcurl "$at" list | line)"
like 'grpcurl describes the service' \
  ".*rpc ShouldRateLimit \( .envoy.service.ratelimit.v3.RateLimitRequest \) .*" \
  "$(grpcurl "$at" describe "$service" | line)"
like 'grpcurl describes a message' '.*repeated .*RateLimitDescriptor descriptors = 2;.*' \
  "$(grpcurl "$at" describe envoy.service.ratelimit.v3.RateLimitRequest | line)"
asked='{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "curl"}]}]}'
same 'grpcurl asks' '{ "overallCode": "OK", "statuses": [ { "code": "OK", "currentLimit": { '\
'"requestsPerUnit": 10, "unit": "MINUTE", "name": "user" }, "limitRemaining": 9, "durationUntilReset": '\
'"6s" } ] }' "$(grpcurl -d "$asked" "$at" "$service/ShouldRateLimit" | line)"
like 'grpcurl is told what is wrong' '.*Code: InvalidArgument Message: domain: must not be empty' \
  "$(grpcurl -d '{}' "$at" "$service/ShouldRateLimit" | line)"
same 'grpcurl asks after health' '{ "status": "SERVING" }' \
  "$(grpcurl "$at" grpc.health.v1.Health/Check | line)"
