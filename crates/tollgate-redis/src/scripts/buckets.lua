-- Token and leaky buckets, nothing else: all are charged, or none. As plan.lua decides them, in fewer steps: most requests
-- are of this kind, and of most rates no pieces of a microsecond remain.
--
-- KEYS: one for each bucket. ARGV: for each a tag, what the cost takes up and how far the schedule may reach, both as
-- `whole` or `whole+pieces/of`; then the time, if a test gives it. State: see bucket.lua.
-- Answers: whether it is allowed, now, and each schedule as it was: a number, or as it is kept.
local count = #KEYS
local now, slack = tonumber(ARGV[3 * count + 1]), 3600000
if not now then
  local time = redis.call('TIME')
  now, slack = time[1] * 1000000 + time[2], 2
end

-- How far a schedule reaches with the request, whole and pieces, and whether it may: where there are pieces.
local function reach_with_pieces(ahead, part, cost, tolerance)
  local cost_whole, cost_part, per = string.match(cost, '^(%d+)%+(%d+)/(%d+)$')
  local most, most_part = string.match(tolerance, '^(%d+)%+(%d+)/')
  local reach, pieces = ahead + cost_whole, part + cost_part
  if pieces >= tonumber(per) then reach, pieces = reach + 1, pieces - per end
  most = tonumber(most)
  return reach, pieces, reach < most or (reach == most and pieces <= tonumber(most_part))
end

local allowed, answer, reaches, parts = true, { 1, now }, {}, nil
for i = 1, count do
  local tag, ahead, part = ARGV[3 * i - 2], 0, 0
  local held = redis.call('GET', KEYS[i])
  local tat = 0
  if held then
    local length = #held - #tag
    if string.sub(held, length + 1) ~= tag then return { 2, now, i, held } end
    local schedule = string.sub(held, 1, length - 1)
    tat = tonumber(schedule)
    if tat then
      answer[i + 2] = tat
    else
      tat, part = string.match(schedule, '^(%d+)%+(%d+)$')
      tat, part, answer[i + 2] = tonumber(tat), tonumber(part), schedule
    end
    ahead = tat - now
    if ahead < 0 then ahead, part = 0, 0 end
  else
    answer[i + 2] = 0
  end
  local cost, tolerance = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  if cost then
    local reach = ahead + cost
    if reach > tolerance or (reach == tolerance and part > 0) then allowed = false end
    reaches[i] = reach
  else
    local fits
    reaches[i], part, fits = reach_with_pieces(ahead, part, ARGV[3 * i - 1], ARGV[3 * i])
    allowed = allowed and fits
  end
  if part > 0 then
    parts = parts or {}
    parts[i] = part
  end
end
if not allowed then
  answer[1] = 0
  return answer
end
for i = 1, count do
  local reach, part, state = reaches[i], parts and parts[i] or 0, nil
  if part == 0 then
    state = string.format('%d %s', now + reach, ARGV[3 * i - 2])
  else
    state = string.format('%d+%d %s', now + reach, part, ARGV[3 * i - 2])
  end
  redis.call('SET', KEYS[i], state, 'PX', math.floor(reach / 1000) + slack)
end
return answer
