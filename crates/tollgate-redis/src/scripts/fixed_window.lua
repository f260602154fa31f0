-- Fixed window: see fixed_window.rs.
--
-- Head: e if windows begin with the epoch, f if with the first request; then d if denied requests count.
-- Numbers: tag, limit, cost, window in microseconds.
-- State: `end used tag`. Answers: end, used.
makers.f = function()
  local rule = {}

  function rule.load(key, head, at, answer)
    local tag = ARGV[at]
    local numbers, other, is_held, keeps = load_text(key, tag)
    if other then return nil, other end
    local ends, held = 0, 0
    if numbers then
      ends, held = string.match(numbers, '^(%d+) (%d+)$')
      if not ends then return nil, numbers .. ' ' .. tag end
      ends, held = tonumber(ends), tonumber(held)
    end
    local n = #answer
    answer[n + 1], answer[n + 2] = ends, held
    return {
      key = key, tag = tag, limit = tonumber(ARGV[at + 1]), cost = tonumber(ARGV[at + 2]),
      window = tonumber(ARGV[at + 3]), ends = ends, held = held, used = now < ends and held or 0,
      is_aligned = string.sub(head, 4, 4) == 'e', counts_denied = string.sub(head, 5, 5) == 'd',
      is_held = is_held, keeps = keeps,
      kind = 0, group = 0, action = 0, allows = 0,
    }, at + 4
  end

  function rule.is_used(limit)
    return limit.used > 0
  end

  function rule.test(limit)
    return limit.used + limit.cost <= limit.limit
  end

  local function save(limit, used, is_same)
    local state = string.format('%d %d %s', limit.ends, used, limit.tag)
    if is_same and limit.is_held then
      redis.call('SET', limit.key, state, 'KEEPTTL')
    else
      redis.call('SET', limit.key, state, 'PX', millis(limit.ends - now))
    end
  end

  -- Writes the state as it was read. Only a window that has not ended denies.
  function rule.keep(limit)
    save(limit, limit.used, false)
  end

  function rule.spend(limit)
    -- What was used up in the same window has said when the key expires.
    local used, is_same = limit.used, limit.used > 0
    if now >= limit.ends then
      local elapsed = limit.is_aligned and math.fmod(now, limit.window) or 0
      limit.ends, used = now + limit.window - elapsed, 0
    end
    -- With those denied, it may be more than the limit; not more than can be counted.
    save(limit, math.min(used + limit.cost, 9007199254740991), is_same)
  end

  rule.spend_in_full = rule.spend

  function rule.refund(limit)
    local given = math.min(limit.used, limit.cost)
    if now < limit.ends - limit.window or now >= limit.ends then return end
    if given == limit.held then
      redis.call('DEL', limit.key)
    elseif given > 0 then
      save(limit, limit.used - given, true)
    end
  end

  return rule
end
