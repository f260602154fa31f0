-- Each kind of rule adds itself: how it reads its numbers, loads its state into the answer (or tells that others wrote
-- it), tests, spends and refunds. The names and their order are those of the rules in tollgate-core.
local rules = {}

-- A state that is one text: its numbers, then the tag of the rule that wrote it. Answers the numbers, or the whole text
-- if that was another rule.
local function load_text(limit, pattern)
  local held = redis.call('GET', limit.key)
  if not held then return nil, nil end
  local numbers, tag = string.match(held, pattern)
  if tag ~= limit.tag then return nil, held end
  return numbers, nil
end

-- In how many milliseconds a key may be forgotten that is as new in so many microseconds.
local function millis(microseconds)
  return math.floor(microseconds / 1000) + slack
end
