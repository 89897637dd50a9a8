-- What wrk sends: bodies made before the run by `body(i)`, which the harness writes above this
-- line, and drawn at random. At the end, wrk prints one line for the harness: requests,
-- microseconds, errors.

local requests = {}

function init()
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  for i = 1, count do
    requests[i] = wrk.format(nil, nil, nil, body(i))
  end
end

function request()
  return requests[math.random(count)]
end

function done(summary)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format("\ndone %d %d %d\n", summary.requests, summary.duration, errors))
end
