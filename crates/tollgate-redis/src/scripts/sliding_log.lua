-- Sliding window, exact: see sliding_log.rs.
--
-- Numbers: tag, limit, cost, window in microseconds.
-- State: a list: the tag, then when each unit came, oldest first. Some may have left; they go with the next charge.
-- Answers: how many count, the newest, the oldest that counts, and the one that has to leave for the cost to fit (0 where
-- there is none).
makers.w = function()
  local rule = {}

  function rule.read(limit, next_argument, next_number)
    limit.tag, limit.limit, limit.cost, limit.window = next_argument(), next_number(), next_number(), next_number()
  end

  function rule.load(limit, answer)
    local function entry(i)
      return tonumber(redis.call('LINDEX', limit.key, i))
    end
    local len = redis.call('LLEN', limit.key) - 1
    limit.len, limit.left, limit.effective = math.max(len, 0), 0, now
    local newest, oldest, last = 0, 0, 0
    if len >= 0 then
      if redis.call('LINDEX', limit.key, 0) ~= limit.tag then
        return table.concat(redis.call('LRANGE', limit.key, 0, -1), ' ')
      end
      newest = entry(-1)
      limit.effective = math.max(now, newest)
      oldest = entry(1)
      -- How many no longer count: most often none, else by a binary search, since they are in order.
      local low, high = 0, 0
      if limit.effective - oldest >= limit.window then low, high = 1, len end
      while low < high do
        local middle = math.ceil((low + high) / 2)
        if limit.effective - entry(middle) >= limit.window then low = middle else high = middle - 1 end
      end
      limit.left = low
      if low > 0 and low < len then oldest = entry(low + 1) end
    end
    limit.counted = limit.len - limit.left
    if limit.counted == 0 then newest, oldest = 0, 0 end
    local needed = limit.counted + limit.cost - limit.limit
    if needed > 0 and needed <= limit.counted then last = entry(limit.left + needed) end
    limit.fits = needed <= 0
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = limit.counted, newest, oldest, last
  end

  function rule.test(limit)
    return limit.fits
  end

  function rule.spend(limit)
    if limit.counted == 0 then
      redis.call('DEL', limit.key)
      redis.call('RPUSH', limit.key, limit.tag)
    elseif limit.left > 0 then
      -- The tag goes where the last of those stands that have left.
      redis.call('LTRIM', limit.key, limit.left, -1)
      redis.call('LSET', limit.key, 0, limit.tag)
    end
    local time = string.format('%d', limit.effective)
    local units = {}
    for i = 1, math.min(limit.cost, 1000) do units[i] = time end
    for first = 1, limit.cost, 1000 do
      redis.call('RPUSH', limit.key, unpack(units, 1, math.min(1000, limit.cost - first + 1)))
    end
    redis.call('PEXPIRE', limit.key, millis(limit.effective - now + limit.window))
  end

  return rule
end
