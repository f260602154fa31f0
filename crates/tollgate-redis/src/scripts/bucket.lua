-- Token bucket and leaky bucket, also with a max_wait: see bucket.rs, max_wait.rs.
--
-- Numbers: tag, pieces of a microsecond; then, each in whole microseconds and pieces: the cost, how far the schedule may
-- reach, how far it reaches without anybody waiting; then the longest wait (whole microseconds, -1 for none) and how many
-- may wait.
-- State: `tat[+part][,turn,turn…] tag`: the theoretical arrival time in whole microseconds and in pieces of the next one, and
-- when those go who wait. Answers: tat, part, number of turns, the turns.
makers.b = function()
  local rule = {}

  function rule.read(limit, next_argument, next_number)
    limit.tag, limit.per = next_argument(), next_number()
    limit.cost, limit.cost_part = next_number(), next_number()
    limit.tolerance, limit.tolerance_part = next_number(), next_number()
    limit.free, limit.free_part = next_number(), next_number()
    limit.max_wait, limit.max_waiting = next_number(), next_number()
  end

  function rule.load(limit, answer)
    local numbers, other = load_text(limit)
    if other then return other end
    limit.tat, limit.part, limit.turns = tonumber(numbers or 0), 0, {}
    if not limit.tat then
      local tat, part, turns = string.match(numbers, '^(%d+)%+?(%d*)(.*)$')
      limit.tat, limit.part = tonumber(tat), tonumber(part) or 0
      for turn in string.gmatch(turns, '%d+') do
        limit.turns[#limit.turns + 1] = tonumber(turn)
      end
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = limit.tat, limit.part, #limit.turns
    for i = 1, #limit.turns do answer[n + 3 + i] = limit.turns[i] end
    limit.ahead = limit.tat - now
    if limit.ahead < 0 then limit.ahead, limit.part = 0, 0 end
  end

  -- How far the schedule reaches with the request.
  function rule.reach_with(limit)
    local reach, part = limit.ahead + limit.cost, limit.part + limit.cost_part
    if part >= limit.per then return reach + 1, part - limit.per end
    return reach, part
  end

  -- How long the request waits, in whole microseconds, rounded up.
  local function delay(limit, reach, part)
    local wait = reach - limit.free
    if part > limit.free_part then wait = wait + 1 end
    return math.max(wait, 0)
  end

  function rule.test(limit)
    local reach, part = rule.reach_with(limit)
    if reach > limit.tolerance or (reach == limit.tolerance and part > limit.tolerance_part) then return false end
    if limit.max_wait < 0 then return true end
    local makes_room = #limit.turns - limit.max_waiting + 1
    if makes_room >= 1 and limit.turns[makes_room] > now then return false end
    return delay(limit, reach, part) <= limit.max_wait
  end

  local function save(limit, reach, part)
    local schedule = part == 0 and string.format('%d', now + reach) or string.format('%d+%d', now + reach, part)
    for i = 1, #limit.turns do schedule = schedule .. string.format(',%d', limit.turns[i]) end
    redis.call('SET', limit.key, schedule .. ' ' .. limit.tag, 'PX', millis(reach))
  end

  function rule.spend(limit)
    local reach, part = rule.reach_with(limit)
    local wait = delay(limit, reach, part)
    if limit.max_wait >= 0 and wait > 0 then
      while #limit.turns >= limit.max_waiting do table.remove(limit.turns, 1) end
      limit.turns[#limit.turns + 1] = now + wait
    end
    save(limit, reach, part)
  end

  -- The cost is that of what is given back.
  function rule.refund(limit)
    if limit.ahead == 0 and limit.part == 0 then return end
    if limit.turns[1] and limit.turns[#limit.turns] > now then return end
    local reach, part = limit.ahead - limit.cost, limit.part - limit.cost_part
    if part < 0 then reach, part = reach - 1, part + limit.per end
    limit.turns = {}
    if reach < 0 or (reach == 0 and part == 0) then
      redis.call('DEL', limit.key)
    else
      save(limit, reach, part)
    end
  end

  return rule
end
