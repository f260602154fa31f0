-- Token bucket and leaky bucket, also with a max_wait: see bucket.rs, max_wait.rs.
--
-- Head: w if requests may wait, else -; then k if a denial writes a state that was written at another pace.
-- Numbers: tag; then as spans the cost and how far the schedule may reach, and in full how far with its debt. Then, without `w`,
-- for how long an unused key is kept, see `lingers` in numbers.rs. With `w`, how far the schedule reaches without a wait, the
-- longest wait in whole microseconds, and how many may wait.
-- State: `tat[+part][,turn,turn…] tag`: the theoretical arrival time in whole microseconds and in pieces of the next one, and
-- when those go who wait. Answers: tat, part, number of turns, the turns.
makers.b = function()
  local rule = {}

  function rule.load(key, head, at, answer)
    local tag = ARGV[at]
    local numbers, other, _, keeps, rates = load_text(key, tag)
    if other then return nil, other end
    local tat, part, turns = tonumber(numbers or 0), 0, nil
    if not tat then
      local whole, pieces, rest = string.match(numbers, '^(%d+)%+?(%d*)(.*)$')
      if not whole then return nil, redis.call('GET', key) end
      tat, part = tonumber(whole), tonumber(pieces) or 0
      for turn in string.gmatch(rest, '%d+') do
        turns = turns or {}
        turns[#turns + 1] = tonumber(turn)
      end
    end
    if rates then
      keeps = string.sub(head, 5, 5) == 'k'
      tat, part = rescaled(tat, part, rates[1])
      if tat == 0 then turns = nil end
      for i = 1, turns and #turns or 0 do
        local turn, pieces = rescaled(turns[i], 0, rates[1])
        if turn > 0 then turns[i] = pieces > 0 and turn + 1 or turn end
      end
    end
    local n, count = #answer, turns and #turns or 0
    answer[n + 1], answer[n + 2], answer[n + 3] = tat, part, count
    for i = 1, count do answer[n + 3 + i] = turns[i] end
    local ahead = tat - now
    if ahead < 0 then ahead, part = 0, 0 end
    local cost, cost_part, per = span(ARGV[at + 1])
    local tolerance, tolerance_part = span(ARGV[at + 2])
    local limit = {
      key = key, tag = tag, ahead = ahead, part = part, cost = cost, cost_part = cost_part, per = per,
      tolerance = tolerance, tolerance_part = tolerance_part, lingers = 0, keeps = keeps, kind = 0, group = 0, action = 0,
      allows = 0,
    }
    if is_in_full(head) then
      limit.most, limit.most_part = span(ARGV[at + 3])
      at = at + 1
    end
    if string.sub(head, 4, 4) ~= 'w' then
      limit.lingers = tonumber(ARGV[at + 3])
      return limit, at + 4
    end
    limit.turns = turns or {}
    limit.free, limit.free_part = span(ARGV[at + 3])
    limit.max_wait, limit.max_waiting = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
    return limit, at + 6
  end

  function rule.is_used(limit)
    return limit.ahead > 0 or limit.part > 0
  end

  -- How far the schedule reaches with the request. One that has pieces, of a rule that has none, keeps them.
  function rule.reach_with(limit)
    local reach, part = limit.ahead + limit.cost, limit.part + limit.cost_part
    if limit.cost_part > 0 and part >= limit.per then return reach + 1, part - limit.per end
    return reach, part
  end

  -- The same, as far as a schedule with a debt may reach. One that reaches further stays as it is.
  function rule.reach_in_full(limit)
    local reach, part = rule.reach_with(limit)
    if reach < limit.most or (reach == limit.most and part <= limit.most_part) then return reach, part end
    if limit.ahead > limit.most or (limit.ahead == limit.most and limit.part > limit.most_part) then
      return limit.ahead, limit.part
    end
    return limit.most, limit.most_part
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
    -- Cost 0 is denied only by a debt.
    if not limit.max_wait or (limit.cost == 0 and limit.cost_part == 0) then return true end
    local makes_room = #limit.turns - limit.max_waiting + 1
    if makes_room >= 1 and limit.turns[makes_room] > now then return false end
    return delay(limit, reach, part) <= limit.max_wait
  end

  local function save(limit, reach, part)
    local schedule = part == 0 and string.format('%d', now + reach) or string.format('%d+%d', now + reach, part)
    if limit.turns then
      for i = 1, #limit.turns do schedule = schedule .. string.format(',%d', limit.turns[i]) end
    end
    redis.call('SET', limit.key, schedule .. ' ' .. limit.tag, 'PX', millis(reach + limit.lingers))
  end

  -- Writes the state as it was read. Only a key in use is denied, so that its schedule is ahead of now.
  function rule.keep(limit)
    save(limit, limit.ahead, limit.part)
  end

  function rule.spend(limit)
    local reach, part = rule.reach_with(limit)
    if limit.max_wait then
      local wait, turns = delay(limit, reach, part), limit.turns
      if wait > 0 then
        while #turns >= limit.max_waiting do table.remove(turns, 1) end
        turns[#turns + 1] = now + wait
      end
    end
    save(limit, reach, part)
  end

  -- Nobody waits for it: it has been served.
  function rule.spend_in_full(limit)
    save(limit, rule.reach_in_full(limit))
  end

  -- The cost is that of what is given back.
  function rule.refund(limit)
    if limit.ahead == 0 and limit.part == 0 then return end
    if limit.turns then
      if limit.turns[1] and limit.turns[#limit.turns] > now then return end
      limit.turns = {}
    end
    local reach, part = limit.ahead - limit.cost, limit.part - limit.cost_part
    if part < 0 then reach, part = reach - 1, part + limit.per end
    if reach < 0 or (reach == 0 and part == 0) then
      redis.call('DEL', limit.key)
    else
      save(limit, reach, part)
    end
  end

  return rule
end
