-- What every script begins with.
--
-- KEYS[1] is the prefix of the shard, `{namespace.0}:`; every key that a script touches begins with it, so all of them
-- are in one slot. ARGV[1] is the time of a test's clock in ms, or empty: then the server's own time counts.
local C, S = redis.call, KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local t = C('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local DAY = 86400000
-- Sequence numbers in a priority.
local BAND = 8796093022208
-- How long a registration lasts that came with its task, and a record stays of which somebody was told.
local WATCHED = 60000
-- Records younger than this stay: the repeat of a settlement may still come.
local YOUNG = 10000
-- Fields of a lease hash that are no entries; they begin with a space, which ids cannot contain.
local BOOK = 8

local function int(x)
  return string.format('%d', x)
end

-- A message to whoever listens. Channels belong to the namespace, not to the shard. @returns how many listen, at this server
local function publish(channel, message)
  return C('PUBLISH', string.match(S, '^{(.*)%.%d+}:$') .. ':' .. channel, message)
end

-- Whether Redis lets this script write already. What was written once cannot be refused for memory later in the same
-- script, so a script that gives tasks back, ends or claims them begins with a command that needs none.
local dirty = false
local function guard()
  if dirty then return end
  dirty = true
  C('HDEL', S .. 'meta', ' ')
end
