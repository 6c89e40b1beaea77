--! prelude
-- What happened in each minute of the last 24 h.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 from, 3 to
-- reply minute, letter of what happened, how often; in turn
-- cost  O(minutes), 8 640 fields at most. Reads only.
local from, to = math.max(tonumber(ARGV[2]), now - DAY), tonumber(ARGV[3])
local all = C('HGETALL', KEYS[2] .. 'hist')
local out = {}
for i = 1, #all, 2 do
  local minute, what = string.match(all[i], '^(%d+)(%a)$')
  local at = tonumber(minute)
  if at + 60000 > from and at <= to then
    out[#out + 1] = minute
    out[#out + 1] = what
    out[#out + 1] = all[i + 1]
  end
end
return out
