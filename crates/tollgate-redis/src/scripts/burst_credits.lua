-- Burst credits, two buckets of which both must allow: see burst_credits.rs.
--
-- Numbers: tag; then for the credits and for the peak: pieces of a microsecond, cost and tolerance, each in whole
-- microseconds and pieces.
-- State: `tat part tat part tag`. Answers the four.
makers.d = function()
  local rule, bucket = {}, kind_of('b')

  local function read_schedule(limit, tag, next_number)
    local schedule = { tag = tag, max_wait = -1, turns = {}, key = limit.key }
    schedule.per = next_number()
    schedule.cost, schedule.cost_part = next_number(), next_number()
    schedule.tolerance, schedule.tolerance_part = next_number(), next_number()
    return schedule
  end

  function rule.read(limit, next_argument, next_number)
    limit.tag = next_argument()
    limit.base, limit.peak = read_schedule(limit, limit.tag, next_number), read_schedule(limit, limit.tag, next_number)
  end

  function rule.load(limit, answer)
    local numbers, other = load_text(limit)
    if other then return other end
    local base, base_part, peak, peak_part = string.match(numbers or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+)$')
    for schedule, state in pairs({ [limit.base] = { base, base_part }, [limit.peak] = { peak, peak_part } }) do
      schedule.tat, schedule.part = tonumber(state[1]), tonumber(state[2])
      schedule.text = state[1] .. ' ' .. state[2]
      schedule.ahead = schedule.tat - now
    end
    local n = #answer
    answer[n + 1], answer[n + 2] = limit.base.tat, limit.base.part
    answer[n + 3], answer[n + 4] = limit.peak.tat, limit.peak.part
    for _, schedule in ipairs({ limit.base, limit.peak }) do
      if schedule.ahead < 0 then schedule.ahead, schedule.part = 0, 0 end
    end
  end

  function rule.test(limit)
    return bucket.test(limit.base) and bucket.test(limit.peak)
  end

  -- A schedule that does not reach beyond now is that of an unused key.
  local function reach_text(reach, part)
    if reach == 0 and part == 0 then return '0 0' end
    return string.format('%d %d', now + reach, part)
  end

  local function save_both(limit, base, peak)
    if base == '0 0' and peak == '0 0' then
      redis.call('DEL', limit.key)
      return
    end
    local last = math.max(tonumber(string.match(base, '%d+')), tonumber(string.match(peak, '%d+')))
    redis.call('SET', limit.key, base .. ' ' .. peak .. ' ' .. limit.tag, 'PX', millis(math.max(last - now, 0)))
  end

  function rule.spend(limit)
    save_both(limit, reach_text(bucket.reach_with(limit.base)), reach_text(bucket.reach_with(limit.peak)))
  end

  -- The schedule without what is given back, or as it was where there is nothing to give.
  local function text_without(schedule)
    if schedule.ahead == 0 and schedule.part == 0 then return schedule.text end
    local reach, part = schedule.ahead - schedule.cost, schedule.part - schedule.cost_part
    if part < 0 then reach, part = reach - 1, part + schedule.per end
    if reach < 0 then return '0 0' end
    return reach_text(reach, part)
  end

  function rule.refund(limit)
    if limit.base.ahead + limit.base.part + limit.peak.ahead + limit.peak.part == 0 then return end
    save_both(limit, text_without(limit.base), text_without(limit.peak))
  end

  return rule
end
