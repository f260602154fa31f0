-- Concurrency with leases: see concurrency.rs.
--
-- Numbers: limit, cost, lease in microseconds, the id of the permit.
-- State: a sorted set of places by the end of their leases, `id:1` to `id:cost`; and, so that it comes last, `newest` by
-- 2^52 and when the last place was given.
-- Answers: how many are in flight, when the first and the last of them end, and the one that has to end for the cost to
-- fit (0 where there is none).
makers.p = function()
  local rule = {}
  local NEWEST = 4503599627370496

  function rule.load(key, head, at, answer)
    local cost = tonumber(ARGV[at + 1])
    local function ends(i)
      return tonumber(redis.call('ZRANGE', key, i, i, 'WITHSCORES')[2])
    end
    local places, ended, effective = redis.call('ZCARD', key) - 1, 0, now
    if places >= 0 then
      effective = math.max(now, ends(-1) - NEWEST)
      ended = redis.call('ZCOUNT', key, '-inf', effective)
    end
    local in_flight = math.max(places - ended, 0)
    local first, last, frees = 0, 0, 0
    local needed = in_flight + cost - ARGV[at]
    if in_flight > 0 then
      first, last = ends(ended), ends(-2)
      if needed > 0 and needed <= in_flight then frees = ends(ended + needed - 1) end
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = in_flight, first, last, frees
    return {
      key = key, cost = cost, lease = tonumber(ARGV[at + 2]), id = ARGV[at + 3], effective = effective,
      fits = needed <= 0, kind = 0, group = 0, action = 0, allows = 0,
    }, at + 4
  end

  function rule.test(limit)
    return limit.fits
  end

  function rule.spend(limit)
    redis.call('ZREMRANGEBYSCORE', limit.key, '-inf', limit.effective)
    local ends = limit.effective + limit.lease
    -- In parts: a command takes only so many.
    for first = 1, limit.cost, 500 do
      local places = {}
      for i = first, math.min(first + 499, limit.cost) do
        places[#places + 1] = ends
        places[#places + 1] = limit.id .. ':' .. i
      end
      redis.call('ZADD', limit.key, unpack(places))
    end
    redis.call('ZADD', limit.key, NEWEST + limit.effective, 'newest')
    -- Leases that were longer may end after this one.
    local last = tonumber(redis.call('ZRANGE', limit.key, -2, -2, 'WITHSCORES')[2])
    redis.call('PEXPIRE', limit.key, millis(last - now))
  end

  return rule
end
