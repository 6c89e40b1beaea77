--! prelude
-- Failed tasks by the fingerprint of their error, the largest group first.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 limit
-- reply fingerprint, count, id of the newest, when it ended, what few tasks have of it; in turn
-- cost  O(limit log N). Reads only.
local Q, out = KEYS[2], {}
local groups = C('ZREVRANGE', Q .. 'errors', 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #groups, 2 do
  local newest = C('ZREVRANGE', Q .. 'error:' .. groups[i], 0, 0, 'WITHSCORES')
  out[#out + 1] = groups[i]
  out[#out + 1] = groups[i + 1]
  out[#out + 1] = newest[1]
  out[#out + 1] = newest[2]
  out[#out + 1] = C('HGET', Q .. 'rare', newest[1]) or ''
end
return out
