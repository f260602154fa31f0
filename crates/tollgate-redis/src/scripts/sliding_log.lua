-- Sliding window, exact: see sliding_log.rs.
--
-- Head: k if a denial writes a log that was counted by another window. Numbers: tag, limit, cost, window in microseconds; in
-- full also the most entries that the log may have.
-- State: a list: the tag, then when each unit came, oldest first. Some may have left; they go with the next charge.
-- Answers: how many count, the newest, the oldest that counts, and the one that has to leave for the cost to fit (0 where
-- there is none).
makers.w = function()
  local rule = {}

  -- When an entry came, as it is counted now: where the window has become shorter, entries keep their place in it instead
  -- of their age. What is rounded here may be off by one, and is put right.
  local function in_window(time, effective, window, old)
    if window >= old then return time end
    local age = effective - time
    local scaled = math.floor(age * window / old)
    while not_above(scaled + 1, old, age, window) do scaled = scaled + 1 end
    while not not_above(scaled, old, age, window) do scaled = scaled - 1 end
    return effective - scaled
  end

  function rule.load(key, head, at, answer)
    local tag, window = ARGV[at], tonumber(ARGV[at + 3])
    local cost = tonumber(ARGV[at + 2])
    local len, left, effective = redis.call('LLEN', key) - 1, 0, now
    local newest, oldest, last = 0, 0, 0
    -- By which window the entries were counted so far. A list that begins with something else is nobody's.
    local old = window
    if len >= 0 then
      local held = redis.call('LINDEX', key, 0)
      if held ~= tag then
        old = tonumber(string.match(held, '^w(%d+)$'))
        if old then old = old / 1000 else old, len = window, 0 end
      end
    end
    local function entry(i)
      return in_window(tonumber(redis.call('LINDEX', key, i)), effective, window, old)
    end
    if len > 0 then
      effective = math.max(now, tonumber(redis.call('LINDEX', key, -1)))
      newest, oldest = entry(-1), entry(1)
      -- How many no longer count: most often none, else by a binary search, since they are in order.
      local high, leaves = 0, math.min(window, old)
      if effective - oldest >= leaves then left, high = 1, len end
      while left < high do
        local middle = math.ceil((left + high) / 2)
        if effective - entry(middle) >= leaves then left = middle else high = middle - 1 end
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
      key = key, tag = tag, limit = tonumber(ARGV[at + 1]), cost = cost, window = window, left = left, counted = counted, effective = effective, newest = newest,
      most = is_in_full(head) and tonumber(ARGV[at + 4]), old = old, fits = needed <= 0, keeps = old ~= window and string.sub(head, 4, 4) == 'k', kind = 0, group = 0,
      action = 0, allows = 0,
    }, is_in_full(head) and at + 5 or at + 4
  end

  function rule.is_used(limit)
    return limit.counted > 0
  end

  function rule.test(limit)
    return limit.fits
  end

  -- Appends texts, in parts: a command takes only so many.
  local function append(key, texts, first, last)
    for i = first, last, 1000 do redis.call('RPUSH', key, unpack(texts, i, math.min(i + 999, last))) end
  end

  -- Leaves those in the list that count, as they are counted by this window.
  local function trim(limit)
    local key, left = limit.key, limit.left
    local times = nil -- where they must be rewritten
    if limit.counted == 0 then
      times = {}
    elseif limit.window < limit.old then
      times = redis.call('LRANGE', key, left + 1, -1)
      for i = 1, #times do
        times[i] = string.format('%d', in_window(tonumber(times[i]), limit.effective, limit.window, limit.old))
      end
    end
    if times then
      redis.call('DEL', key)
      redis.call('RPUSH', key, limit.tag)
      append(key, times, 1, #times)
    elseif left > 0 or limit.window ~= limit.old then
      -- The tag goes where the last of those stands that have left.
      redis.call('LTRIM', key, left, -1)
      redis.call('LSET', key, 0, limit.tag)
    end
  end

  -- Writes the state as it was read. Only entries that count deny, and the newest of them is the last to leave.
  function rule.keep(limit)
    trim(limit)
    redis.call('PEXPIRE', limit.key, millis(limit.newest - now + limit.window))
  end

  function rule.spend(limit)
    trim(limit)
    local time = string.format('%d', limit.effective)
    local units = {}
    for i = 1, limit.cost do units[i] = time end
    append(limit.key, units, 1, limit.cost)
    redis.call('PEXPIRE', limit.key, millis(limit.effective - now + limit.window))
  end

  function rule.spend_in_full(limit)
    limit.cost = math.max(0, math.min(limit.cost, limit.most - limit.counted))
    rule.spend(limit)
  end

  return rule
end
