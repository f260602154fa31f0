-- Several limits of any kind on one request: every limit is asked, then all are charged or none is.
--
-- KEYS: one for each limit. ARGV: now, whether the request is denied anyway (1), then for each limit its kind, its group,
-- what is done for it, and its numbers (see the file of its kind).
--   group: a (all must allow), o (one of these must), s (decides by itself)
--   does: c (charge), n (the same, of more than it could ever hold), r (give back), p and x (look what c and n would be
--   told), z (cost 0)
-- Answers: whether it is allowed, now, and each state as it was.
local is_denied, at = ARGV[2] == '1', 2
local function next_argument()
  at = at + 1
  return ARGV[at]
end
local function next_number()
  at = at + 1
  return tonumber(ARGV[at])
end

local limits, answer = {}, { 0, now }
local all, one_of, one_allows = true, false, false
for i = 1, #KEYS do
  local kind = kind_of(next_argument())
  local limit = { kind = kind, key = KEYS[i], group = next_argument(), does = next_argument() }
  kind.read(limit, next_argument, next_number)
  local other = kind.load(limit, answer)
  if other then return { 2, now, i, other } end
  local does = limit.does
  limit.allows = does == 'z' or does == 'r' or ((does == 'c' or does == 'p') and kind.test(limit))
  if limit.group == 'a' then
    all = all and limit.allows
  elseif limit.group == 'o' then
    one_of, one_allows = true, one_allows or limit.allows
  end
  limits[i] = limit
end
local allowed = all and not is_denied and (one_allows or not one_of)
for i = 1, #KEYS do
  local limit = limits[i]
  local passes = limit.allows and (allowed or limit.group == 's')
  if limit.does == 'r' then
    if allowed then limit.kind.refund(limit) end
  elseif (limit.does == 'c' and passes) or (limit.counts_denied and (limit.does == 'c' or limit.does == 'n')) then
    limit.kind.spend(limit)
  end
end
if allowed then answer[1] = 1 end
return answer
