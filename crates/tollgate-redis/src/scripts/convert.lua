-- Replaces the state of a key whose rule has other numbers now, unless somebody else has changed it since.
-- KEYS: the key. ARGV: the state as it was, in how many milliseconds it may be forgotten, then as it is to be: one text,
-- or several for a list. With none, it is forgotten.
local is_list = redis.call('TYPE', KEYS[1]).ok == 'list'
local held = is_list and table.concat(redis.call('LRANGE', KEYS[1], 0, -1), ' ') or redis.call('GET', KEYS[1])
if held ~= ARGV[1] then return 0 end
if #ARGV == 2 then
  redis.call('DEL', KEYS[1])
elseif is_list then
  redis.call('DEL', KEYS[1])
  for first = 3, #ARGV, 1000 do redis.call('RPUSH', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV))) end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
end
return 1
