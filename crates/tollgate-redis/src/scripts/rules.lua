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

-- A state that is one text: its numbers, then the tag of the rule that wrote it. Answers the numbers, or else the whole
-- text if that was another rule.
local function load_text(key, tag)
  local held = redis.call('GET', key)
  if not held then return nil, nil end
  local length = #held - #tag
  if string.sub(held, length + 1) ~= tag then return nil, held end
  return string.sub(held, 1, length - 1), nil
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
