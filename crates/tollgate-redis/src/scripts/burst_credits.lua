-- Burst credits, two buckets of which both must allow: see burst_credits.rs.
--
-- Head: k if a denial writes a state that was written at another pace.
-- Numbers: tag; then as spans the cost and the tolerance of the credits, and those of the peak; in full each with how far it may
-- reach with its debt.
-- State: `tat part tat part tag`. Answers the four.
makers.d = function()
  local rule, bucket = {}, kind_of('b')

  -- A schedule, as bucket.lua has one in a limit; its text is how it was kept.
  local function schedule(tat, part, at, in_full)
    local text = tat .. ' ' .. part
    local ahead, pieces = tat - now, tonumber(part)
    if ahead < 0 then ahead, pieces = 0, 0 end
    local cost, cost_part, per = span(ARGV[at])
    local tolerance, tolerance_part = span(ARGV[at + 1])
    local most, most_part
    if in_full then most, most_part = span(ARGV[at + 2]) end
    return {
      most = most, most_part = most_part, text = text, ahead = ahead, part = pieces, cost = cost, cost_part = cost_part, per = per,
      tolerance = tolerance, tolerance_part = tolerance_part,
    }
  end

  local function texts(tat, part)
    return string.format('%d', tat), string.format('%d', part)
  end

  function rule.load(key, head, at, answer)
    local tag = ARGV[at]
    local numbers, other, is_held, keeps, rates = load_text(key, tag)
    if other then return nil, other end
    local base, base_part, peak, peak_part = string.match(numbers or '0 0 0 0', '^(%d+) (%d+) (%d+) (%d+)$')
    if not base then return nil, redis.call('GET', key) end
    if rates then
      keeps = string.sub(head, 4, 4) == 'k'
      base, base_part = texts(rescaled(tonumber(base), tonumber(base_part), rates[1]))
      peak, peak_part = texts(rescaled(tonumber(peak), tonumber(peak_part), rates[2]))
    end
    local n = #answer
    answer[n + 1], answer[n + 2] = tonumber(base), tonumber(base_part)
    answer[n + 3], answer[n + 4] = tonumber(peak), tonumber(peak_part)
    local in_full = is_in_full(head)
    local next = in_full and at + 4 or at + 3
    return {
      key = key, tag = tag, base = schedule(base, base_part, at + 1, in_full),
      peak = schedule(peak, peak_part, next, in_full), is_held = is_held, keeps = keeps, kind = 0, group = 0, action = 0, allows = 0,
    }, in_full and at + 7 or at + 5
  end

  function rule.is_used(limit)
    return bucket.is_used(limit.base) or bucket.is_used(limit.peak)
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

  -- Writes the state as it was read.
  function rule.keep(limit)
    save_both(limit, limit.base.text, limit.peak.text)
  end

  function rule.spend(limit)
    save_both(limit, reach_text(bucket.reach_with(limit.base)), reach_text(bucket.reach_with(limit.peak)))
  end

  function rule.spend_in_full(limit)
    save_both(limit, reach_text(bucket.reach_in_full(limit.base)), reach_text(bucket.reach_in_full(limit.peak)))
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
    local base, peak = limit.base.ahead + limit.base.part, limit.peak.ahead + limit.peak.part
    -- Under other numbers than it was charged by, a key that gets nothing back stays as it is.
    if base + peak == 0 or (not limit.is_held and (base == 0 or peak == 0)) then return end
    save_both(limit, text_without(limit.base), text_without(limit.peak))
  end

  return rule
end
