-- Token and leaky buckets, nothing else: all are charged, or none. As plan.lua decides them, in fewer steps.
--
-- A schedule is kept as `tag tat part`: the theoretical arrival time in whole microseconds and in pieces of the next one.
-- KEYS: one for each bucket. ARGV: now, then for each: tag, pieces of a microsecond, cost and tolerance, each in whole
-- microseconds and pieces.
-- Answers: whether it is allowed, now, and each schedule as it was.
local allowed, answer, reaches, parts = true, { 1, now }, {}, {}
for i = 1, #KEYS do
  local at = 6 * i - 4
  local tag, tat, part = ARGV[at], 0, 0
  local held = redis.call('GET', KEYS[i])
  if held then
    local first, second, their = string.match(held, '^(%d+) (%d+) (.*)$')
    if their ~= tag then return { 2, now, i, held } end
    tat, part = tonumber(first), tonumber(second)
  end
  answer[2 * i + 1], answer[2 * i + 2] = tat, part
  local ahead = tat - now
  if ahead < 0 then ahead, part = 0, 0 end
  local pieces = part + ARGV[at + 3]
  local reach, per = ahead + ARGV[at + 2], tonumber(ARGV[at + 1])
  if pieces >= per then reach, pieces = reach + 1, pieces - per end
  local tolerance = tonumber(ARGV[at + 4])
  if reach > tolerance or (reach == tolerance and pieces > tonumber(ARGV[at + 5])) then allowed = false end
  reaches[i], parts[i] = reach, pieces
end
if not allowed then
  answer[1] = 0
  return answer
end
for i = 1, #KEYS do
  local state = string.format('%.0f %.0f %s', now + reaches[i], parts[i], ARGV[6 * i - 4])
  redis.call('SET', KEYS[i], state, 'PX', math.floor(reaches[i] / 1000) + slack)
end
return answer
