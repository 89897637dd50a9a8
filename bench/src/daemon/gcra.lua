-- A rate limit in Redis as it is commonly written: GCRA, one key, one EVALSHA a check.
-- KEYS[1] key; ARGV: emission interval in microseconds, burst tolerance in microseconds, cost.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local ei = tonumber(ARGV[1]); local tau = tonumber(ARGV[2]); local n = tonumber(ARGV[3])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new = tat + ei * n
local diff = now - (new - tau)
if diff < 0 then return {1, 0, -diff, tat - now} end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.ceil((new - now) / 1000))
return {0, math.floor(diff / ei), -1, new - now}
