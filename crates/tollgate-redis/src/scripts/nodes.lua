-- How many processes share this: each says every few seconds that it lives. KEYS: the list of them. ARGV: now, its id, for
-- how many microseconds one that has gone is counted, and how many are remembered at most.
-- State: `id:when,id:when…`. Answers how many there are.
local texts, count = { string.format('%s:%d', ARGV[2], now) }, 1
for id, seen in string.gmatch(redis.call('GET', KEYS[1]) or '', '([^:,]+):(%d+)') do
  if id ~= ARGV[2] and now - tonumber(seen) < tonumber(ARGV[3]) and count < tonumber(ARGV[4]) then
    count = count + 1
    texts[count] = id .. ':' .. seen
  end
end
redis.call('SET', KEYS[1], table.concat(texts, ','), 'PX', math.floor(tonumber(ARGV[3]) / 1000) + slack)
return count
