-- Sessions of the shard. `own:<session>` is the lease hash: entries id -> `[+]token ms score[ w<until> <watcher>]`, and
-- the fields ` q` prefix of its queue, ` k` its kinds, ` w` its watcher, ` #` the newest token, ` !` what was taken from
-- it, ` o` how it ended, ` m` how many entries are marked, ` i` what was given at `open`. `sess` orders the living by the
-- time at which a look changes something: a silent one becomes suspect, a suspect is condemned. `susp` has the suspects,
-- `lost` those that are over and not empty.
local sessions = {}

local function session(id)
  local s = sessions[id]
  if s ~= nil then return s end
  local own = S .. 'own:' .. id
  local v = C('HMGET', own, ' q', ' k', ' w', ' #', ' !', ' o')
  if not v[1] then
    sessions[id] = false
    return false
  end
  s = { id = id, own = own, q = v[1], k = v[2], w = v[3], token = v[4], notes = v[5], over = v[6] }
  sessions[id] = s
  return s
end

-- What was given at `open`.
local function given(s)
  s.unpacked = s.unpacked or cmsgpack.unpack(C('HGET', s.own, ' i'))
  return s.unpacked
end

-- The record of its node, for as long as the session lives without another beat.
local function register(s)
  local k = recordKeys(given(s).tenant)
  local key = 'node:' .. s.id
  local record, old = recordRead(k, key)
  recordWrite(k, key, old, { v = 't' .. given(s).node, n = versionAfter(record, old), e = now + given(s).ttl })
end

local function beat(s)
  C('ZADD', S .. 'sess', now + 0.6 * given(s).ttl, s.id)
  C('ZREM', S .. 'susp', s.id)
  register(s)
end

local function close(s, how)
  s.over = how
  C('ZREM', S .. 'sess', s.id)
  C('ZREM', S .. 'susp', s.id)
  C('HDEL', s.q .. 'idle', s.id)
  C('HSET', s.own, ' o', how)
  C('ZADD', S .. 'lost', now, s.id)
  local k = recordKeys(given(s).tenant)
  local _, old = recordRead(k, 'node:' .. s.id)
  if old then recordDrop(k, 'node:' .. s.id, old) end
end

local function suspect(s)
  guard()
  C('ZADD', S .. 'susp', now, s.id)
  C('ZADD', S .. 'sess', now + 0.4 * given(s).ttl, s.id)
end

-- Marks silent sessions suspect, and condemns those that have been suspect for long, at most 100.
local function look()
  for _, id in ipairs(C('ZRANGEBYSCORE', S .. 'sess', '-inf', now, 'LIMIT', 0, 100)) do
    local s = session(id)
    if not s then
      guard()
      C('ZREM', S .. 'sess', id)
    elseif C('ZSCORE', S .. 'susp', id) then
      guard()
      close(s, 'condemned')
    else
      suspect(s)
    end
  end
end

-- A time that lies too far ahead tells that the clock was put back: it counts from now.
local function lookAhead()
  local last = C('ZREVRANGE', S .. 'sess', 0, 0, 'WITHSCORES')
  local s = last[1] and session(last[1])
  if s and tonumber(last[2]) > now + 0.6 * given(s).ttl then suspect(s) end
end

-- Notes that an entry was taken from a living session; it is told until it acknowledges. Written with the rest of the step.
local noted = {}
local function noteTaken(s, id, token, reason)
  local seq, rest = string.match(s.notes, '^(%d+)|(.*)$')
  seq = int(seq + 1)
  s.notes = seq .. '|' .. rest .. seq .. ' ' .. id .. ' ' .. token .. ' ' .. reason .. ' '
  noted[s.id] = s
  call(s.id)
end
local function writeNoted()
  for id, s in pairs(noted) do
    C('HSET', s.own, ' !', s.notes)
    noted[id] = nil
  end
end
