-- Releases a permit. KEYS: its limit. ARGV: now, the ID, the cost. concurrency.lua describes the state.
-- Returns 1 if the permit was held until now, else 0.
local members, rest, exponent, scale, lowest = {}, tonumber(ARGV[3]), 0, 1, nil
while rest > 0 do
  local bit = rest % 2
  if bit == 1 then
    members[#members + 1] = ARGV[2] .. '/' .. exponent
    lowest = lowest or scale
  end
  rest, exponent, scale = (rest - bit) / 2, exponent + 1, scale * 9007199254740992
end
local score = tonumber(redis.call('ZSCORE', KEYS[1], members[1]))
if not score then return 0 end
local newest = -tonumber(redis.call('ZSCORE', KEYS[1], 'newest'))
redis.call('ZREM', KEYS[1], unpack(members))
return score / lowest > math.max(now, newest) and 1 or 0
