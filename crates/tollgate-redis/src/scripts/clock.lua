-- The time in microseconds: the server's, or the one a test gives, which expires nothing meanwhile.
local now, slack = tonumber(ARGV[1]), 3600000
if not now then
  local time = redis.call('TIME')
  now, slack = time[1] * 1000000 + time[2], 2
end
