--! prelude
-- Locks: a key with the owner and the end of its time, which Redis lets lapse by itself too.
--
-- KEYS  1 shard
-- ARGV  2 name, 3 'acquire', 'extend' or 'release', 4 owner, 5 ttl
-- reply acquire: the fencing number, or ''; the others: 1 or 0
-- cost  O(1)
guard()
local key, owner = S .. 'lock:' .. ARGV[2], ARGV[4]
local ends, holder = string.match(C('GET', key) or '0 ', '^(%d+) (.*)$')
local isHeld = tonumber(ends) > now

-- With a test's clock only the written end counts.
local function hold()
  local value = int(now + tonumber(ARGV[5])) .. ' ' .. owner
  if ARGV[1] == '' then C('SET', key, value, 'PX', ARGV[5]) else C('SET', key, value) end
end

if ARGV[3] == 'acquire' then
  if isHeld then return '' end
  hold()
  -- One row of numbers for all locks: each lock's own numbers grow all the more.
  local fence = math.max((tonumber(C('GET', S .. 'fence')) or 0) + 1, now * 1000)
  C('SET', S .. 'fence', int(fence))
  return int(fence)
end
if not isHeld or holder ~= owner then return 0 end
if ARGV[3] == 'extend' then hold() else C('DEL', key) end
return 1
