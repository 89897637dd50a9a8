-- wrk: POST /v1/check for a few tenants; counts answers by what they are.
local threads = {}

function setup(thread) table.insert(threads, thread) end

function init(args)
  allowed, denied, other, seen, count = 0, 0, 0, "", 0
  wrk.method = "POST"
  if args[1] == "close" then wrk.headers["Connection"] = "close" end
end

function request()
  count = count + 1
  local body = '{"domain":"load","entries":{"tenant":"' .. count % 8 .. '"}}'
  return wrk.format(nil, "/v1/check", nil, body)
end

function response(status)
  if status == 200 then
    allowed = allowed + 1
  elseif status == 429 then
    denied = denied + 1
  else
    other, seen = other + 1, seen .. status .. " "
  end
end

function done(summary, latency)
  local sum = { allowed = 0, denied = 0, other = 0 }
  local seen = ""
  for _, thread in ipairs(threads) do
    for name in pairs(sum) do sum[name] = sum[name] + thread:get(name) end
    seen = seen .. thread:get("seen")
  end
  local e = summary.errors
  io.write(string.format("allowed=%d denied=%d other=%d ", sum.allowed, sum.denied, sum.other))
  io.write(string.format("connect=%d read=%d write=%d ", e.connect, e.read, e.write))
  io.write(string.format("timeout=%d longest_ms=%d ", e.timeout, latency.max / 1000))
  io.write(seen:sub(1, 60), "\n")
end
