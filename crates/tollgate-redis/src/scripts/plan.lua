-- The asks of one request: those that decide together are tested, then all are charged or none is. Independent asks are decided last,
-- each by itself. See `decide_each` in plan.rs.
--
-- KEYS: the keys, each once. ARGV: now; k if asks come with the numbers of their keys, else -, and how many states were written by
-- other numbers (nothing for none); then for each ask a head of letters, the number of its key after a k, and the numbers of its kind
-- (see the file of its kind); then for each of those states the number of its key, the state as it is held, and the numbers to read
-- it as. Without a k, there is one key per ask.
--   head: the kind, the group, the action, and what its kind has more
--   group: a (all must allow), o (one of these must), s (decides by itself). A, O: another ask names its key; the ask comes twice,
--   with what it is tested for and with what it is charged. S: it is loaded when the others have been charged.
--   action: c (charge), n (the same, of more than it could ever hold), f and g (charge as c and n, in full and in any case),
--   d (as f with cost 0, to a limit that denies every request: it passes if the key is unused), h (hold), r (refund), p and x (test as c and n, and charge nothing), z (cost 0)
-- Answers: whether it is allowed, now, and the state of each ask as it was, those of S last. Or 2, now, which key has a state that
-- others wrote, or nobody can read, and that state.
local has_numbers, at, last = string.sub(ARGV[2], 1, 1) == 'k', 3, #ARGV - 3 * replaced_count
local asks, late, answer = {}, {}, { 0, now }
local all, one_of, one_allows = true, false, false

local function allows(ask)
  local action = ask.action
  if action == 'd' then return not ask.kind.is_used(ask) end
  return action == 'z' or action == 'r'
    or ((action == 'c' or action == 'p' or action == 'f' or action == 'h') and ask.kind.test(ask))
end

while at <= last do
  local head, number = ARGV[at], #asks + 1
  local kind, group = kind_of(string.sub(head, 1, 1)), string.sub(head, 2, 2)
  local from = at + 1
  if has_numbers then number, from = tonumber(ARGV[from]), from + 1 end
  local is_late = group == 'S'
  local ask, after = kind.load(KEYS[number], head, from, is_late and {} or answer)
  if not ask then return { 2, now, number, after } end
  ask.kind, ask.group, ask.action = kind, group, string.sub(head, 3, 3)
  asks[#asks + 1] = ask
  at = after
  if is_late then
    ask.from = from
    late[#late + 1] = ask
  elseif group == 's' then
    ask.allows = allows(ask)
    late[#late + 1] = ask
  else
    ask.allows = allows(ask)
    if group == 'A' or group == 'O' then
      ask.charge_at = at
      local _, charge_after = kind.load(KEYS[number], ARGV[at], at + 1, {})
      at = charge_after
    end
    if group == 'a' or group == 'A' then
      all = all and ask.allows
    else
      one_of, one_allows = true, one_allows or ask.allows
    end
  end
end
local allowed = all and (one_allows or not one_of)

local function act(ask, passes)
  local kind, action, allows, charged = ask.kind, ask.action, ask.allows, ask
  if ask.charge_at then
    -- Its key may have been charged since.
    local head = ARGV[ask.charge_at]
    charged, action = kind.load(ask.key, head, ask.charge_at + 1, {}), string.sub(head, 3, 3)
  end
  if action == 'r' then
    if allowed then kind.refund(charged) end
  elseif action == 'f' or action == 'g' then
    kind.spend_in_full(charged)
  elseif action == 'h' then
    if allows and allowed then kind.spend(charged) end
  elseif action == 'c' or action == 'n' then
    if (allows and passes) or charged.counts_denied then
      kind.spend(charged)
    elseif charged.keeps and action == 'c' and not allows and not ask.charge_at then
      -- From here on it refills by the numbers that have denied it, so that the wait is exact.
      kind.keep(charged)
    end
  end
end

for i = 1, #asks do
  local group = asks[i].group
  if group ~= 's' and group ~= 'S' then act(asks[i], allowed) end
end
for i = 1, #late do
  local ask = late[i]
  if ask.from then
    local loaded = ask.kind.load(ask.key, ARGV[ask.from - 2], ask.from, answer)
    loaded.kind, loaded.group, loaded.action = ask.kind, ask.group, ask.action
    loaded.allows = allows(loaded)
    ask = loaded
  end
  act(ask, true)
end
if allowed then answer[1] = 1 end
return answer
