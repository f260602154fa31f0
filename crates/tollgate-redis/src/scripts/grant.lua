-- Draws units of one key: see grant.rs and bucket.rs in `lease` of tollgate-core.
--
-- KEYS: the key. ARGV, in order:
--   now, `-` and the number of converted states: see plan.lua.
--   flags: m if there is a mark, o if units are owed.
--   cost: the cost of the request that waits for the draw, or 0.
--   head and numbers of the ask that charges this cost, or 1 if it is 0: see the file of its kind.
--   with m, the mark: see `present` below. With o, head and numbers of the ask that charges in full what is owed.
--   the parts of the offer, once for each schedule, or nothing if the draw is decided as one request:
--     wanted, least, most; of a bucket also its interval, the pieces in a microsecond, how far its schedule may reach for leases
--     (interval and reach in pieces), and the whole units that are kept for single requests.
--   for each converted state, its three arguments.
-- Returns 1, now, the units that were charged, and the state before the draw. If the state was written by other numbers or cannot be
-- read: 2, now, 1, and the state.
--
-- A bucket is counted in pieces here. `require_lease` in draw.rs refuses rules for which these pass 2^52.
local key, flags, cost, head, last = KEYS[1], ARGV[3], tonumber(ARGV[4]), ARGV[5], #ARGV - 3 * replaced_count
local letter, answer = string.sub(head, 1, 1), { 1, now, 0 }
local kind, microseconds_per_second = kind_of(letter), 1000000

-- The whole part of a / b, rounded down also where a is below 0.
local function whole(a, b)
  local rest = math.fmod(a, b)
  if rest < 0 then rest = rest + b end
  return (a - rest) / b
end

-- The whole part of a * b / c, where b <= c, and all are at least 0 and below 2^52.
local function whole_share(a, b, c)
  if a * b < 9007199254740992 then return whole(a * b, c) end
  local share = math.floor(a * (b / c))
  while not not_above(share, c, a, b) do share = share - 1 end
  while not_above(share + 1, c, a, b) do share = share + 1 end
  return share
end

-- Charges a key so that it has at least as much charged as a mark. One function for each kind.
local present = {}

-- Makes a schedule reach as far as a mark, `tat part`. Returns false if it reaches as far already.
local function reaches_further(schedule, tat, part)
  local ahead = tat - now
  if ahead < 0 or ahead < schedule.ahead or (ahead == schedule.ahead and tonumber(part) <= schedule.part) then return false end
  schedule.ahead, schedule.part, schedule.text = ahead, tonumber(part), tat .. ' ' .. part
  return true
end

function present.b(limit, mark)
  local tat, part = string.match(mark, '^(%d+) (%d+)$')
  if reaches_further(limit, tat, part) then kind.keep(limit) end
end

function present.d(limit, mark)
  local base, base_part, peak, peak_part = string.match(mark, '^(%d+) (%d+) (%d+) (%d+)$')
  local is_base, is_peak = reaches_further(limit.base, base, base_part), reaches_further(limit.peak, peak, peak_part)
  if is_base or is_peak then kind.keep(limit) end
end

-- The mark is `end used`.
function present.f(limit, mark)
  local ends, used = string.match(mark, '^(%d+) (%d+)$')
  ends, used = tonumber(ends), tonumber(used)
  if now >= ends or used == 0 or (ends <= limit.ends and used <= limit.used) then return end
  limit.ends, limit.used = math.max(limit.ends, ends), math.max(limit.used, used)
  kind.keep(limit)
end

-- The mark is `newest count`.
function present.s(limit, mark)
  local index, used = string.match(mark, '^(%d+) (%d+)$')
  index, used = tonumber(index), tonumber(used)
  if used == 0 or index < limit.index then return end
  local known = index == limit.newest and limit.ring[math.fmod(index, limit.buckets + 1)] or 0
  if index == limit.newest and used <= known then return end
  limit.index, limit.cost = index, math.max(used - known, 0)
  kind.spend(limit)
end

-- What a draw gets of a schedule: the units, or nothing if they could not be spent within a second. Its arguments begin at `at`.
local function schedule_offer(schedule, at)
  local wanted, least, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local interval, per, reach = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local kept = tonumber(ARGV[at + 6])
  schedule.interval, schedule.per = interval, per
  -- A schedule that reaches a second beyond the burst has no units within a second. After a clock stepped back, it may reach so far that
  -- its pieces are not exact.
  if schedule.ahead - schedule.tolerance > microseconds_per_second then return nil end
  local room = reach - (schedule.ahead * per + schedule.part) -- negative if units to come have been promised
  local free = whole(room, interval)
  if free >= least then return math.max(math.min(wanted, whole(free, 2), most), least) end
  local share = wanted > 0 and whole_share(math.max(kept + free, 0), wanted, wanted + kept) or 0
  local units = math.min(math.max(share, least), most)
  local start = units * interval - room
  if start > microseconds_per_second * per then return nil end
  return units
end

-- The cost of a number of units.
local function take(schedule, units)
  local pieces = units * schedule.interval
  schedule.cost_part = math.fmod(pieces, schedule.per)
  schedule.cost = (pieces - schedule.cost_part) / schedule.per
end

-- Units of a window are not promised for later, and none are kept for single requests.
local function window_offer(free, at)
  local wanted, least, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if free < math.max(cost, 1) then return nil end
  return math.min(math.max(math.min(wanted, whole(free, 2), most), least), free)
end

-- What a draw gets, or nothing. The units become the cost that `spend` charges. One function for each kind.
local offer = {}

function offer.b(limit, at)
  local units = schedule_offer(limit, at)
  if units then take(limit, units) end
  return units
end

function offer.d(limit, at)
  local slow, fast = schedule_offer(limit.base, at), schedule_offer(limit.peak, at + 7)
  if not slow or not fast then return nil end
  local units = math.min(slow, fast)
  take(limit.base, units)
  take(limit.peak, units)
  return units
end

function offer.f(limit, at)
  local units = window_offer(limit.limit - limit.used, at)
  if units then limit.cost = units end
  return units
end

function offer.s(limit, at)
  local old = 0
  if limit.mode == 's' then old = limit.old end
  -- `old * (window - into) / window`, rounded up.
  if limit.mode == 'i' then old = limit.old - whole_share(limit.old, limit.into, limit.window) end
  local units = window_offer(limit.limit - old - limit.full, at)
  if units then limit.cost = units end
  return units
end

local function load_again()
  return kind.load(key, head, 6, {})
end

local limit, at = kind.load(key, head, 6, answer)
if not limit then return { 2, now, 1, at } end
if string.find(flags, 'm', 1, true) then
  present[letter](limit, ARGV[at])
  limit, at = load_again(), at + 1
end
if string.find(flags, 'o', 1, true) then
  local debt, after = kind.load(key, ARGV[at], at + 1, {})
  kind.spend_in_full(debt)
  limit, at = load_again(), after
end
local units = at <= last and offer[letter](limit, at) or nil
if units then
  kind.spend(limit)
elseif string.sub(head, 3, 3) == 'c' and kind.test(limit) then
  -- The waiting request is decided as if it had come to the store by itself.
  units = cost
  if units > 0 then kind.spend(limit) end
elseif limit.keeps and string.sub(head, 3, 3) == 'c' then
  -- As plan.lua does, so that the wait is exact.
  kind.keep(limit)
end
answer[3] = units or 0
return answer
