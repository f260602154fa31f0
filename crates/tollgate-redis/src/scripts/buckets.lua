-- Token and leaky buckets, nothing else: all are charged, or none. As plan.lua decides them, in fewer steps: most requests
-- are of this kind, and of most rates no pieces of a microsecond remain.
--
-- KEYS: one for each bucket. ARGV: for each a tag, what the cost takes up and how far the schedule may reach, both as
-- `whole` or `whole+pieces/of`; then the time, if a test gives it. State: see bucket.lua.
-- Answers: for one bucket by how much its schedule was ahead of now, or -1 less that if it is denied. For several, or where
-- there are pieces, a list: whether it is allowed, and for each how much, or `whole+pieces`.
--
-- It is written for the server's time, by counting instructions: a list to answer costs as much as a GET, functions and
-- tables that are made in each call as much as a number to parse, and a SET that says when the key expires half as much
-- again as one that keeps that.
local keys, args, call, sub, format = KEYS, ARGV, redis.call, string.sub, string.format
local count = #keys
local now, slack = args[3 * count + 1], 3600000
if not now then
  local time = call('TIME')
  now, slack = time[1] * 1000000 + time[2], 2
end

-- Of the bucket at hand: its schedule, how far that is ahead (whole, pieces), how far it would reach with the request, and
-- how far it may (whole). Those of several are kept in one table, made with room for four.
local tat, ahead, was_part, reach, part, most
local answer, kept
if count > 1 then answer, kept = { 1 }, { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 } end
local allowed, at = true, 1
for i = 1, count do
  local tag, cost, held = args[at], tonumber(args[at + 1]), call('GET', keys[i])
  tat, ahead, part, most = 0, 0, 0, tonumber(args[at + 2])
  if held then
    local length = #held - #tag
    if sub(held, length + 1) ~= tag then return { 2, tonumber(now), i, held } end
    tat = sub(held, 1, length - 1)
    local whole = tonumber(tat)
    if not whole then
      whole, part = string.match(tat, '^(%d+)%+(%d+)$')
      if not whole then return { 2, tonumber(now), i, held } end
      whole, part = tonumber(whole), tonumber(part)
    end
    tat, ahead = whole, whole - now
    if ahead < 0 then ahead, part = 0, 0 end
  end
  was_part = part
  if cost then
    reach = ahead + cost
    if reach > most or (reach == most and part > 0) then allowed = false end
  else
    local whole, pieces, per = string.match(args[at + 1], '^(%d+)%+(%d+)/(%d+)$')
    reach, part = ahead + whole, part + pieces
    if part >= tonumber(per) then reach, part = reach + 1, part - per end
    most, pieces = string.match(args[at + 2], '^(%d+)%+(%d+)/')
    most = tonumber(most)
    if reach > most or (reach == most and part > tonumber(pieces)) then allowed = false end
  end
  if count > 1 then
    kept[i], kept[count + i], kept[2 * count + i], kept[3 * count + i] = tat, reach, part, most
    answer[i + 1] = was_part == 0 and ahead or format('%d+%d', ahead, was_part)
  end
  at = at + 3
end

-- When a key expires is only said once in a while: see `lingers` in numbers.rs.
if allowed then
  at = 1
  for i = 1, count do
    if count > 1 then tat, reach, part, most = kept[i], kept[count + i], kept[2 * count + i], kept[3 * count + i] end
    local new = now + reach
    local state = part == 0 and format('%d %s', new, args[at]) or format('%d+%d %s', new, part, args[at])
    if most > 60000000 then most = 60000000 elseif most < 1 then most = 1 end
    if tat > 0 and tat % most + new - tat < most then
      call('SET', keys[i], state, 'KEEPTTL')
    else
      call('SET', keys[i], state, 'PX', format('%d', (reach + most) / 1000 + slack))
    end
    at = at + 3
  end
end
if count > 1 then
  if not allowed then answer[1] = 0 end
  return answer
elseif was_part > 0 then
  return { allowed and 1 or 0, format('%d+%d', ahead, was_part) }
end
return allowed and ahead or -1 - ahead
