-- Returns units of a grant. KEYS: the key, and the guard of the grant.
-- ARGV: now, `-`, when the grant was charged or dated, its life (both in microseconds), and head and numbers of the ask that refunds the units:
-- see plan.lua and the file of its kind.
-- A return counts once, before the life of the grant ends, and only while the key has the numbers that it was charged by.
-- Returns 1 if it was the first in time, and the key has these numbers. Otherwise 0.
local key, charged, life, head = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
if now >= charged + life then return 0 end
if not redis.call('SET', KEYS[2], '', 'NX', 'PX', millis(charged + life - now)) then return 0 end
local held, tag = redis.call('GET', key), ARGV[6]
if not held or string.sub(held, -#tag - 1) ~= ' ' .. tag then return 0 end
local letter = string.sub(head, 1, 1)
local kind = kind_of(letter)
local limit = kind.load(key, head, 6, {})
if not limit then return 0 end

-- Whether a whole burst has come since the charge. Then it has been made good for.
local function is_made_good(schedule)
  local age = math.max(now - charged, 0)
  return age > schedule.tolerance or (age == schedule.tolerance and schedule.tolerance_part == 0)
end

-- As `refund` of the rules does it.
if letter == 'b' then
  if is_made_good(limit) then return 0 end
elseif letter == 'd' then
  for _, schedule in ipairs({ limit.base, limit.peak }) do
    if is_made_good(schedule) then schedule.cost, schedule.cost_part = 0, 0 end
  end
elseif letter == 'f' then
  if charged < limit.ends - limit.window or charged >= limit.ends then return 0 end
  limit.window = math.max(limit.window, limit.ends - now) -- a clock that stepped back finds the window as it is
elseif letter == 's' then
  local present = now
  now = charged
  limit.stamped = kind.load(key, head, 6, {}).stamped
  now = present
end
kind.refund(limit)
return 1
