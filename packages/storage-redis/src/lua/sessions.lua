-- Sessions of the shard. `own:<session>` is the lease hash: entries id -> `[+]token ms score[ w<until> <watcher>]`, and
-- the fields ` q` prefix of its queue, ` k` its kinds, ` w` its watcher, ` #` the newest token, ` !` what was taken from
-- it, ` o` how it ended, ` m` how many entries are marked, ` i` what was given at `open`. `sess` orders the living by the
-- time at which they become suspect, `susp` the suspects by the time of their condemnation, `lost` those that are over
-- and not empty.
local sessions = {}
local called = {}

local function session(id)
  local s = sessions[id]
  if s ~= nil then return s end
  local own = S .. 'own:' .. id
  local v = C('HMGET', own, ' q', ' k', ' w', ' #', ' !', ' o', ' i')
  if not v[1] then
    sessions[id] = false
    return false
  end
  s = { id = id, own = own, q = v[1], k = v[2], w = v[3], token = v[4], notes = v[5], over = v[6], packed = v[7] }
  sessions[id] = s
  return s
end

-- What was given at `open`.
local function given(s)
  s.unpacked = s.unpacked or cmsgpack.unpack(s.packed)
  return s.unpacked
end

-- Tells a session that there is work, or that something was taken from it; once in a step.
local function call(id)
  if called[id] then return end
  called[id] = true
  publish('wake:' .. id, '')
end

-- The record of its node, for as long as the session lives without another beat.
local function register(s)
  local k = recordKeys(given(s).tenant)
  local key = 'node:' .. s.id
  local _, old = recordRead(k, key)
  recordWrite(k, key, old, { v = 't' .. given(s).node, n = (old and old.n or 0) + 1, e = now + given(s).ttl })
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

-- Marks silent sessions suspect, and condemns those that have been suspect for long, at most 100 of each.
local function look()
  for _, id in ipairs(C('ZRANGEBYSCORE', S .. 'susp', '-inf', now, 'LIMIT', 0, 100)) do
    local s = session(id)
    guard()
    if s then close(s, 'condemned') else C('ZREM', S .. 'susp', id) end
  end
  for _, id in ipairs(C('ZRANGEBYSCORE', S .. 'sess', '-inf', now, 'LIMIT', 0, 100)) do
    local s = session(id)
    guard()
    C('ZREM', S .. 'sess', id)
    if s then C('ZADD', S .. 'susp', now + 0.4 * given(s).ttl, id) end
  end
end

-- A time that lies too far ahead tells that the clock was put back: it counts from now.
local function lookAhead()
  local last = C('ZREVRANGE', S .. 'sess', 0, 0, 'WITHSCORES')
  local s = last[1] and session(last[1])
  if s and tonumber(last[2]) > now + 0.6 * given(s).ttl then
    guard()
    C('ZREM', S .. 'sess', s.id)
    C('ZADD', S .. 'susp', now + 0.4 * given(s).ttl, s.id)
  end
  last = C('ZREVRANGE', S .. 'susp', 0, 0, 'WITHSCORES')
  s = last[1] and session(last[1])
  if s and tonumber(last[2]) > now + 0.4 * given(s).ttl then
    guard()
    C('ZADD', S .. 'susp', now + 0.4 * given(s).ttl, s.id)
  end
end

-- Notes that an entry was taken from a living session; it is told until it acknowledges.
local function noteTaken(s, id, token, reason)
  local seq, rest = string.match(s.notes, '^(%d+)|(.*)$')
  seq = int(seq + 1)
  s.notes = seq .. '|' .. rest .. seq .. ' ' .. id .. ' ' .. token .. ' ' .. reason .. ' '
  C('HSET', s.own, ' !', s.notes)
  call(s.id)
end
