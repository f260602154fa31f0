-- Fixed window: see fixed_window.rs.
--
-- Numbers: tag, limit, cost, window in microseconds, whether windows begin with the epoch (1), whether denied requests
-- count (1).
-- State: `end used tag`. Answers: end, used.
makers.f = function()
  local rule = {}

  function rule.read(limit, next_argument, next_number)
    limit.tag, limit.limit, limit.cost, limit.window = next_argument(), next_number(), next_number(), next_number()
    limit.align_epoch, limit.counts_denied = next_argument() == '1', next_argument() == '1'
  end

  function rule.load(limit, answer)
    local numbers, other = load_text(limit)
    if other then return other end
    local ends, used = string.match(numbers or '0 0', '^(%d+) (%d+)$')
    limit.ends, limit.held = tonumber(ends), tonumber(used)
    limit.used = now < limit.ends and limit.held or 0
    local n = #answer
    answer[n + 1], answer[n + 2] = limit.ends, limit.held
  end

  function rule.test(limit)
    return limit.used + limit.cost <= limit.limit
  end

  local function save_window(limit, used)
    local state = string.format('%d %d %s', limit.ends, used, limit.tag)
    redis.call('SET', limit.key, state, 'PX', millis(limit.ends - now))
  end

  function rule.spend(limit)
    local used = limit.used
    if now >= limit.ends then
      local elapsed = limit.align_epoch and math.fmod(now, limit.window) or 0
      limit.ends, used = now + limit.window - elapsed, 0
    end
    -- With those denied, it may be more than the limit; not more than can be counted.
    save_window(limit, math.min(used + limit.cost, 9007199254740991))
  end

  function rule.refund(limit)
    local given = math.min(limit.used, limit.cost)
    if now < limit.ends - limit.window or now >= limit.ends then return end
    if given == limit.held then
      redis.call('DEL', limit.key)
    elseif given > 0 then
      save_window(limit, limit.used - given)
    end
  end

  return rule
end
