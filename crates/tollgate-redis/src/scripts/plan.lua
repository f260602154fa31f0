-- Several limits of any kind on one request: every limit is asked, then all are charged or none is.
--
-- KEYS: one for each limit. ARGV: now, whether the request is denied anyway (1) and how many states were written by other
-- numbers (nothing for none), then for each limit a head of letters, its kind, its group, what is done for it and what its
-- kind has more, and its numbers (see the file of its kind); then for each of those states which key it is of, as it is
-- held, and the numbers it is to be read as.
--   group: a (all must allow), o (one of these must), s (decides by itself)
--   does: c (charge), n (the same, of more than it could ever hold), f and g (charge as c and n, in full and in any case),
--   r (give back), p and x (test as c and n, and charge nothing), z (cost 0)
-- Answers: whether it is allowed, now, and each state as it was. Or 2, now, which key has a state that others wrote, or
-- nobody can read, and that state.
local is_denied, at = string.sub(ARGV[2], 1, 1) == '1', 3
local limits, answer = {}, { 0, now }
local all, one_of, one_allows = true, false, false
for i = 1, #KEYS do
  local head = ARGV[at]
  local kind = kind_of(string.sub(head, 1, 1))
  local group, does = string.sub(head, 2, 2), string.sub(head, 3, 3)
  local limit, after = kind.load(KEYS[i], head, at + 1, answer)
  if not limit then return { 2, now, i, after } end
  at = after
  local allows = does == 'z' or does == 'r' or ((does == 'c' or does == 'p' or does == 'f') and kind.test(limit))
  limit.kind, limit.group, limit.does, limit.allows = kind, group, does, allows
  if group == 'a' then
    all = all and allows
  elseif group == 'o' then
    one_of, one_allows = true, one_allows or allows
  end
  limits[i] = limit
end
local allowed = all and not is_denied and (one_allows or not one_of)
for i = 1, #KEYS do
  local limit = limits[i]
  local does = limit.does
  if does == 'r' then
    if allowed then limit.kind.refund(limit) end
  elseif does == 'f' or does == 'g' then
    limit.kind.spend_in_full(limit)
  elseif does == 'c' or does == 'n' then
    local passes = does == 'c' and limit.allows and (allowed or limit.group == 's')
    if passes or limit.counts_denied then
      limit.kind.spend(limit)
    elseif limit.keeps and does == 'c' and not limit.allows then
      -- From here on it refills by the numbers that have denied it, so that the wait is exact.
      limit.kind.keep(limit)
    end
  end
end
if allowed then answer[1] = 1 end
return answer
