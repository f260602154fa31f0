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
local replaced = {}
for i = #ARGV - 3 * (tonumber(string.sub(ARGV[2], 2)) or 0) + 1, #ARGV, 3 do
  local place, keeps = string.match(ARGV[i], '^(%d+)(k?)$')
  replaced[KEYS[tonumber(place)]] = { ARGV[i + 1], ARGV[i + 2], keeps == 'k' }
end

-- A state that is one text: its numbers, then the tag of the rule that wrote it. Answers the numbers; or else the whole
-- text, if that was another rule; whether they are written as they are read; and whether a denial writes them.
local function load_text(key, tag)
  local held = redis.call('GET', key)
  if not held then return nil, nil, true end
  local as = replaced[key]
  if as and as[1] == held then return as[2] ~= '' and as[2] or nil, nil, false, as[3] end
  local length = #held - #tag
  if length < 2 or string.sub(held, length + 1) ~= tag then return nil, held, true end
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
