-- Sliding window, counted: see sliding_counter.rs.
--
-- Time is counted in pieces of 1/N us, so that a sub-window of W/N us has exactly W pieces.
-- Head: the mode (i, s, l). Numbers: tag, limit, cost, window in microseconds, sub-windows.
-- State: `newest count count… tag`: sub-window i is at i mod (N + 1). Answers: newest, the counts.
makers.s = function()
  local rule = {}

  function rule.load(key, head, at, answer)
    local tag, window, buckets = ARGV[at], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
    local numbers, other, is_held, keeps = load_text(key, tag)
    if other then return nil, other end
    local ring, newest, slots = {}, 0, buckets + 1
    if numbers then
      local i = -1
      for count in string.gmatch(numbers, '%d+') do
        if i < 0 then newest = tonumber(count) else ring[i] = tonumber(count) end
        i = i + 1
      end
      if i ~= slots then return nil, numbers .. ' ' .. tag end
    else
      for i = 0, buckets do ring[i] = 0 end
    end
    local n = #answer
    answer[n + 1] = newest
    for i = 0, buckets do answer[n + 2 + i] = ring[i] end
    -- Where now is: the sub-window, and how far into it. The window first, or the product would not be exact.
    local since = math.fmod(now, window)
    local pieces = since * buckets
    local into = math.fmod(pieces, window)
    local stamped = (now - since) / window * buckets + (pieces - into) / window
    local index = stamped
    if index < newest then index, into = newest, 0 end
    -- The slots after the newest hold the oldest: first those that have left since.
    local passed, old, full = index - newest, 0, 0
    if passed <= buckets then
      for i = passed + 2, slots do full = full + ring[math.fmod(newest + i, slots)] end
      old = ring[math.fmod(newest + passed + 1, slots)]
    end
    return {
      key = key, tag = tag, limit = tonumber(ARGV[at + 1]), cost = tonumber(ARGV[at + 2]), window = window,
      buckets = buckets, mode = string.sub(head, 4, 4), ring = ring, newest = newest, stamped = stamped, index = index,
      into = into, old = old, full = full, is_held = is_held, keeps = keeps, kind = 0, group = 0, action = 0, allows = 0,
    }, at + 5
  end

  function rule.is_used(limit)
    return limit.full > 0 or (limit.mode ~= 'l' and limit.old > 0)
  end

  function rule.test(limit)
    local left = limit.limit - limit.full - limit.cost
    if left < 0 then return false end
    if limit.mode == 's' then return limit.old <= left end
    if limit.mode == 'l' or limit.old <= left then return true end
    return not_above(limit.old, limit.window - limit.into, left, limit.window)
  end

  local function save_counts(limit, is_same)
    local texts = {}
    for i = 0, limit.buckets do texts[i + 1] = string.format('%d', limit.ring[i]) end
    local state = string.format('%d %s %s', limit.newest, table.concat(texts, ' '), limit.tag)
    if is_same then
      redis.call('SET', limit.key, state, 'KEEPTTL')
      return
    end
    -- Forgotten when the newest sub-window is: the pieces until then, by N.
    local lasts = limit.mode == 'l' and limit.buckets or limit.buckets + 1
    local sub_windows = limit.newest + lasts
    local whole = math.fmod(sub_windows, limit.buckets)
    local until_then = (sub_windows - whole) / limit.buckets * limit.window + whole * limit.window / limit.buckets - now
    redis.call('SET', limit.key, state, 'PX', millis(math.ceil(until_then)))
  end

  -- Writes the state as it was read. Only counts that have not been forgotten deny.
  function rule.keep(limit)
    save_counts(limit)
  end

  function rule.spend(limit)
    local slots = limit.buckets + 1
    local passed = math.min(limit.index - limit.newest, slots)
    for i = limit.index - passed + 1, limit.index do limit.ring[math.fmod(i, slots)] = 0 end
    local slot = math.fmod(limit.index, slots)
    -- What was counted in the same sub-window has said when the key expires.
    local is_same = limit.is_held and limit.newest == limit.index and limit.ring[slot] > 0
    limit.newest = limit.index
    limit.ring[slot] = limit.ring[slot] + limit.cost
    save_counts(limit, is_same)
  end

  -- As many as can be counted.
  function rule.spend_in_full(limit)
    limit.cost = math.min(limit.cost, 4503599627370495 - limit.old - limit.full)
    rule.spend(limit)
  end

  -- What was charged now is in the sub-window that the clock shows, also if that has stepped back.
  function rule.refund(limit)
    local lasts = limit.mode == 'l' and limit.buckets or limit.buckets + 1
    local back = limit.newest - limit.stamped
    if limit.index - limit.stamped >= lasts or back < 0 or back > limit.buckets then return end
    local slot = math.fmod(limit.stamped, limit.buckets + 1)
    local given = math.min(limit.ring[slot], limit.cost)
    if given == 0 then return end
    limit.ring[slot] = limit.ring[slot] - given
    for i = 0, limit.buckets do
      if limit.ring[i] > 0 then return save_counts(limit) end
    end
    redis.call('DEL', limit.key)
  end

  return rule
end
