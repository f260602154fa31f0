-- Gives back the places of a permit. KEYS: its limit. ARGV: now, the id, how many places.
-- Answers whether it was still held.
local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2] .. ':1'))
if not score then return 0 end
local newest = tonumber(redis.call('ZSCORE', KEYS[1], 'newest')) - 4503599627370496
for i = 1, tonumber(ARGV[3]) do redis.call('ZREM', KEYS[1], ARGV[2] .. ':' .. i) end
return score > math.max(now, newest) and 1 or 0
