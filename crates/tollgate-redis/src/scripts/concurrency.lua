-- Concurrency with leases: see concurrency.rs.
--
-- Numbers: limit, cost, lease in microseconds, the ID of the permit.
-- State: a sorted set. Its first member is `newest`; the score is minus the time of the last acquire. A permit has one member
-- `ID/exponent` per power of two in its cost. So a permit of any cost has at most 17 members, and counts give the units.
-- The score of a member is the end of the lease times 2^(53 * exponent). An end is below 2^53, so the score is exact, and the
-- members of each exponent form a range of scores: a class.
-- Answers: the units in flight, when the first and the last of them end, and the end after which the cost fits, or 0 if no end
-- makes it fit.
makers.p = function()
  local rule = {}
  local CLASS, MOST_REMOVED = 9007199254740992, 1000

  -- An end as the score of a class. %.17g is exact for every double.
  local function score(ends, scale)
    return string.format('%.17g', ends * scale)
  end

  local function end_at(key, rank, scale)
    return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]) / scale
  end

  -- How many units have left at an end. Notes in each class how many members have.
  local function units_left(key, classes, ends)
    local units = 0
    for i = 1, #classes do
      local class = classes[i]
      class.left = redis.call('ZCOUNT', key, class.lowest, score(ends, class.scale)) - class.ended
      units = units + class.left * class.weight
    end
    return units
  end

  -- The first end at which `needed` units have left. Most often that is the first end. Else each round tries the end in the
  -- middle of a class, which narrows the ranks in question in every class.
  local function end_that_frees(key, classes, first, needed)
    if #classes == 1 then
      local class = classes[1]
      return end_at(key, class.rank + math.ceil(needed / class.weight) - 1, class.scale)
    end
    if units_left(key, classes, first) >= needed then return first end
    local frees = 0
    while true do
      local widest = classes[1]
      for i = 2, #classes do
        if classes[i].to - classes[i].from > widest.to - widest.from then widest = classes[i] end
      end
      if widest.to <= widest.from then return frees end
      local middle = math.floor((widest.from + widest.to) / 2)
      local ends = end_at(key, widest.rank + middle, widest.scale)
      local is_enough = units_left(key, classes, ends) >= needed
      for i = 1, #classes do
        local class = classes[i]
        if is_enough then class.to = math.min(class.to, class.left) else class.from = math.max(class.from, class.left) end
      end
      if is_enough then frees, widest.to = ends, middle end
    end
  end

  function rule.load(key, head, at, answer)
    local cost, members, effective = tonumber(ARGV[at + 1]), redis.call('ZCARD', key), now
    local live, ended, in_flight, first, last = {}, {}, 0, 0, 0
    if members > 0 then effective = math.max(now, -end_at(key, 0, 1)) end
    if members > 1 then
      local highest, rank, weight, scale = end_at(key, -1, 1), 1, 1, 1
      while rank < members do
        local lowest, count, is_highest = '1', members - rank, highest / scale < CLASS
        if scale > 1 then lowest = score(1, scale) end
        if not is_highest then count = redis.call('ZCOUNT', key, lowest, score(CLASS - 1, scale)) end
        local over = count > 0 and redis.call('ZCOUNT', key, lowest, score(effective, scale)) or 0
        if over > 0 then ended[#ended + 1] = { rank = rank, count = over, lowest = lowest, scale = scale } end
        if over < count then
          live[#live + 1] = {
            rank = rank + over, ended = over, from = 0, to = count - over, left = 0, weight = weight, lowest = lowest, scale = scale,
          }
          in_flight = in_flight + weight * (count - over)
          local next_end = end_at(key, rank + over, scale)
          if first == 0 or next_end < first then first = next_end end
          last = math.max(last, is_highest and highest / scale or end_at(key, rank + count - 1, scale))
        end
        rank, weight, scale = rank + count, weight * 2, scale * CLASS
      end
    end
    local frees, needed = 0, in_flight + cost - ARGV[at]
    if needed > 0 and needed <= in_flight then frees = end_that_frees(key, live, first, needed) end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = in_flight, first, last, frees
    return {
      key = key, cost = cost, lease = tonumber(ARGV[at + 2]), id = ARGV[at + 3], effective = effective, last = last,
      ended = ended, fits = needed <= 0, kind = 0, group = 0, action = 0, allows = 0,
    }, at + 4
  end

  function rule.test(limit)
    return limit.fits
  end

  function rule.spend(limit)
    -- At most MOST_REMOVED per class, so that leases that end together do not stop the server. From the highest class down:
    -- ranks of lower classes stay.
    for i = #limit.ended, 1, -1 do
      local class = limit.ended[i]
      if class.count <= MOST_REMOVED then
        redis.call('ZREMRANGEBYSCORE', limit.key, class.lowest, score(limit.effective, class.scale))
      else
        redis.call('ZREM', limit.key, unpack(redis.call('ZRANGE', limit.key, class.rank, class.rank + MOST_REMOVED - 1)))
      end
    end
    local ends, members = limit.effective + limit.lease, { score(-limit.effective, 1), 'newest' }
    local rest, exponent, scale = limit.cost, 0, 1
    while rest > 0 do
      local bit = rest % 2
      if bit == 1 then
        members[#members + 1] = score(ends, scale)
        members[#members + 1] = limit.id .. '/' .. exponent
      end
      rest, exponent, scale = (rest - bit) / 2, exponent + 1, scale * CLASS
    end
    redis.call('ZADD', limit.key, unpack(members))
    -- Leases that were longer may end after this one.
    redis.call('PEXPIRE', limit.key, millis(math.max(limit.last, ends) - now))
  end

  return rule
end
