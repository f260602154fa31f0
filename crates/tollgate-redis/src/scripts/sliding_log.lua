-- Sliding window, exact: see sliding_log.rs.
--
-- Numbers: tag, limit, cost, window in microseconds.
-- State: a list: the tag, then when each unit came, oldest first. Some may have left; they go with the next charge.
-- Answers: how many count, the newest, the oldest that counts, and the one that has to leave for the cost to fit (0 where
-- there is none).
makers.w = function()
  local rule = {}

  function rule.load(key, head, at, answer)
    local tag, window = ARGV[at], tonumber(ARGV[at + 3])
    local cost = tonumber(ARGV[at + 2])
    local times = nil -- where they are not as they are held
    local function entry(i)
      if times then return times[i] end
      return tonumber(redis.call('LINDEX', key, i))
    end
    local len, left, effective = redis.call('LLEN', key) - 1, 0, now
    local newest, oldest, last = 0, 0, 0
    if len >= 0 and redis.call('LINDEX', key, 0) ~= tag then
      local held = table.concat(redis.call('LRANGE', key, 0, -1), ' ')
      local as = read_as(key, held)
      if not as then return nil, held end
      times, len = {}, 0
      for time in string.gmatch(as, '%d+') do
        len = len + 1
        times[len] = tonumber(time)
      end
    end
    if len > 0 then
      newest, oldest = entry(len), entry(1)
      effective = math.max(now, newest)
      -- How many no longer count: most often none, else by a binary search, since they are in order.
      local high = 0
      if effective - oldest >= window then left, high = 1, len end
      while left < high do
        local middle = math.ceil((left + high) / 2)
        if effective - entry(middle) >= window then left = middle else high = middle - 1 end
      end
      if left > 0 and left < len then oldest = entry(left + 1) end
    end
    local counted = math.max(len, 0) - left
    if counted == 0 then newest, oldest = 0, 0 end
    local needed = counted + cost - ARGV[at + 1]
    if needed > 0 and needed <= counted then last = entry(left + needed) end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = counted, newest, oldest, last
    return {
      key = key, tag = tag, cost = cost, window = window, left = left, counted = counted, effective = effective,
      fits = needed <= 0, times = times, kind = 0, group = 0, does = 0, allows = 0,
    }, at + 4
  end

  function rule.test(limit)
    return limit.fits
  end

  -- Appends texts, in parts: a command takes only so many.
  local function append(key, texts, first, last)
    for i = first, last, 1000 do redis.call('RPUSH', key, unpack(texts, i, math.min(i + 999, last))) end
  end

  function rule.spend(limit)
    if limit.counted == 0 or limit.times then
      redis.call('DEL', limit.key)
      redis.call('RPUSH', limit.key, limit.tag)
      local times = limit.times or {}
      for i = limit.left + 1, #times do times[i] = string.format('%d', times[i]) end
      append(limit.key, times, limit.left + 1, #times)
    elseif limit.left > 0 then
      -- The tag goes where the last of those stands that have left.
      redis.call('LTRIM', limit.key, limit.left, -1)
      redis.call('LSET', limit.key, 0, limit.tag)
    end
    local time = string.format('%d', limit.effective)
    local units = {}
    for i = 1, limit.cost do units[i] = time end
    append(limit.key, units, 1, limit.cost)
    redis.call('PEXPIRE', limit.key, millis(limit.effective - now + limit.window))
  end

  return rule
end
