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

-- A message to whoever listens. Channels belong to the namespace, not to the shard.
local function publish(channel, message)
  C('PUBLISH', string.match(S, '^{(.*)%.%d+}:$') .. ':' .. channel, message)
end

-- Whether Redis lets this script write already. What was written once cannot be refused for memory later in the same
-- script, so a script that gives tasks back, ends or claims them begins with a command that needs none.
local dirty = false
local function guard()
  if dirty then return end
  dirty = true
  C('HDEL', S .. 'meta', ' ')
end

-- Of the packed definition of a task, see definition.ts: its creation, whether a watcher came with it, priority, kind, the
-- other texts of its header, and the size of its payload.
local function createdOf(d)
  local a, b, c, e, f, g = string.byte(d, 1, 6)
  return ((((a * 256 + b) * 256 + c) * 256 + e) * 256 + f) * 256 + g
end
local function stamp(ms)
  local bytes = {}
  for i = 6, 1, -1 do
    bytes[i] = string.char(ms % 256)
    ms = math.floor(ms / 256)
  end
  return table.concat(bytes)
end
local function isWatched(d)
  return string.byte(d, 7) % 2 == 1
end
local function priorityOf(d)
  return string.byte(d, 8) * 128 + string.byte(d, 9)
end
local function isShort(d)
  return string.byte(d, 7) % 8 >= 4
end
local function kindOf(d)
  return string.match(d, '^%S*', isShort(d) and 10 or 13)
end
-- @returns kind, watcher, nonce, codec, size of the options or '', where they begin
local function headerOf(d)
  if isShort(d) then
    local kind, from = string.match(d, '^(%S*) ()', 10)
    return kind, '', '', 'json', '', from
  end
  return string.match(d, '^(%S*) (%S*) (%S*) (%S*) (%S*) ()', 13)
end
local function watcherOf(d)
  local _, watcher = headerOf(d)
  return watcher
end
local function nonceOf(d)
  local _, _, nonce = headerOf(d)
  return nonce
end
local function sizeOf(d)
  if isShort(d) then return #d - string.find(d, ' ', 10, true) end
  local a, b, c = string.byte(d, 10, 12)
  return #d - (a * 128 + b) * 128 - c
end

-- Whether an id has the form that the library generates: such ids leave no tombstone.
local function isGenerated(id)
  return #id == 16 and string.byte(id, 10) == 45 and string.find(id, '^%w+%-%w+$') ~= nil
end
