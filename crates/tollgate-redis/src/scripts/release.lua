-- Gives back the places of a permit. KEYS: its limit. ARGV: now, the id, how many places.
-- Answers whether it was still held.
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2] .. ':1'))
if not score then return 0 end
local newest = tonumber(redis.call('ZSCORE', KEYS[1], 'newest')) - 4503599627370496
for first = 1, tonumber(ARGV[3]), 1000 do
  local places = {}
  for i = first, math.min(first + 999, tonumber(ARGV[3])) do places[#places + 1] = ARGV[2] .. ':' .. i end
  redis.call('ZREM', KEYS[1], unpack(places))
end
return score > math.max(now, newest) and 1 or 0
