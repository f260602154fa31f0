-- Requests that were made before the clock starts, so that the client has little to do. FORM says what they are.
local form = os.getenv("FORM")
local function one(key)
  if form == "throttlecrab" then
    return string.format('{"key":"user:%d","max_burst":100,"count_per_period":1000,"period":60}', key)
  end
  return string.format('{"attributes":{"tenant":"t%d","user":"u%d","path":"/api/trips"}}', key % 1000, key)
end

local requests, count, next = {}, 20000, 0

function init()
  math.randomseed(7)
  local path = form == "throttlecrab" and "/throttle" or "/v1/check"
  local headers = { ["Content-Type"] = "application/json" }
  for i = 1, count do
    local body
    if form == "array" then
      local checks = {}
      for j = 1, 16 do checks[j] = one(math.random(1, 1000000)) end
      body = "[" .. table.concat(checks, ",") .. "]"
    else
      body = one(math.random(1, 1000000))
    end
    requests[i] = wrk.format("POST", path, headers, body)
  end
end

function request()
  next = next % count + 1
  return requests[next]
end

function done(summary, latency)
  io.write(string.format("RESULT %d %d %.0f %.0f %d\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), summary.errors.status + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
