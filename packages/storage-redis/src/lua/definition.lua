-- Of the packed definition of a task, see definition.ts. Its first byte holds the flags, times 4, and two bits of the time:
-- 1 whether a watcher came with it, 2 a payload of bytes, 4 a short header, 8 a priority, 16 a kind.
local USUAL_PRIORITY = 2
-- Flags are a letter in arguments.
local LETTER = 64
local function createdOf(d)
  local a, b, c, e, f, g = string.byte(d, 1, 6)
  return ((((a % 4 * 256 + b) * 256 + c) * 256 + e) * 256 + f) * 256 + g
end
-- What stands in front of a definition that is made now.
local stamps = {}
local function stamp(letter)
  local known = stamps[letter]
  if known then return known end
  local bytes, ms = {}, now
  for i = 6, 1, -1 do
    bytes[i] = ms % 256
    ms = math.floor(ms / 256)
  end
  bytes[1] = bytes[1] % 4 + (letter - LETTER) * 4
  known = string.char(unpack(bytes))
  stamps[letter] = known
  return known
end
local function isWatched(d)
  return string.byte(d) % 8 >= 4
end
local function isBytes(d)
  return string.byte(d) % 16 >= 8
end
local function isShort(d)
  return string.byte(d) % 32 >= 16
end
local function hasPriority(d)
  return string.byte(d) % 64 >= 32
end
local function hasKind(d)
  return string.byte(d) >= 64
end
local function priorityOf(d)
  if not hasPriority(d) then return USUAL_PRIORITY end
  return string.byte(d, 7) * 128 + string.byte(d, 8)
end
-- Where the header begins.
local function headerFrom(d)
  return hasPriority(d) and 9 or 7
end
local function kindOf(d)
  if not hasKind(d) then return '' end
  return string.match(d, '^%S*', headerFrom(d) + (isShort(d) and 0 or 3))
end
-- @returns kind, watcher, nonce, codec, size of the options or '', where they begin
local function headerOf(d)
  local at = headerFrom(d)
  if not isShort(d) then return string.match(d, '^(%S*) (%S*) (%S*) (%S*) (%S*) ()', at + 3) end
  local kind, from = '', at
  if hasKind(d) then kind, from = string.match(d, '^(%S*) ()', at) end
  return kind, '', '', 'json', '', from
end
local function watcherOf(d)
  local _, watcher = headerOf(d)
  return watcher
end
local function nonceOf(d)
  local _, _, nonce = headerOf(d)
  return nonce
end
-- Of the payload.
local function sizeOf(d)
  local at = headerFrom(d)
  if isShort(d) then return #d - (hasKind(d) and string.find(d, ' ', at, true) or at - 1) end
  local a, b, c = string.byte(d, at, at + 2)
  return #d - at - 2 - (a * 128 + b) * 128 - c
end

-- Whether an id has the form that the library generates: such ids leave no tombstone.
local function isGenerated(id)
  return #id == 14 and string.find(id, '^%w+~$') ~= nil
end
