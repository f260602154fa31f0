-- The kinds of rules, each made when a request has one: how it loads a limit, its numbers from the arguments and its state
-- into the answer (or tells that others wrote it), tests, spends and refunds. The names and their order are those of the
-- rules in tollgate-core.
--
-- A limit is one table made at once, with room for all that is kept in it: one that grows costs twice as much.
-- Numbers are written by %d, which is exact where tostring is not and takes half the time of %.0f.
local kinds, makers = {}, {}
local function kind_of(letter)
  local kind = kinds[letter]
  if not kind then
    kind = makers[letter]()
    kinds[letter] = kind
  end
  return kind
end

-- States that were written by other numbers, converted to these. By key: the state as it is held, the numbers to read it as
-- (none for an unused key), and whether a denial writes them. A charge always writes them, a peek never does.
local replaced, replaced_count = {}, tonumber(string.sub(ARGV[2], 2)) or 0
for i = #ARGV - 3 * replaced_count + 1, #ARGV, 3 do
  local place, keeps = string.match(ARGV[i], '^(%d+)(k?)$')
  replaced[KEYS[tonumber(place)]] = { ARGV[i + 1], ARGV[i + 2], keeps == 'k' }
end

-- A state that the same rule wrote at another pace: its numbers, and of each schedule the interval and the pieces per
-- microsecond, then and now. Nothing for a state of other numbers. See `tag` in numbers.rs for how a tag gives its rates.
local function at_other_rate(held, tag)
  local numbers, old_tag = string.match(held, '^(.*) (%S+)$')
  if not numbers or string.match(old_tag, '^[^@]*') ~= string.match(tag, '^[^@]*') then return end
  local function intervals(of) return string.gmatch(string.match(of, '@(.*)$') or of, '(%d+)/(%d+)') end
  local rates, next_old = {}, intervals(old_tag)
  for interval, per in intervals(tag) do
    local old_interval, old_per = next_old()
    if not old_interval or tonumber(old_interval) < 1 or tonumber(old_per) < 1 then return end
    rates[#rates + 1] = {
      interval = tonumber(interval), per = per * 1000, old_interval = tonumber(old_interval), old_per = old_per * 1000,
    }
  end
  if rates[1] then return numbers, rates end
end

-- A state that is one text: its numbers, then the tag of the rule that wrote it. Answers the numbers; or else the whole
-- text, if that was another rule; whether they are written as they are read; whether a denial writes them; and the rates to
-- convert by (see `rescaled`), if the same rule wrote them at another pace.
local function load_text(key, tag)
  local held = redis.call('GET', key)
  if not held then return nil, nil, true end
  local as = replaced[key]
  if as and as[1] == held then return as[2] ~= '' and as[2] or nil, nil, false, as[3] end
  local length = #held - #tag
  if length < 2 or string.sub(held, length + 1) ~= tag then
    local numbers, rates = at_other_rate(held, tag)
    if numbers then return numbers, nil, false, false, rates end
    return nil, held, true
  end
  return string.sub(held, 1, length - 1), nil, true
end

-- Whether the request of a head is charged in full.
local function is_in_full(head)
  local does = string.sub(head, 3, 3)
  return does == 'f' or does == 'g'
end

-- A span that is told as `whole` or `whole+pieces/of`: whole microseconds, pieces, and how many make one.
local function span(text)
  local whole = tonumber(text)
  if whole then return whole, 0, 1 end
  local part, per
  whole, part, per = string.match(text, '^(%d+)%+(%d+)/(%d+)$')
  return tonumber(whole), tonumber(part), tonumber(per)
end

-- In how many milliseconds a key may be forgotten that is as new in so many microseconds. A text, since the server makes
-- one of a number in a slower way.
local function millis(microseconds)
  return string.format('%d', microseconds / 1000 + slack)
end

-- Whether a * b <= c * d, exactly: all below 2^52, each product in two halves of 52 bits.
local function product(a, b)
  local low_a, low_b = math.fmod(a, 67108864), math.fmod(b, 67108864)
  local high_a, high_b = (a - low_a) / 67108864, (b - low_b) / 67108864
  local middle = high_a * low_b + low_a * high_b
  local low_middle = math.fmod(middle, 67108864)
  local high, low = high_a * high_b + (middle - low_middle) / 67108864, low_middle * 67108864 + low_a * low_b
  if low >= 4503599627370496 then return high + 1, low - 4503599627370496 end
  return high, low
end
local function not_above(a, b, c, d)
  local high, low = product(a, b)
  local most_high, most_low = product(c, d)
  return high < most_high or (high == most_high and low <= most_low)
end

-- A schedule that was written at another rate, as it has the same number of units spent at this one: in whole microseconds and
-- pieces, rounded up; 0 for an unused key. As `Rule::change_rate` does it. A denial of a schedule that reaches beyond 19 hours
-- may be late by a microsecond.
local function rescaled(tat, part, rate)
  local ahead = tat - now
  if ahead < 0 or (ahead == 0 and part == 0) then return 0, 0 end
  local interval, old_interval, most = rate.interval, rate.old_interval, 4503599627370496
  local spent = ahead * rate.old_per + part
  local reach = math.ceil(spent * interval / old_interval)
  if spent < most and reach < most and interval < most and old_interval < most then
    while not not_above(spent, interval, reach, old_interval) do reach = reach + 1 end
    while not_above(spent, interval, reach - 1, old_interval) do reach = reach - 1 end
    part = math.fmod(reach, rate.per)
    return now + (reach - part) / rate.per, part
  end
  -- Doubles round by at most 2^-53 in each step. No schedule reaches further than 2^62 ns without a debt.
  local longer = (interval / rate.per) / (old_interval / rate.old_per) * (1 + 2 ^ -48)
  return now + math.min(math.ceil((ahead + part / rate.old_per) * longer), 4611686018427388), 0
end
