-- Decides the asks of one request. Asks that decide together are tested first; then all are charged, or none. Independent asks
-- are decided last, one by one. This is a copy of `decide_each` in plan.rs of tollgate-core.
--
-- KEYS: the keys, each once.
-- ARGV, in order:
--   now: in microseconds. Empty: the time of the server.
--   flags: `k` if each ask has a key number, else `-` (one key per ask). Then the number of converted states, or nothing for 0.
--   for each ask: a head, the key number if the flag is `k`, and the numbers of its kind (see the file of its kind).
--   for each converted state: its key number, the state as it is stored, and the numbers to read it as.
-- A head has one letter each for kind, group and action, then letters of its kind.
--   group: a (all must allow), o (one of these must allow), s (independent). In upper case, other asks have the same key:
--     A and O come twice, with the cost to test and with the cost to charge. S is loaded after the others have been charged.
--   action: c (charge), n (charge of more than the capacity), h (hold), r (refund), z (cost 0),
--     f and g (as c and n, but in full and in any case), p and x (as c and n, but test only),
--     d (in full with cost 0, at a limit that denies every request: allowed if the key is unused)
-- Returns 1 if the request is allowed, else 0; then now, and the state of each ask before its charge, those of S last.
-- If a key has a state that was written by other numbers or cannot be read: 2, now, the number of the key, and the state.
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
