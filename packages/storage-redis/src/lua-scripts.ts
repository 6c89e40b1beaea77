// Made of src/lua by scripts/embed-lua.mjs.
const PARTS = {
  prelude: `local C, S = redis.call, KEYS[1]
local now = tonumber(ARGV[1])
if not now then
local t = C('TIME')
now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local DAY = 86400000
local BAND = 8796093022208
local WATCHED = 60000
local YOUNG = 10000
local BOOK = 8
local function int(x)
return string.format('%d', x)
end
local function publish(channel, message)
return C('PUBLISH', string.match(S, '^{(.*)%.%d+}:$') .. ':' .. channel, message)
end
local dirty = false
local function guard()
if dirty then return end
dirty = true
C('HDEL', S .. 'meta', ' ')
end`,
  definition: `local USUAL_PRIORITY = 2
local LETTER = 64
local function createdOf(d)
local a, b, c, e, f, g = string.byte(d, 1, 6)
return ((((a % 4 * 256 + b) * 256 + c) * 256 + e) * 256 + f) * 256 + g
end
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
local function headerFrom(d)
return hasPriority(d) and 9 or 7
end
local function kindOf(d)
if not hasKind(d) then return '' end
return string.match(d, '^%S*', headerFrom(d) + (isShort(d) and 0 or 3))
end
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
local function sizeOf(d)
local at = headerFrom(d)
if isShort(d) then return #d - (hasKind(d) and string.find(d, ' ', at, true) or at - 1) end
local a, b, c = string.byte(d, at, at + 2)
return #d - at - 2 - (a * 128 + b) * 128 - c
end
local function isGenerated(id)
return #id == 14 and string.find(id, '^%w+~$') ~= nil
end`,
  records: `local function recordKeys(tenant)
return {
all = S .. 'rec:' .. tenant,
keys = S .. 'reckeys:' .. tenant,
due = S .. 'recdue:' .. tenant .. ':',
groups = S .. 'recgroups:' .. tenant,
ends = S .. 'recend:' .. tenant,
label = S .. 'reclabel:' .. tenant .. ':',
}
end
local function groupOf(key)
return string.match(key, '^[^/]*/') or ''
end
local function recordRead(k, key)
local packed = C('HGET', k.all, key)
local record = packed and cmsgpack.unpack(packed)
if not record then return nil, nil end
if record.e and record.e <= now then return nil, record end
return record, record
end
local removed
local function lastRemoved()
removed = removed or tonumber(C('HGET', S .. 'meta', 'version') or 0)
return removed
end
local function versionAfter(record, old)
if record then return record.n + 1 end
return math.max(lastRemoved() + 1, old and old.n + 1 or 1, math.floor(now * 1000))
end
local function recordDrop(k, key, record)
C('HDEL', k.all, key)
if record.n and record.n > lastRemoved() then
removed = record.n
C('HSET', S .. 'meta', 'version', int(removed))
end
C('ZREM', k.keys, key)
C('ZREM', k.due .. groupOf(key), key)
C('ZREM', k.ends, key)
for _, label in ipairs(record.l or {}) do C('ZREM', k.label .. label, key) end
end
local function recordWrite(k, key, old, record)
if old then
for _, label in ipairs(old.l or {}) do C('ZREM', k.label .. label, key) end
if old.d and not record.d then C('ZREM', k.due .. groupOf(key), key) end
if old.e and not record.e then C('ZREM', k.ends, key) end
end
C('HSET', k.all, key, cmsgpack.pack(record))
if not old then C('ZADD', k.keys, 0, key) end
if record.d then
local group = groupOf(key)
if C('ZADD', k.due .. group, record.d, key) == 1 then C('SADD', k.groups, group) end
end
if record.e then C('ZADD', k.ends, record.e, key) end
for _, label in ipairs(record.l or {}) do C('ZADD', k.label .. label, 0, key) end
end
local function recordPrune(k, limit)
local gone = C('ZRANGEBYSCORE', k.ends, '-inf', now, 'LIMIT', 0, limit)
for _, key in ipairs(gone) do
local _, record = recordRead(k, key)
recordDrop(k, key, record or {})
end
return #gone
end`,
  idle: `local WAKE_LIMIT = 16
local called, idle = {}, {}
local function call(id)
if called[id] then return end
called[id] = true
publish('wake:' .. id, '')
end
local function wakeIdle(Q, limit, kind)
local list = idle[Q]
if not list then
list = {}
idle[Q] = list
local some = C('HRANDFIELD', Q .. 'idle', 64, 'WITHVALUES')
for i = 1, #some, 2 do list[#list + 1] = { some[i], some[i + 1] } end
end
local left = math.min(limit, WAKE_LIMIT)
for _, one in ipairs(list) do
if left == 0 then return end
if one[1] and (not kind or string.find(one[2], ' ' .. kind .. ' ', 1, true)) then
guard()
C('HDEL', Q .. 'idle', one[1])
call(one[1])
one[1] = false
left = left - 1
end
end
end
local function publishHead(Q, priority, origin)
local name = string.gsub(string.sub(Q, #S + 1, -2), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end)
publish('head:' .. name, int(priority) .. (origin and ' ' .. origin or ''))
end`,
  sessions: `local sessions = {}
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
local function given(s)
s.unpacked = s.unpacked or cmsgpack.unpack(C('HGET', s.own, ' i'))
return s.unpacked
end
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
local function lookAhead()
local last = C('ZREVRANGE', S .. 'sess', 0, 0, 'WITHSCORES')
local s = last[1] and session(last[1])
if s and tonumber(last[2]) > now + 0.6 * given(s).ttl then suspect(s) end
end
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
end`,
  queue: `local queues = {}
local function queue(Q)
if queues[Q] then return queues[Q] end
local q = { Q = Q, ended = {}, fresh = 0 }
local DEFS, READY, DUE, NEED, ASIDE = Q .. 'defs', Q .. 'ready', Q .. 'due', Q .. 'need', Q .. 'aside'
local RES, RARE, WAITS, DEADLINE = Q .. 'res', Q .. 'rare', Q .. 'waits', Q .. 'deadline'
local META, LEASES, IDLE, CASC, SWEEP = Q .. 'meta', Q .. 'leases', Q .. 'idle', Q .. 'casc', Q .. 'sweep'
local GROUPS, RECORDS, FADE, ERRORS = Q .. 'groups', Q .. 'grouped', Q .. 'fade', Q .. 'errors'
local TOMBS, TOMBTIMES, WINDOWS = Q .. 'tombs', Q .. 'tombtimes', Q .. 'windows'
local FINAL = { s = true, f = true, c = true, k = true }
local T = {}
local touched = {}
local places = {}
local kids, members, grouped, errors, failures, history = {}, {}, {}, {}, {}, {}
local later = {}
local finals = {}
local kinds = {}
local asideKinds = {}
q.tasks = T
local function put(map, key, member, value)
local inner = map[key]
if not inner then
inner = {}
map[key] = inner
end
inner[member] = value
end
local function touch(t)
if not t.touched then
t.touched = true
touched[#touched + 1] = t
end
end
local function rare(t)
touch(t)
t.rareChanged = true
if not t.r then t.r = {} end
return t.r
end
function q.load(ids)
local missing = {}
for i = 1, #ids do
if T[ids[i]] == nil then
T[ids[i]] = false
missing[#missing + 1] = ids[i]
end
end
if #missing == 0 then return end
local defs, rares = C('HMGET', DEFS, unpack(missing)), C('HMGET', RARE, unpack(missing))
local results = C('HMGET', RES, unpack(missing))
local left = {}
for i = 1, #missing do
if defs[i] then
local t = { id = missing[i], d = defs[i], r = rares[i] and cmsgpack.unpack(rares[i]) or nil }
T[t.id] = t
if results[i] then
t.res = results[i]
t.p = string.sub(t.res, 1, 1)
t.from, t.fromRes = t.p, t.res
else
left[#left + 1] = t
end
end
end
for _, place in ipairs({ { 'r', READY }, { 'd', DUE }, { 'n', NEED }, { 'l', ASIDE } }) do
if #left == 0 then return end
local names, rest = {}, {}
for i = 1, #left do names[i] = left[i].id end
local scores = C('ZMSCORE', place[2], unpack(names))
for i = 1, #left do
local t = left[i]
if scores[i] then
t.p, t.v = place[1], tonumber(scores[i])
t.from, t.fromV = t.p, t.v
else
rest[#rest + 1] = t
end
end
left = rest
end
if #left == 0 then return end
for _, id in ipairs(C('SMEMBERS', LEASES)) do
if #left == 0 then return end
local names, rest = {}, {}
for i = 1, #left do names[i] = left[i].id end
local entries = C('HMGET', S .. 'own:' .. id, unpack(names))
for i = 1, #left do
local t = left[i]
if entries[i] then
t.p, t.session, t.e = 'o', id, entries[i]
t.from, t.fromSession, t.fromE = 'o', id, t.e
else
rest[#rest + 1] = t
end
end
left = rest
end
end
function q.loadHeld(sid, ids, entries)
local missing = {}
for i = 1, #ids do
if T[ids[i]] == nil then missing[#missing + 1] = i end
end
if #missing == 0 then return end
local names = {}
for i = 1, #missing do names[i] = ids[missing[i]] end
local defs, rares = C('HMGET', DEFS, unpack(names)), C('HMGET', RARE, unpack(names))
for i = 1, #names do
local e = entries[missing[i]]
local t = { id = names[i], d = defs[i], r = rares[i] and cmsgpack.unpack(rares[i]) or nil }
T[t.id] = defs[i] and t or false
t.p, t.session, t.e = 'o', sid, e
t.from, t.fromSession, t.fromE = 'o', sid, e
end
end
function q.create(id, d)
local t = { id = id, d = d, new = true, defChanged = true }
T[id] = t
touch(t)
return t
end
function q.since(t, at)
if t.new and at == now then return end
rare(t).s = at
end
function q.tokenOf(t)
return tonumber(string.match(t.e, '^%+?(%d+)'))
end
function q.scoreOf(t)
return tonumber(string.match(t.e, '^%+?%d+ %d+ (%S+)'))
end
local flags = {}
local function flagsOf(group)
local f = flags[group]
if not f then
local v = C('HGET', GROUPS, group) or ''
f = { c = string.find(v, 'c', 1, true) ~= nil, p = string.find(v, 'p', 1, true) ~= nil }
flags[group] = f
end
return f
end
local function isDoomed(t)
local r = t.r
return r and r.g and not r.x and flagsOf(r.g).c
end
function q.toReady(t, score)
touch(t)
if isDoomed(t) then return q.endByGroup(t) end
local kind = kindOf(t.d)
kinds[kind] = (kinds[kind] or 0) + 1
q.fresh = q.fresh + 1
t.p, t.v, t.session, t.e = 'r', score, nil, nil
if not score then places[#places + 1] = t end
q.since(t, now)
end
function q.schedule(t, at)
touch(t)
if isDoomed(t) then return q.endByGroup(t) end
t.p, t.v, t.session, t.e = 'd', at, nil, nil
if not q.soonest or at < q.soonest then q.soonest, q.soonestKind = at, kindOf(t.d) end
q.since(t, now)
end
function q.free(t)
local r = t.r
if r and (r.dl or r.ra) then
local at = math.max(r.dl and now + r.dl or 0, r.ra or 0)
rare(t).dl = nil
r.ra = nil
if at > now then return q.schedule(t, at) end
end
q.toReady(t)
end
function q.block(t)
touch(t)
t.p, t.v, t.session, t.e = 'n', now, nil, nil
q.since(t, now)
end
function q.setDeadline(t, at)
rare(t).D = at
t.deadlineChanged = true
end
function q.clearDeadline(t)
if not t.r or not t.r.D then return end
rare(t).D = nil
t.deadlineChanged = true
end
function q.addParents(t, ids, on)
local r = rare(t)
local all, seen = {}, {}
for _, list in ipairs({ r.a or {}, ids }) do
for _, id in ipairs(list) do
if not seen[id] then
seen[id] = true
all[#all + 1] = id
end
end
end
if #all > 0 then r.a = all end
r.m = on
local open, known = r.o or {}, {}
for _, id in ipairs(open) do known[id] = true end
for _, id in ipairs(ids) do
local parent = T[id]
if not parent.r or not parent.r.k then rare(parent).k = true end
if FINAL[parent.p] then
put(kids, id, t.id, 0)
else
put(kids, id, t.id, now)
if not known[id] then
known[id] = true
open[#open + 1] = id
end
end
end
if #open > 0 then r.o = open end
end
function q.isRefused(ids, on)
if on ~= 's' then return false end
for _, id in ipairs(ids) do
local p = T[id].p
if FINAL[p] and p ~= 's' then return true end
end
return false
end
function q.setPriority(t, priority)
touch(t)
t.defChanged = true
local d = t.d
local first = string.byte(d) + (hasPriority(d) and 0 or 32)
t.d = string.char(first) .. string.sub(d, 2, 6) .. string.char(math.floor(priority / 128), priority % 128) .. string.sub(d, headerFrom(d))
end
function q.redefine(t, isBytes, codec, payload, options)
touch(t)
t.defChanged = true
local d = t.d
local kind, watcher, nonce, oldCodec, size, from = headerOf(d)
local old = size ~= '' and string.sub(d, from, from + size - 1) or nil
if options == nil then options = old end
local head = kind .. ' ' .. watcher .. ' ' .. nonce .. ' ' .. (codec or oldCodec) .. ' ' .. (options and int(#options) or '') .. ' ' .. (options or '')
local first = string.byte(d)
first = first - first % 32 + first % 8 + (isBytes and 8 or 0)
t.d = string.char(first) .. string.sub(d, 2, headerFrom(d) - 1)
.. string.char(math.floor(#head / 16384), math.floor(#head / 128) % 128, #head % 128) .. head .. payload
end
function q.unwatch(t)
if not isWatched(t.d) then return end
touch(t)
t.defChanged = true
t.d = string.char(string.byte(t.d) - 4) .. string.sub(t.d, 2)
end
local function waitsOf(t)
if not t.w then
if q.hasWaits == nil then q.hasWaits = C('EXISTS', WAITS) == 1 end
local v = q.hasWaits and C('HGET', WAITS, t.id)
t.w = v and cmsgpack.unpack(v) or {}
t.hasWaits = v and true or false
end
return t.w
end
q.waitsOf = waitsOf
local function setWaits(t, list)
touch(t)
t.w = list
t.waitsChanged = true
end
local function sendFinal(watcher, id)
local list = finals[watcher]
if not list then
list = {}
finals[watcher] = list
end
list[#list + 1] = id
end
function q.keep(t)
local list = waitsOf(t)
if list[2] and list[2] >= now + WATCHED then return end
setWaits(t, { '', now + WATCHED })
end
function q.watch(t, watcher, ttl)
if FINAL[t.p] then
sendFinal(watcher, t.id)
return q.keep(t)
end
local list, rest = waitsOf(t), {}
for i = 1, #list, 2 do
if list[i] == watcher and list[i + 1] >= now + ttl then return end
if list[i] ~= watcher and list[i + 1] > now then
rest[#rest + 1] = list[i]
rest[#rest + 1] = list[i + 1]
end
end
rest[#rest + 1] = watcher
rest[#rest + 1] = now + ttl
setWaits(t, rest)
end
function q.tell(t, but)
local told = {}
if isWatched(t.d) and createdOf(t.d) + WATCHED > now then
told[watcherOf(t.d)] = true
end
local list = waitsOf(t)
for i = 1, #list, 2 do
if list[i + 1] > now then told[list[i]] = true end
end
if but then told[but] = nil end
if #list > 0 then setWaits(t, {}) end
local any = false
for watcher in pairs(told) do
any = true
sendFinal(watcher, t.id)
end
return any
end
local function gather(list, command, key, a, b)
local byKey = list[command]
if not byKey then
byKey = {}
list[command] = byKey
end
local l = byKey[key]
if not l then
l = { command, key }
byKey[key] = l
list[#list + 1] = l
end
l[#l + 1] = a
if b ~= nil then l[#l + 1] = b end
end
local function carryOut(list)
for i = 1, #list do
local l = list[i]
if #l <= 4002 then
C(unpack(l))
else
for from = 3, #l, 4000 do C(l[1], l[2], unpack(l, from, math.min(from + 3999, #l))) end
end
dirty = true
end
end
local function laneKeys(t)
local kind = Q .. 'lane:kind:' .. kindOf(t.d)
return kind, t.r and t.r.g and Q .. 'lane:group:' .. t.r.g
end
local function takeOut(out, t, marks)
local id, from = t.id, t.from
if from == 'o' then
if t.p == 'o' and t.session == t.fromSession then return end
gather(out, 'HDEL', S .. 'own:' .. t.fromSession, id)
if string.byte(t.fromE) == 43 then marks[t.fromSession] = (marks[t.fromSession] or 0) - 1 end
elseif from == 'l' then
if t.p == 'l' and t.lane == nil then return end
if t.p ~= 'l' then gather(out, 'ZREM', ASIDE, id) end
local kind, group = laneKeys(t)
gather(out, 'ZREM', kind, id)
if group then gather(out, 'ZREM', group, id) end
elseif t.p ~= from or t.res ~= t.fromRes then
if from == 'r' then gather(out, 'ZREM', READY, id)
elseif from == 'd' then gather(out, 'ZREM', DUE, id)
elseif from == 'n' then gather(out, 'ZREM', NEED, id)
elseif from then
gather(out, 'HDEL', RES, id)
gather(out, 'ZREM', Q .. 'done:' .. from, id)
gather(out, 'ZREM', Q .. 'kept:' .. from, id)
gather(out, 'ZREM', Q .. 'look:' .. from, id)
end
end
end
local function putIn(into, t, marks, ends)
local id, p = t.id, t.p
if p == 'r' then
if t.from ~= 'r' or t.v ~= t.fromV then gather(into, 'ZADD', READY, t.v, id) end
elseif p == 'l' then
local kind, group = laneKeys(t)
if t.from ~= 'l' or t.v ~= t.fromV or t.lane ~= nil then
gather(into, 'ZADD', ASIDE, t.v, id)
local lane = t.lane or (t.from == 'l' and C('ZSCORE', kind, id) and 'kind') or 'group'
gather(into, 'ZADD', lane == 'kind' and kind or group, t.v, id)
end
elseif p == 'd' then
if t.from ~= 'd' or t.v ~= t.fromV then gather(into, 'ZADD', DUE, t.v, id) end
elseif p == 'n' then
if t.from ~= 'n' then gather(into, 'ZADD', NEED, t.v, id) end
elseif p == 'o' then
if t.e ~= t.fromE or t.session ~= t.fromSession then
gather(into, 'HSET', S .. 'own:' .. t.session, id, t.e)
local was = t.session == t.fromSession and string.byte(t.fromE) == 43
if string.byte(t.e) == 43 and not was then marks[t.session] = (marks[t.session] or 0) + 1 end
end
elseif p and (t.from ~= p or t.res ~= t.fromRes) then
gather(into, 'HSET', RES, id, t.res)
gather(into, 'ZADD', Q .. 'done:' .. p, ends(), id)
end
end
function q.flush(mayBeRefused)
if #touched == 0 and next(kids) == nil and next(members) == nil and next(grouped) == nil then return end
local list = touched
touched = {}
local out, into, marks = {}, {}, {}
if q.fresh > 0 and not q.headBefore then
local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')
q.headBefore = head[2] and math.floor(head[2] / BAND) or math.huge
end
if q.soonest and not q.nextBefore then q.nextBefore = q.nextTime() or math.huge end
for i = 1, #list do
local t = list[i]
t.touched = nil
takeOut(out, t, marks)
if not t.p then
if t.from or not t.new then gather(out, 'HDEL', DEFS, t.id) end
if t.r and not t.new then gather(out, 'HDEL', RARE, t.id) end
end
if t.rareChanged and t.p and next(t.r) == nil then gather(out, 'HDEL', RARE, t.id) end
if t.deadlineChanged and not (t.p and t.r.D) then gather(out, 'ZREM', DEADLINE, t.id) end
if t.waitsChanged and (#t.w == 0 or not t.p) and t.hasWaits then gather(out, 'HDEL', WAITS, t.id) end
end
for parent, some in pairs(kids) do
for id, score in pairs(some) do
if score then gather(into, 'ZADD', Q .. 'kids:' .. parent, score, id) else gather(out, 'ZREM', Q .. 'kids:' .. parent, id) end
end
end
for fingerprint, some in pairs(failures) do
for id, at in pairs(some) do
if at then gather(into, 'ZADD', Q .. 'error:' .. fingerprint, at, id) else gather(out, 'ZREM', Q .. 'error:' .. fingerprint, id) end
end
end
local joined = 0
for group, some in pairs(members) do
for id, is in pairs(some) do
if is then joined = joined + 1 else gather(out, 'ZREM', Q .. 'members:' .. group, id) end
end
end
carryOut(out)
if not mayBeRefused then guard() end
local numbered = joined
for i = 1, #places do
if places[i].p == 'r' and not places[i].v then numbered = numbered + 1 end
end
if numbered > 0 then
local number = C('HINCRBY', META, 'seq', numbered) - numbered
dirty = true
for i = 1, #places do
local t = places[i]
if t.p == 'r' and not t.v then
number = number + 1
t.v = priorityOf(t.d) * BAND + number
end
end
for group, some in pairs(members) do
for id, is in pairs(some) do
if is then
number = number + 1
gather(into, 'ZADD', Q .. 'members:' .. group, number, id)
end
end
end
end
places = {}
local ending = 0
for i = 1, #list do
if FINAL[list[i].p] and list[i].res ~= list[i].fromRes then ending = ending + 1 end
end
local number = ending > 0 and C('HINCRBY', META, 'ends', ending) - ending
local function ends()
number = number + 1
return now * 2048 + number % 2048
end
for i = 1, #list do
local t = list[i]
if t.p then
if t.defChanged then gather(into, 'HSET', DEFS, t.id, t.d) end
if t.rareChanged and next(t.r) ~= nil then gather(into, 'HSET', RARE, t.id, cmsgpack.pack(t.r)) end
putIn(into, t, marks, ends)
if t.deadlineChanged and t.r.D then gather(into, 'ZADD', DEADLINE, t.r.D, t.id) end
if t.waitsChanged and #t.w > 0 then
gather(into, 'HSET', WAITS, t.id, cmsgpack.pack(t.w))
t.hasWaits = true
q.hasWaits = true
end
t.new, t.defChanged, t.rareChanged, t.deadlineChanged, t.waitsChanged, t.lane = nil, nil, nil, nil, nil, nil
t.from, t.fromV, t.fromSession, t.fromE, t.fromRes = t.p, t.v, t.session, t.e, t.res
else
T[t.id] = false
end
end
carryOut(into)
carryOut(later)
later = {}
writeNoted()
for id, by in pairs(marks) do
if by ~= 0 then C('HINCRBY', S .. 'own:' .. id, ' m', by) end
end
for group, by in pairs(grouped) do
if by ~= 0 and C('HINCRBY', RECORDS, group, by) <= 0 then q.fade(group) end
end
for fingerprint, by in pairs(errors) do
if by ~= 0 and tonumber(C('ZINCRBY', ERRORS, by, fingerprint)) <= 0 then C('ZREM', ERRORS, fingerprint) end
end
local minute = int(now - now % 60000)
for what, by in pairs(history) do C('HINCRBY', Q .. 'hist', minute .. what, by) end
kids, members, grouped, errors, failures, history = {}, {}, {}, {}, {}, {}
end
q.rare = rare
q.isDoomed = isDoomed
local function count(what, by)
history[what] = (history[what] or 0) + by
end
q.count = count
local function untie(t)
local r = rare(t)
q.clearDeadline(t)
r.su = nil
r.o = nil
if r.g and not r.x then put(members, r.g, t.id, false) end
for _, id in ipairs(r.a or {}) do put(kids, id, t.id, false) end
end
local function countError(t, by)
local fingerprint = t.r and (t.r.f or t.r.re) or ''
errors[fingerprint] = (errors[fingerprint] or 0) + by
put(failures, fingerprint, t.id, by > 0 and now)
end
function q.finish(t, p, token, tail, but)
touch(t)
local told = q.tell(t, but)
t.p, t.v, t.session, t.e = p, nil, nil, nil
t.res = p .. int(token) .. ' ' .. int(now) .. (told and '! ' or ' ') .. tail
count(p, 1)
q.ended[p] = (q.ended[p] or 0) + 1
if not t.r then return end
untie(t)
if t.r.k then gather(later, 'RPUSH', CASC, t.id) end
if p == 'f' then countError(t, 1) end
end
function q.leave(t)
touch(t)
t.p, t.session = nil, nil
end
function q.takeAway(t, reason)
if t.p ~= 'o' then return nil end
local s = session(t.session)
q.leave(t)
if s and s.over == '' then
guard()
noteTaken(s, t.id, int(q.tokenOf(t)), reason)
end
return s
end
function q.fail(t, p, reason, message)
local r = rare(t)
r.re, r.ms = reason, message
q.takeAway(t, 'c')
q.finish(t, p, 0, r.du or '')
end
function q.endByGroup(t)
q.fail(t, 'c', 'GROUP_CANCELLED')
end
function q.takeBack(t, counts, maxReclaims)
local r = rare(t)
if not counts then
r.pb = true
else
r.rc = (r.rc or 0) + 1
if r.rc > maxReclaims then
q.fail(t, 'f', 'POISON')
return true
end
end
q.toReady(t, q.scoreOf(t))
return false
end
function q.reprioritize(t, priority)
q.setPriority(t, priority)
if t.p == 'l' then
t.v = priority * BAND + t.v % BAND
elseif t.p == 'r' and t.v then
local since = t.r and t.r.s
q.toReady(t, priority * BAND + t.v % BAND)
if t.p == 'r' then rare(t).s = since end
end
end
function q.revive(t)
if t.p == 'f' then countError(t, -1) end
local r = rare(t)
r.at, r.rc, r.pb, r.to, r.h, r.su, r.dl, r.ra, r.e, r.f, r.re, r.ms, r.du, r.pr, r.wo = nil
t.res = nil
q.unwatch(t)
if #q.waitsOf(t) > 0 then setWaits(t, {}) end
if r.g and not r.x then put(members, r.g, t.id, true) end
q.load(r.a or {})
for _, id in ipairs(r.a or {}) do
local parent = T[id]
if parent and parent.p then
put(kids, id, t.id, 0)
if not parent.r or not parent.r.k then rare(parent).k = true end
end
end
q.toReady(t)
end
function q.forget(t)
touch(t)
local p = t.p
if not isGenerated(t.id) then
gather(later, 'HSET', TOMBS, t.id, int(now + DAY) .. ' ' .. nonceOf(t.d))
gather(later, 'ZADD', TOMBTIMES, now + DAY, t.id)
end
if not FINAL[p] then q.tell(t) end
if #q.waitsOf(t) > 0 then setWaits(t, {}) end
local r = t.r
if r then
if r.wk and C('HGET', WINDOWS, r.wk) == t.id then
guard()
C('HDEL', WINDOWS, r.wk)
end
if not FINAL[p] then untie(t) end
if r.g then grouped[r.g] = (grouped[r.g] or 0) - 1 end
end
if p == 'f' then countError(t, -1) end
t.p, t.v, t.session, t.e = nil, nil, nil, nil
end
function q.neededBy(t)
return t.r and t.r.k and C('ZRANGE', Q .. 'kids:' .. t.id, 0, 0)[1] or nil
end
function q.promoteDue(limit)
local ids = C('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, limit)
if #ids == 0 then return 0 end
q.load(ids)
for i = 1, #ids do q.toReady(T[ids[i]]) end
q.flush()
return #ids
end
local function unblock(t)
local r = rare(t)
r.o = nil
if r.su then
r.su = nil
q.clearDeadline(t)
end
q.free(t)
end
function q.passDeadlines(limit)
local ids = C('ZRANGEBYSCORE', DEADLINE, '-inf', now, 'LIMIT', 0, limit)
if #ids == 0 then return 0 end
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
if not t.r.su then
q.fail(t, 'c', 'TASK_EXPIRED')
else
local r = rare(t)
local open, rest = {}, {}
for _, id in ipairs(r.o or {}) do
open[id] = true
put(kids, id, t.id, false)
end
for _, id in ipairs(r.a or {}) do
if not open[id] then rest[#rest + 1] = id end
end
r.a = #rest > 0 and rest or nil
r.to = true
unblock(t)
end
end
q.flush()
return #ids
end
local function hear(t, parent, state)
local r = t and t.r
if not t or not t.p or FINAL[t.p] then
put(kids, parent, t and t.id or nil, false)
return
end
put(kids, parent, t.id, 0)
if t.p ~= 'n' then return end
local rest, named = {}, false
for _, id in ipairs(r.o or {}) do
if id == parent then named = true else rest[#rest + 1] = id end
end
if not named then return end
rare(t).o = #rest > 0 and rest or nil
if state ~= 's' and r.m == 's' then
q.fail(t, 'c', 'DEPENDENCY_FAILED')
elseif #rest == 0 and not r.h then
unblock(t)
end
end
function q.release(limit)
local done = 0
while done < limit do
local parents = C('LRANGE', CASC, 0, 49)
if #parents == 0 then break end
local results = C('HMGET', RES, unpack(parents))
local pairsOf, ids, over = {}, {}, 0
for i = 1, #parents do
local room = limit - done
local some = results[i] and C('ZRANGEBYSCORE', Q .. 'kids:' .. parents[i], '(0', '+inf', 'LIMIT', 0, room) or {}
for j = 1, #some do
pairsOf[#pairsOf + 1] = { some[j], parents[i], string.sub(results[i], 1, 1) }
ids[#ids + 1] = some[j]
end
done = done + #some
if #some == room then break end
over = over + 1
end
q.load(ids)
for i = 1, #pairsOf do
local one = pairsOf[i]
if T[one[1]] then hear(T[one[1]], one[2], one[3]) else put(kids, one[2], one[1], false) end
end
q.flush()
guard()
C('LTRIM', CASC, over, -1)
end
return done
end
function q.join(t, group, exempt)
local r = rare(t)
r.g = group
r.x = exempt or nil
grouped[group] = (grouped[group] or 0) + 1
if not exempt then put(members, group, t.id, true) end
end
local function hasFlags(f)
return f.c or f.p
end
function q.fade(group)
C('HDEL', RECORDS, group)
if hasFlags(flagsOf(group)) then C('ZADD', FADE, now + DAY, group) end
end
function q.flag(group, cancelled, paused)
local f = flagsOf(group)
guard()
if cancelled and not f.c then
f.c = true
C('RPUSH', SWEEP, 'c0 ' .. group)
end
if paused ~= nil then
if f.p and not paused then C('RPUSH', SWEEP, 'p ' .. group) end
f.p = paused
end
if hasFlags(f) then C('HSET', GROUPS, group, (f.c and 'c' or '') .. (f.p and 'p' or '')) else C('HDEL', GROUPS, group) end
if hasFlags(f) and C('HEXISTS', RECORDS, group) == 0 then C('ZADD', FADE, now + DAY, group) end
end
local function sweepCancelled(group, position, limit)
local list = C('ZRANGEBYSCORE', Q .. 'members:' .. group, '(' .. position, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
local ids = {}
for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
if t and t.p and not FINAL[t.p] and (t.p ~= 'n' or t.r.h) then q.endByGroup(t) end
end
q.flush()
guard()
if #ids < limit then C('LPOP', SWEEP) else C('LSET', SWEEP, 0, 'c' .. list[#list] .. ' ' .. group) end
return #ids
end
local function sweepResumed(group, limit)
local ids = flagsOf(group).p and {} or C('ZRANGE', Q .. 'lane:group:' .. group, 0, limit - 1)
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
local since = t.r.s
q.toReady(t, t.v)
if t.p == 'r' then rare(t).s = since end
end
q.flush()
guard()
if #ids < limit then C('LPOP', SWEEP) end
return #ids
end
function q.sweep(limit)
local done = 0
while done < limit do
local first = C('LINDEX', SWEEP, 0)
if not first then break end
local what, position, group = string.match(first, '^(%a)(%S*) (.*)$')
if what == 'c' then
done = done + sweepCancelled(group, position, limit - done)
else
done = done + sweepResumed(group, limit - done)
end
end
return done
end
function q.pruneGroups(limit)
for _, group in ipairs(C('ZRANGEBYSCORE', FADE, '-inf', now, 'LIMIT', 0, limit)) do
guard()
C('ZREM', FADE, group)
if C('HEXISTS', RECORDS, group) == 0 then C('HDEL', GROUPS, group) end
end
end
local LOOK_AGAIN = 60000
function q.retention()
if not q.rules then
local v = C('HMGET', META, 'successAge', 'successCount', 'failedAge', 'failedCount')
if not v[1] then return nil end
local success = { age = tonumber(v[1]), count = tonumber(v[2]) }
q.rules = { s = success, c = success, k = success, f = { age = tonumber(v[3]), count = tonumber(v[4]) } }
end
return q.rules
end
local function sinceOf(res)
return tonumber(string.match(res, '^%a%d+ (%d+)'))
end
local function mustStay(t, since)
if string.match(t.res, '^%a%d+ %d+(!?)') == '!' and now < since + WATCHED then return true end
local list = q.waitsOf(t)
for i = 2, #list, 2 do
if list[i] > now then return true end
end
return q.neededBy(t) ~= nil
end
function q.prune(p, rule, limit)
local done, kept, looks = Q .. 'done:' .. p, Q .. 'kept:' .. p, Q .. 'look:' .. p
local left, removed = limit, 0
local size = C('ZCARD', done)
local ids = C('ZRANGEBYSCORE', looks, '-inf', now, 'LIMIT', 0, left)
if #ids > 0 or C('EXISTS', kept) == 1 then size = size + C('ZCARD', kept) end
if size == 0 then return false end
local function isOver(since)
local age = now - since
return age >= YOUNG and (age >= rule.age or size - removed > rule.count)
end
local function again(t, at)
guard()
C('ZADD', looks, at, t.id)
end
if #ids > 0 then
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
left = left - 1
if not t or t.p ~= p then
guard()
C('ZREM', looks, ids[i])
else
local since = sinceOf(t.res)
if mustStay(t, since) then again(t, now + LOOK_AGAIN)
elseif isOver(since) then
q.forget(t)
removed = removed + 1
else
again(t, since + math.max(rule.age, YOUNG))
end
end
end
q.flush()
end
if left == 0 then return true end
local first = C('ZRANGE', done, 0, 0, 'WITHSCORES')
if not first[1] or not isOver(math.floor(first[2] / 2048)) then return false end
local list = C('ZRANGE', done, 0, left - 1, 'WITHSCORES')
ids = {}
for i = 1, #list, 2 do ids[#ids + 1] = list[i] end
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
local since = sinceOf(t.res)
if not isOver(since) then
q.flush()
return false
end
left = left - 1
if mustStay(t, since) then
guard()
C('ZREM', done, t.id)
C('ZADD', kept, list[2 * i], t.id)
again(t, now + LOOK_AGAIN)
else
q.forget(t)
removed = removed + 1
end
end
q.flush()
return left == 0
end
function q.pruneTombs(limit)
local ids = C('ZRANGEBYSCORE', TOMBTIMES, '-inf', now, 'LIMIT', 0, limit)
if #ids == 0 then return false end
guard()
C('HDEL', TOMBS, unpack(ids))
C('ZREM', TOMBTIMES, unpack(ids))
return #ids == limit
end
function q.pruneHistory()
if C('HLEN', Q .. 'hist') < 1440 then return end
local old = {}
for _, field in ipairs(C('HKEYS', Q .. 'hist')) do
if tonumber(string.match(field, '^%d+')) <= now - DAY - 60000 then old[#old + 1] = field end
end
if #old > 0 then C('HDEL', Q .. 'hist', unpack(old, 1, math.min(#old, 4000))) end
end
function q.pruneAll(rules, limit)
local more = q.pruneTombs(limit)
for _, p in ipairs({ 's', 'f', 'c', 'k' }) do
if q.prune(p, rules[p], limit) then more = true end
end
q.pruneGroups(limit)
q.pruneHistory()
return more
end
local RELEASE_LIMIT = 100
local SWEEP_LIMIT = 200
local PRUNE_PER_END = 2
function q.backlog()
return C('EXISTS', CASC, SWEEP) > 0
end
function q.nextTime()
local due = C('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]
local deadline = C('ZRANGE', DEADLINE, 0, 0, 'WITHSCORES')[2]
if due and deadline then return math.min(due, deadline) end
return tonumber(due or deadline or nil)
end
function q.isPaused()
return C('HGET', META, 'paused') == '1'
end
function q.spread()
q.flush()
if not q.backlog() then return end
q.released = (q.released or 0) + q.release(RELEASE_LIMIT - (q.released or 0))
q.swept = (q.swept or 0) + q.sweep(SWEEP_LIMIT - (q.swept or 0))
q.released = q.released + q.release(RELEASE_LIMIT - q.released)
end
local function wake(limit, kind)
wakeIdle(Q, limit, kind)
end
function q.wake()
local rules = next(q.ended) and q.retention()
if rules then
for p, ended in pairs(q.ended) do q.prune(p, rules[p], PRUNE_PER_END * ended) end
q.flush()
end
for watcher, ids in pairs(finals) do publish('final:' .. watcher, table.concat(ids, ' ')) end
finals = {}
if q.fresh > 0 and not q.isPaused() then
local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')
if head[2] then
local ready = math.min(q.fresh, C('ZCARD', READY))
for kind in pairs(kinds) do wake(ready, kind) end
local priority = math.floor(head[2] / BAND)
if priority < (q.headBefore or math.huge) then
q.head = priority
publishHead(Q, priority, q.origin)
end
end
end
for kind, count in pairs(asideKinds) do wake(count, kind) end
if q.soonest and q.soonest < (q.nextBefore or math.huge) then wake(1, q.soonestKind) end
if q.backlog() then wake(1) end
end
function q.conclude()
q.spread()
q.wake()
end
function q.pause(paused)
if q.isPaused() == paused then return end
guard()
C('HSET', META, 'paused', paused and '1' or '0')
if not paused then C('DEL', IDLE) end
for _, id in ipairs(C('SMEMBERS', LEASES)) do
local s = session(id)
if s and s.over == '' then call(id) end
end
end
local ASIDE_LIMIT = 400
local function setAside(t, lane)
touch(t)
t.p, t.lane = 'l', lane
end
local function mayRun(s, t)
local r = t.r
if r then
if isDoomed(t) then
q.endByGroup(t)
return false
end
if r.D and r.D <= now then
q.fail(t, 'c', 'TASK_EXPIRED')
return false
end
if r.g and not r.x and flagsOf(r.g).p then
setAside(t, 'group')
return false
end
end
local kind = kindOf(t.d)
if string.find(s.k, ' ' .. kind .. ' ', 1, true) then return true end
setAside(t, 'kind')
asideKinds[kind] = (asideKinds[kind] or 0) + 1
return false
end
local function candidates(s, count)
local keys = { READY }
if C('EXISTS', ASIDE) == 1 then
for kind in string.gmatch(string.sub(s.k, 2), '(%S*) ') do keys[#keys + 1] = Q .. 'lane:kind:' .. kind end
end
local list = {}
for _, key in ipairs(keys) do
local some = C('ZRANGE', key, 0, count - 1, 'WITHSCORES')
for i = 1, #some, 2 do list[#list + 1] = { some[i], tonumber(some[i + 1]) } end
end
if #keys > 1 then
table.sort(list, function(a, b)
if a[2] ~= b[2] then return a[2] < b[2] end
return a[1] < b[1]
end)
end
return list
end
function q.claim(s, want, bytes, bound)
local claimed, left, size = {}, ASIDE_LIMIT, 0
local token
while true do
local count = math.min(want - #claimed + 1, 200)
local list = candidates(s, count)
if #list == 0 then return claimed, nil, true, false end
local ids = {}
for i = 1, math.min(#list, count) do ids[i] = list[i][1] end
q.load(ids)
for i = 1, #ids do
local t = T[ids[i]]
if mayRun(s, t) then
local score = list[i][2]
local payload = sizeOf(t.d)
if #claimed == want or score >= bound or (#claimed > 0 and size + payload > bytes) then
q.flush()
return claimed, math.floor(score / BAND), false, false
end
size = size + payload
if not token then
guard()
token = int(C('INCR', S .. 'tok'))
C('HSET', s.own, ' #', token)
s.token = token
end
touch(t)
t.since = t.r and t.r.s or createdOf(t.d)
t.p, t.session = 'o', s.id
t.e = token .. ' ' .. int(now) .. ' ' .. string.format('%.17g', score)
if isWatched(t.d) then
t.e = t.e .. ' w' .. int(createdOf(t.d) + WATCHED) .. ' ' .. watcherOf(t.d)
end
t.v = nil
claimed[#claimed + 1] = t
else
left = left - 1
if left == 0 then
q.flush()
return claimed, nil, false, true
end
end
end
q.flush()
end
end
local function parentsOf(r)
if not r.a then return '' end
local results, ends = C('HMGET', RES, unpack(r.a)), {}
for i = 1, #results do
if results[i] then ends[#ends + 1] = string.sub(results[i], 1, 1) .. r.a[i] end
end
return table.concat(ends, ' ')
end
function q.describe(list)
local ids, defs, rest = {}, {}, {}
for i = 1, #list do
local t = list[i]
ids[i], defs[i] = t.id, t.d
if t.r then
local n = #rest
rest[n + 1], rest[n + 2], rest[n + 3], rest[n + 4] = i, cmsgpack.pack(t.r), parentsOf(t.r), int(t.since or now)
end
end
return { table.concat(ids, ' '), defs, rest }
end
q.parentsOf = parentsOf
function q.entriesAfter(s, token)
local all = C('HGETALL', s.own)
local ids, entries = {}, {}
for i = 1, #all, 2 do
if string.byte(all[i]) ~= 32 and tonumber(string.match(all[i + 1], '^%+?(%d+)')) > token then
ids[#ids + 1], entries[#entries + 1] = all[i], all[i + 1]
end
end
q.loadHeld(s.id, ids, entries)
local list, tokens = {}, {}
for i = 1, #ids do list[i] = T[ids[i]] end
table.sort(list, function(a, b)
local x, y = q.tokenOf(a), q.tokenOf(b)
if x ~= y then return x < y end
x, y = q.scoreOf(a), q.scoreOf(b)
if x ~= y then return x < y end
return a.id < b.id
end)
for i = 1, #list do tokens[i] = int(q.tokenOf(list[i])) end
local described = q.describe(list)
described[4] = tokens
return described
end
function q.settledToken(t)
return t.r and t.r.st or (t.res and tonumber(string.match(t.res, '^%a(%d+)'))) or 0
end
local function started(t)
rare(t).pb = nil
q.clearDeadline(t)
end
local function suspend(t, m)
started(t)
q.leave(t)
local r = rare(t)
if m.cp then r.cp = m.cp end
if not m.a then
if m.u then q.schedule(t, now + m.u) else q.toReady(t) end
return
end
q.load(m.a)
for _, id in ipairs(m.a) do
if id == t.id or not T[id] or not T[id].p then return q.fail(t, 'c', 'DEPENDENCY_NOT_FOUND') end
end
q.addParents(t, m.a, m.m)
if q.isRefused(m.a, m.m) then
q.fail(t, 'c', 'DEPENDENCY_FAILED')
elseif not r.o then
q.toReady(t)
else
r.su = true
if m.u then q.setDeadline(t, now + m.u) end
q.block(t)
end
end
function q.settle(s, id, token, op, rest)
q.load({ id })
local t = T[id]
if not t or not t.p then return false end
if t.p ~= 'o' or t.session ~= s.id or q.tokenOf(t) ~= token then return token > 0 and q.settledToken(t) == token end
local r = rare(t)
r.st = token
if op ~= 'x' then r.to = nil end
if op == 's' then
local duration, tail = string.match(rest, '^(%S*) (.*)$')
if duration == '' then duration = r.du or '' else r.du = duration end
r.at = (r.at or 0) + 1
r.e = nil
q.finish(t, 's', token, duration .. ' ' .. tail, s.w)
return true
end
local m = cmsgpack.unpack(rest)
if m.du then r.du = m.du end
if op == 'f' then
r.at = (r.at or 0) + 1
r.e, r.f = m.e, m.f
q.finish(t, 'f', token, r.du or '', s.w)
if m.g and r.g then q.flag(r.g, true, nil) end
elseif op == 'r' then
r.at = (r.at or 0) + 1
r.e = m.e
q.count('r', 1)
started(t)
q.leave(t)
q.schedule(t, now + m.i)
elseif op == 'x' then
q.leave(t)
q.toReady(t, q.scoreOf(t))
elseif op == 'p' then
suspend(t, m)
else
r.re, r.ms = m.re, m.ms
q.finish(t, op, token, r.du or '')
end
return true
end
local windows = {}
local function namesake(o)
if not o.b then return nil end
local id = windows[o.b]
if id == nil then
id = C('HGET', WINDOWS, o.b) or false
windows[o.b] = id
end
if not id then return nil end
q.load({ id })
return T[id] and T[id].p and T[id] or nil
end
local function isWaiting(t)
return t.p == 'r' or t.p == 'l' or t.p == 'd'
end
local function delayIn(opened, o)
return math.max(0, math.min(o.d or 0, opened + (o.w or math.huge) - now))
end
function q.isAbsorbed(id, o)
local known = namesake(o)
return known and (isWaiting(known) or known.r.wn == id)
end
local function replace(t, id, d, o)
local r = rare(t)
if (r.at or 0) > 0 or not r.wo then r.wo = now end
r.wn = id
local _, _, _, codec, size, from = headerOf(d)
local options = size ~= '' and string.sub(d, from, from + size - 1) or false
q.redefine(t, isBytes(d), codec, string.sub(d, from + (tonumber(size) or 0)), options)
r.at, r.du, r.rc, r.pb, r.to, r.e, r.pr, r.cp = nil
local delay = delayIn(r.wo, o)
if delay == 0 and t.p ~= 'd' then
q.reprioritize(t, priorityOf(d))
return
end
q.setPriority(t, priorityOf(d))
if delay > 0 then q.schedule(t, now + delay) else q.toReady(t) end
end
function q.absorb(id, d, o)
local t = namesake(o)
if not t then return nil end
local repeated = t.r.wn == id
if not repeated and not isWaiting(t) then return nil end
if isWatched(d) then q.watch(t, watcherOf(d), WATCHED) end
if not repeated then replace(t, id, d, o) end
return t.id
end
function q.openWindow(t, o)
if not o.b then return end
local r = rare(t)
r.wk, r.wo, r.wn = o.b, now, nil
r.dl = delayIn(now, o)
windows[o.b] = t.id
q.windowed = q.windowed or {}
q.windowed[o.b] = t.id
end
queues[Q] = q
return q
end`,
  drain: `local function drainOne(s, limit, report)
local ids, entries, cursor = {}, {}, '0'
repeat
local page = C('HSCAN', s.own, cursor, 'COUNT', limit + BOOK)
cursor = page[1]
for i = 1, #page[2], 2 do
if string.byte(page[2][i]) ~= 32 and #ids < limit then
ids[#ids + 1], entries[#entries + 1] = page[2][i], page[2][i + 1]
end
end
until cursor == '0' or #ids == limit
local q = queue(s.q)
q.flush()
q.loadHeld(s.id, ids, entries)
for i = 1, #ids do
local t = q.tasks[ids[i]]
q.leave(t)
if s.over == 'ended' then
q.toReady(t, q.scoreOf(t))
else
local poisoned = q.takeBack(t, string.byte(t.e) == 43, given(s).mr)
if report then
local list = poisoned and report.poisoned or report.reclaimed
list[#list + 1] = string.sub(s.q, #S + 1, -2) .. ' ' .. ids[i]
end
end
end
q.flush()
local isEmpty = C('HLEN', s.own) == BOOK
if isEmpty then
guard()
C('ZREM', S .. 'lost', s.id)
C('SREM', s.q .. 'leases', s.id)
C('PEXPIRE', s.own, DAY)
end
return #ids, isEmpty
end
local function drainLost(limit, report, mine)
local left, others = limit, {}
for _, id in ipairs(C('ZRANGE', S .. 'lost', 0, 49)) do
if left <= 0 then break end
local s = session(id)
if s then
left = left - drainOne(s, left, report)
if s.q ~= mine then others[s.q] = true end
else
guard()
C('ZREM', S .. 'lost', id)
end
end
for prefix in pairs(others) do queue(prefix).conclude() end
return left
end`,
  hand: `local FRESH = 2500
local FEW = 48
local HANDED = 16384
local function hand(defs, scores, count, kinds, turn)
if count > FEW then return 0 end
local size = 0
for i = 1, count do
size = size + #defs[2 * i]
if size > HANDED or isBytes(defs[2 * i]) then return 0 end
end
local some, able = C('HRANDFIELD', Q .. 'idle', 16, 'WITHVALUES'), {}
local isAlone = C('SCARD', Q .. 'leases') == 1
for i = 1, #some, 2 do
local free, at, served = string.match(some[i + 1], '^(%d+),(%d+)( .*)$')
free = tonumber(free or 0)
local isAble = free > 0 and now - at <= FRESH
for _, kind in ipairs(kinds) do isAble = isAble and string.find(served, ' ' .. kind .. ' ', 1, true) end
local own = S .. 'own:' .. some[i]
if isAble and (isAlone or C('HLEN', own) == BOOK) then
able[#able + 1] = { id = some[i], own = own, served = served, free = free, at = at }
end
end
local done = 0
for i = 1, #able do
local one = able[(turn + i) % #able + 1]
local n = math.min(one.free, math.ceil((count - done) / (#able - i + 1)))
if n == 0 then break end
local own = one.own
local before, token = C('HGET', own, ' #'), int(C('INCR', S .. 'tok'))
local head, texts, entries = { before, token }, {}, { ' #', token }
for j = done + 1, done + n do
local id, d = defs[2 * j - 1], defs[2 * j]
local e = token .. ' ' .. int(now) .. ' ' .. scores[2 * j - 1]
if isWatched(d) then e = e .. ' w' .. int(now + WATCHED) .. ' ' .. watcherOf(d) end
entries[#entries + 1], entries[#entries + 2] = id, e
head[#head + 1], head[#head + 2] = id, string.char(LETTER + math.floor(string.byte(d) / 4)) .. #d - 6
texts[#texts + 1] = string.sub(d, 7)
end
if publish('wake:' .. one.id, table.concat(head, ' ') .. '\\n' .. table.concat(texts)) > 0 then
C('HSET', own, unpack(entries))
C('HSET', Q .. 'idle', one.id, int(one.free - n) .. ',' .. one.at .. one.served)
done = done + n
end
end
return done
end`,
  view: `local function viewOf(q, t)
local s = t.p == 'o' and session(t.session)
local lane = ''
if t.p == 'l' then
local kind = kindOf(t.d)
lane = C('ZSCORE', q.Q .. 'lane:kind:' .. kind, t.id) and 'kind' or 'group'
end
return {
t.id, t.p, t.d, t.e or (t.v and string.format('%.17g', t.v)) or '', s and s.id or '', s and given(s).nid or '', lane, t.res or '',
t.r and cmsgpack.pack(t.r) or '', q.settledToken(t),
}
end
local function view(q, ids)
q.load(ids)
local out = {}
for i = 1, #ids do
local t = q.tasks[ids[i]]
out[i] = t and t.p and viewOf(q, t) or {}
end
return out
end`,
  mark: `local ids = {}
for i = 1, marks do ids[i] = ARGV[at + 2 * i - 1] end
local entries = C('HMGET', own, unpack(ids))
local rares = hasMore and C('HMGET', RARE, unpack(ids)) or NOTHING
local set, seen = {}, {}
for i = 1, marks do
local e = entries[i]
if e and not seen[ids[i]] and string.match(e, '^%+?(%d+)') == ARGV[at + 2 * i] then
seen[ids[i]] = true
if string.byte(e) ~= 43 then
set[#set + 1] = ids[i]
set[#set + 1] = '+' .. e
end
local r = rares[i] and cmsgpack.unpack(rares[i])
if r and (r.pb or r.D) then
guard()
if r.D then C('ZREM', Q .. 'deadline', ids[i]) end
r.pb, r.D = nil
if next(r) then C('HSET', RARE, ids[i], cmsgpack.pack(r)) else C('HDEL', RARE, ids[i]) end
end
end
end
if #set > 0 then
guard()
C('HSET', own, unpack(set))
C('HINCRBY', own, ' m', #set / 2)
end`,
  report: `general()
local names = {}
for i = 1, reports do names[i] = ARGV[at + 3 * i - 2] end
q.load(names)
for i = 1, reports do
local name, token = ARGV[at + 3 * i - 2], tonumber(ARGV[at + 3 * i - 1])
local t = q.tasks[name]
if not t or t.p ~= 'o' or t.session ~= id or q.tokenOf(t) ~= token then
staleReports[#staleReports + 1] = i - 1
else
local m, r = cmsgpack.unpack(ARGV[at + 3 * i]), q.rare(t)
if m.pr then r.pr = m.pr end
if m.cp then r.cp = m.cp end
if m.lg then
local lines, most = r.lg or {}, tonumber(ARGV[9])
for _, line in ipairs(m.lg) do lines[#lines + 1] = line end
local newest = {}
for j = math.max(1, #lines - most + 1), #lines do newest[#newest + 1] = lines[j] end
r.lg = #newest > 0 and newest or nil
end
end
end
q.flush()`,
  success: `local function isSince(packed)
return string.sub(packed, 1, 3) == '\\129\\161s'
end
local CARRIED = 16384
local rares = (hasMore or q) and C('EXISTS', RARE) == 1 and C('HMGET', RARE, unpack(ids)) or NOTHING
local waits = (hasMore or q) and C('EXISTS', Q .. 'waits') == 1 and C('HMGET', Q .. 'waits', unpack(ids)) or NOTHING
local entries, offset = found, 6
if marks > 0 then
entries, offset = C('HMGET', own, unpack(ids)), 0
end
local out, res, done, rest, seen, told = {}, {}, {}, {}, {}, {}
local n, started, carried = 0, 0, 0
local time = ' ' .. int(now)
local lastEntry, lastToken, isHeld, isStarted, watcher, head
local token, tokens, hows = nil, {}, {}
for i = 1, settlements do
local id, e, how = ids[i], entries[offset + i], ARGV[at + 2 * i]
if string.byte(how) == 35 then token, how = string.match(how, '^#(%d+)(.*)$') end
if e and (e ~= lastEntry or token ~= lastToken) then
lastEntry, lastToken = e, token
isStarted = string.byte(e) == 43
local from = isStarted and 2 or 1
isHeld = string.find(e, token .. ' ', from, true) == from
local ends
ends, watcher = string.match(e, ' w(%d+) (%S+)$')
if ends and (watcher == s.w or tonumber(ends) <= now) then watcher = nil end
head = 's' .. token .. time .. (watcher and '!' or '')
end
if e and isHeld and (not rares[i] or isSince(rares[i])) and not waits[i] and not seen[id] and string.byte(how) == 32 then
seen[id] = true
if isStarted then started = started + 1 end
if watcher then
local list = told[watcher]
if not list then
list = {}
told[watcher] = list
end
list[#list + 1] = id
carried = carried + #how
if carried > CARRIED or not string.find(how, '^ %S* json t[^\\n]*$') then carried = math.huge end
list.records = list.records or {}
list.records[#list] = head .. how
end
n = n + 1
out[n] = id
res[2 * n - 1], res[2 * n] = id, head .. how
done[2 * n] = id
else
seen[id] = true
rest[#rest + 1] = i
tokens[i], hows[i] = token, how
end
end
if n > 0 then
C('HDEL', own, unpack(out))
dirty = true
C('HSET', RES, unpack(res))
local score = int(now * 2048 + C('HINCRBY', META, 'ends', 1) % 2048)
for i = 1, n do done[2 * i - 1] = score end
C('ZADD', Q .. 'done:s', unpack(done))
C('HINCRBY', Q .. 'hist', int(now - now % 60000) .. 's', n)
if started > 0 then C('HINCRBY', own, ' m', -started) end
for watcher, list in pairs(told) do
local text = table.concat(list, ' ')
if carried <= CARRIED then text = text .. '\\n' .. table.concat(list.records, '\\n') end
publish('final:' .. watcher, text)
end
ended = n
end
if #rest > 0 then
general()
local names = {}
for i = 1, #rest do names[i] = ids[rest[i]] end
q.load(names)
for _, i in ipairs(rest) do
local letter = string.sub(hows[i], 1, 1)
if not q.settle(s, ids[i], tonumber(tokens[i]), letter == ' ' and 's' or letter, string.sub(hows[i], 2)) then
stale[#stale + 1] = i - 1
end
end
q.flush()
end`,
  take: `local function kindsServed()
for _, kind in ipairs(C('SMEMBERS', Q .. 'kinds')) do
if not string.find(s.k, ' ' .. kind .. ' ', 1, true) then return false end
end
return true
end
local function firstOfReady(count)
local ids, scores, alone = {}, {}, 0
while #ids < count do
local n = #ids
local first = C('ZRANGE', READY, n, alone < 3 and n or count - 1, 'WITHSCORES')
local score = first[2]
if not score then break end
if #first == 2 and n + 1 < count then
local same = C('ZRANGEBYSCORE', READY, score, score, 'LIMIT', 0, count - n)
for i = 1, #same do ids[n + i], scores[n + i] = same[i], score end
alone = #same < 4 and alone + 1 or 0
else
for i = 1, #first, 2 do
ids[#ids + 1] = first[i]
scores[#scores + 1] = first[i + 1]
end
end
end
return ids, scores
end
local function hold(ids, defs, scores)
local token = int(C('INCR', S .. 'tok'))
s.token = token
local before, entries = token .. ' ' .. int(now) .. ' ', { ' #', token }
local lastScore, plain
for i = 1, #ids do
local d = defs[i]
if scores[i] ~= lastScore then
lastScore = scores[i]
plain = before .. lastScore
end
local e = plain
if isWatched(d) then
e = e .. ' w' .. int(createdOf(d) + WATCHED) .. ' ' .. watcherOf(d)
end
entries[2 * i + 1], entries[2 * i + 2] = ids[i], e
end
C('HSET', own, unpack(entries))
end
local function claimPlain(want, bytes, bound)
if (hasMore or q) and C('EXISTS', Q .. 'aside') == 1 or not kindsServed() then return nil end
local ids, scores = firstOfReady(want + 1)
if #ids == 0 then return { short = want > 0 } end
local rares, known = (hasMore or q) and C('EXISTS', RARE) == 1 and C('HMGET', RARE, unpack(ids)) or NOTHING, {}
for i = 1, #rares do
local r = rares[i] and cmsgpack.unpack(rares[i])
if r and (r.g or r.D) then return nil end
known[i] = r
end
local defs = want > 0 and C('HMGET', DEFS, unpack(ids)) or {}
local n, size, most = 0, 0, math.min(want, #ids)
for i = 1, most do size = size + #defs[i] end
if bound == math.huge and size <= bytes then
n = most
else
size = 0
for i = 1, most do
size = size + sizeOf(defs[i])
if tonumber(scores[i]) >= bound or (i > 1 and size > bytes) then break end
n = i
end
end
local head = scores[n + 1] and math.floor(scores[n + 1] / BAND) or nil
local result = { head = head, short = n < want and not head }
if n == 0 then return result end
guard()
for i = n + 1, #ids do ids[i], defs[i], scores[i] = nil, nil, nil end
local rest = {}
for i = 1, n do
if rares[i] then
local r, k = known[i], #rest
rest[k + 1], rest[k + 2], rest[k + 3] = i, rares[i], r.a and general().parentsOf(r) or ''
rest[k + 4] = int(r.s or createdOf(defs[i]))
end
end
C('ZREMRANGEBYRANK', READY, 0, n - 1)
hold(ids, defs, scores)
result.claimed = { table.concat(ids, ' '), defs, rest }
return result
end
local function claim(want)
local bytes = tonumber(ARGV[7])
local bound = ARGV[8] ~= '' and tonumber(ARGV[8]) * BAND or math.huge
local result = claimPlain(want, bytes, bound)
if result then return result end
general()
if want > 0 then
local list, head, isShort, isExhausted = q.claim(s, want, bytes, bound)
return { claimed = q.describe(list), head = head, short = isShort, exhausted = isExhausted }
end
local _, head, _, isExhausted = q.claim(s, 0, bytes, bound)
return { head = head, exhausted = isExhausted }
end`,
  due: `local function placesBehind(ids, defs)
local number = C('HINCRBY', META, 'seq', #ids) - #ids
local isOrdered = 'B' < 'a'
for i = 2, #ids do isOrdered = isOrdered and ids[i - 1] < ids[i] end
local scores, shared = {}, {}
for i = 1, #ids do
local priority = priorityOf(defs[i])
local score = isOrdered and shared[priority] or int(priority * BAND + number + i)
shared[priority] = score
scores[i] = score
end
return scores
end
local function promotePlain(mayClaim)
if q or C('EXISTS', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0 then return false end
local ids = C('ZRANGEBYSCORE', Q .. 'due', '-inf', now, 'LIMIT', 0, 200)
if #ids == 0 then return true end
local rares = C('EXISTS', RARE) == 1 and C('HMGET', RARE, unpack(ids)) or NOTHING
local defs = C('HMGET', DEFS, unpack(ids))
local size, isAlike = 0, true
for i = 1, #ids do
if rares[i] or not defs[i] then return false end
size = size + #defs[i]
isAlike = isAlike and priorityOf(defs[i]) == priorityOf(defs[1])
end
guard()
local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')
local scores = placesBehind(ids, defs)
C('ZREMRANGEBYRANK', Q .. 'due', 0, #ids - 1)
if mayClaim and not head[2] and not paused and isAlike and #ids <= want and ARGV[8] == '' and size <= tonumber(ARGV[7])
and C('EXISTS', Q .. 'aside') == 0 and kindsServed() then
hold(ids, defs, scores)
return true, { claimed = { table.concat(ids, ' '), defs, NOTHING, '1' }, short = #ids < want }
end
promoted = { count = #ids, kinds = {}, head = head[2] and math.floor(head[2] / BAND) or math.huge }
local since = cmsgpack.pack({ s = now })
local ready, times = {}, {}
for i = 1, #ids do
ready[2 * i - 1], ready[2 * i] = scores[i], ids[i]
times[2 * i - 1], times[2 * i] = ids[i], since
promoted.kinds[kindOf(defs[i])] = true
end
C('ZADD', READY, unpack(ready))
C('HSET', RARE, unpack(times))
return true
end`,
} as const
export type ScriptName = 'counts' | 'end' | 'enqueue' | 'errors' | 'get' | 'group' | 'history' | 'list' | 'lock' | 'open' | 'operate' | 'pause' | 'reclaim' | 'record' | 'resume' | 'start' | 'upkeep' | 'watch' | 'work'
export const SCRIPTS: Readonly<Record<ScriptName, readonly string[]>> = {
  counts: [
    PARTS.prelude,
    `local Q = KEYS[2]
local running, marked = 0, 0
for _, id in ipairs(C('SMEMBERS', Q .. 'leases')) do
local own = S .. 'own:' .. id
running = running + math.max(0, C('HLEN', own) - BOOK)
marked = marked + (tonumber(C('HGET', own, ' m') or '0') or 0)
end
local function ended(p)
return C('ZCARD', Q .. 'done:' .. p) + C('ZCARD', Q .. 'kept:' .. p)
end
return {
C('ZCARD', Q .. 'ready') + C('ZCARD', Q .. 'aside'), C('ZCARD', Q .. 'due'), C('ZCARD', Q .. 'need'), running,
ended('s'), ended('f'), ended('c'), ended('k'), running - marked, C('HGET', Q .. 'meta', 'paused') == '1' and 1 or 0,
}`,
  ],
  end: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.drain,
    `local s = session(ARGV[2])
if not s then return 1 end
guard()
if s.over == '' then close(s, 'ended') end
local _, isEmpty = drainOne(s, tonumber(ARGV[3]))
queue(s.q).conclude()
return isEmpty and 1 or 0`,
  ],
  enqueue: [
    PARTS.prelude, PARTS.definition,
    `local Q = KEYS[2]
local DEFS, READY, META = Q .. 'defs', Q .. 'ready', Q .. 'meta'
local most = tonumber(ARGV[2])
local isPlain = ARGV[4] ~= ''
local flags = ARGV[6]
local n = #flags
local function waiting()
return C('ZCARD', READY) + C('ZCARD', Q .. 'aside') + C('ZCARD', Q .. 'due') + C('ZCARD', Q .. 'need')
end
local lost = {}
if ARGV[7] ~= '' then`,
    PARTS.records,
    `local guards = cmsgpack.unpack(ARGV[7])
local k, versions = recordKeys(guards[1]), {}
for i = 2, #guards, 3 do
local key = guards[i + 1]
if versions[key] == nil then
local record = recordRead(k, key)
versions[key] = record and record.n or false
end
if versions[key] ~= guards[i + 2] then lost[guards[i] + 1] = key end
end
end
local ids = {}
local function meetPlain(i, known, taken, isChosen)
local id, d = ids[i], stamp(string.byte(flags, i)) .. ARGV[2 * i + 7]
local other, tomb = known or taken[id], nil
if not other and isChosen and not isGenerated(id) then
tomb = C('HGET', Q .. 'tombs', id)
if tomb and tonumber(string.match(tomb, '^%d+')) <= now then tomb = nil end
end
if not other and not tomb then return false end
if other and isWatched(d) then return nil end
local nonce = nonceOf(d)
local was = other and nonceOf(other) or string.match(tomb or '', '^%d+ (.*)$')
return nonce ~= '' and nonce == was and 'r' or 'd'
end
local function enqueuePlain()
for i = 1, n do ids[i] = ARGV[2 * i + 6] end
local known = C('HMGET', DEFS, unpack(ids))
local room = most and most - waiting() or n
local isChosen, isOrdered = ARGV[5] ~= '1' and ARGV[5] ~= '2', ARGV[5] == '2'
local defs, scores, out, taken = {}, {}, {}, {}
local best, worst, k = 1001, 0, 0
local lastLetter, front
for i = 1, n do
local how = false
if isChosen or known[i] then
how = meetPlain(i, known[i], taken, isChosen)
if how == nil then return nil end
end
if not how and lost[i] then how = 'g' .. lost[i] end
if not how and k >= room then how = 'f' .. int(most - room + k) end
if how then
out[#out + 1] = i - 1
out[#out + 1] = how
else
local raw, letter = ARGV[2 * i + 7], string.byte(flags, i)
if letter ~= lastLetter then
lastLetter, front = letter, stamp(letter)
end
local d = front .. raw
k = k + 1
if isChosen then taken[ids[i]] = d end
defs[2 * k - 1], defs[2 * k] = ids[i], d
local priority = USUAL_PRIORITY
if letter % 16 >= 8 then
local high, low = string.byte(raw, 1, 2)
priority = high * 128 + low
end
scores[2 * k - 1], scores[2 * k] = priority, ids[i]
if priority < best then best = priority end
if priority > worst then worst = priority end
end
end
if k == 0 then return { -1, out } end
local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')
local base = C('HINCRBY', META, 'seq', k) - k
if isOrdered then
local texts = {}
for i = 1, k do
local priority = scores[2 * i - 1]
local text = texts[priority]
if not text then
text = int(priority * BAND + base + 1)
texts[priority] = text
end
scores[2 * i - 1] = text
end
else
for i = 1, k do scores[2 * i - 1] = int(scores[2 * i - 1] * BAND + base + i) end
end
C('HSET', DEFS, unpack(defs))
C('HINCRBY', Q .. 'hist', int(now - now % 60000) .. 'e', k)
local kinds = {}
for kind in string.gmatch(ARGV[4], '(%S*) ') do kinds[#kinds + 1] = kind end
C('SADD', Q .. 'kinds', unpack(kinds))
local isMoreUrgent = not head[2] or best < math.floor(head[2] / BAND)
local isIdle = C('EXISTS', Q .. 'idle') == 1
if not (isMoreUrgent or isIdle) or C('HGET', META, 'paused') == '1' then
C('ZADD', READY, unpack(scores))
return { -1, out }
end
dirty = true
local handed = 0
if isIdle and not head[2] and best == worst and C('EXISTS', Q .. 'aside') == 0 then`,
    PARTS.hand,
    `handed = hand(defs, scores, k, kinds, base)
end
if handed == k then return { -1, out } end
C('ZADD', READY, unpack(scores, 2 * handed + 1))`,
    PARTS.idle,
    `if isIdle then
for _, kind in ipairs(kinds) do wakeIdle(Q, k - handed, kind) end
end
if isMoreUrgent then publishHead(Q, best, ARGV[3]) end
return { isMoreUrgent and best or -1, out }
end
if isPlain then
local reply = enqueuePlain()
if reply then return reply end
end`,
    PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `local q
local STEP = isPlain and 2 or 3
local function idOf(i)
return ARGV[STEP * (i - 1) + 8]
end
local function definitionOf(i)
return stamp(string.byte(flags, i)) .. ARGV[STEP * (i - 1) + 9]
end
local function optionsOf(i)
local packed = not isPlain and ARGV[STEP * (i - 1) + 10] or ''
local o = packed ~= '' and cmsgpack.unpack(packed) or {}
o.lost = lost[i]
return o
end
local function tombOf(id)
if isGenerated(id) then return nil end
local tomb = C('HGET', Q .. 'tombs', id)
if not tomb then return nil end
local ends, nonce = string.match(tomb, '^(%d+) (.*)$')
return tonumber(ends) > now and nonce or nil
end
local function isKnown(id)
return q.tasks[id] and q.tasks[id].p
end
local function check(o, earlier)
if o.bad then return 'b' end
if o.lost then return 'g' .. o.lost end
for _, id in ipairs(o.a or {}) do
if not isKnown(id) and not (earlier and earlier[id]) then return 'p' .. id end
end
return nil
end
local function waitingNow()
return q.waiting + q.added
end
local function accept(id, d, o)
local t = q.create(id, d)
q.count('e', 1)
q.newKinds[kindOf(t.d)] = true
q.added = q.added + 1
if o.d then q.rare(t).dl = o.d end
if o.r then q.rare(t).ra = o.r end
if o.h then q.rare(t).h = true end
q.openWindow(t, o)
if o.g then q.join(t, o.g, o.x) end
if o.a then
q.addParents(t, o.a, o.m)
if q.isRefused(o.a, o.m) then
q.added = q.added - 1
return q.fail(t, 'c', 'DEPENDENCY_FAILED')
end
end
if o.e then q.setDeadline(t, now + o.e) end
local r = t.r
if r and r.h and q.isDoomed(t) then
q.endByGroup(t)
elseif r and (r.o or r.h) then
q.block(t)
else
q.free(t)
end
if not (t.p == 'r' or t.p == 'd' or t.p == 'n') then q.added = q.added - 1 end
end
local function enqueueOne(id, d, o, limit, isAlone)
local t = q.tasks[id]
if t and t.p then
if isWatched(d) then q.watch(t, watcherOf(d), WATCHED) end
local nonce = nonceOf(d)
return nonce ~= '' and nonce == nonceOf(t.d) and 'r' or 'd'
end
local buried = tombOf(id)
if buried then
local nonce = nonceOf(d)
return nonce ~= '' and nonce == buried and 'r' or 'd'
end
local why = isAlone and check(o)
if why then return why end
local into = q.absorb(id, d, o)
if into then return 'i' .. into end
if limit and waitingNow() + 1 > limit then return 'f' .. int(waitingNow()) end
accept(id, d, o)
return nil
end
local function checkUnit(unit)
local earlier, windows, count = {}, {}, 0
for _, one in ipairs(unit) do
local id, o = one[1], one[3]
if not isKnown(id) and not earlier[id] and not tombOf(id) then
local why = check(o, earlier)
if why then return why end
if not q.isAbsorbed(id, o) and not (o.b and windows[o.b]) then
if o.b then windows[o.b] = true end
earlier[id] = true
count = count + 1
end
end
end
if most and count > 0 and waitingNow() + count > most then return 'f' .. int(waitingNow()) end
return nil
end
q = queue(Q)
q.origin = ARGV[3]
q.waiting, q.added, q.newKinds = most and waiting() or 0, 0, {}
local named, options = {}, {}
for i = 1, n do
named[#named + 1] = idOf(i)
options[i] = optionsOf(i)
for _, id in ipairs(options[i].a or {}) do named[#named + 1] = id end
end
q.load(named)
local sizes = not isPlain and ARGV[5] ~= '' and cmsgpack.unpack(ARGV[5]) or nil
local out, i, u = {}, 1, 1
while i <= n do
local size = sizes and sizes[u] or 0
local unit = {}
for j = i, i + math.max(1, size) - 1 do unit[#unit + 1] = { idOf(j), definitionOf(j), options[j] } end
local why = size > 0 and checkUnit(unit)
for j = 1, #unit do
local one = unit[j]
local outcome = why or enqueueOne(one[1], one[2], one[3], size == 0 and most or nil, size == 0)
if outcome then
out[#out + 1] = i + j - 2
out[#out + 1] = outcome
end
end
i = i + #unit
u = u + 1
end
q.flush(true)
local kinds = {}
for kind in pairs(q.newKinds) do kinds[#kinds + 1] = kind end
if #kinds > 0 then C('SADD', Q .. 'kinds', unpack(kinds)) end
for key, id in pairs(q.windowed or {}) do C('HSET', Q .. 'windows', key, id) end
q.conclude()
return { q.head or -1, out }`,
  ],
  errors: [
    PARTS.prelude,
    `local Q, out = KEYS[2], {}
local groups = C('ZREVRANGE', Q .. 'errors', 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for i = 1, #groups, 2 do
local newest = C('ZREVRANGE', Q .. 'error:' .. groups[i], 0, 0, 'WITHSCORES')
out[#out + 1] = groups[i]
out[#out + 1] = groups[i + 1]
out[#out + 1] = newest[1]
out[#out + 1] = newest[2]
out[#out + 1] = C('HGET', Q .. 'rare', newest[1]) or ''
end
return out`,
  ],
  get: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.view,
    `local q = queue(KEYS[2])
return view(q, cmsgpack.unpack(ARGV[2]))`,
  ],
  group: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `local q = queue(KEYS[2])
local paused
if ARGV[4] ~= '' then paused = ARGV[4] == '1' end
q.flag(ARGV[2], ARGV[3] == '1', paused)
q.conclude()
return 1`,
  ],
  history: [
    PARTS.prelude,
    `local from, to = math.max(tonumber(ARGV[2]), now - DAY), tonumber(ARGV[3])
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
return out`,
  ],
  list: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.view,
    `local Q = KEYS[2]
local q = queue(Q)
local state, limit, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local kind, group, cursor = ARGV[5], ARGV[6], ARGV[7]
local LOOKS = 1000
local function after(key, back, score, id, count)
if not score then return C(back and 'ZREVRANGE' or 'ZRANGE', key, 0, count - 1, 'WITHSCORES') end
local from = back and C('ZCOUNT', key, '(' .. score, '+inf') or C('ZCOUNT', key, '-inf', '(' .. score)
local found = {}
while #found < 2 * count do
local page = C(back and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1, 'WITHSCORES')
if #page == 0 then break end
for i = 1, #page, 2 do
local isBehind = page[i + 1] ~= score or (back and page[i] < id) or (not back and page[i] > id)
if isBehind and #found < 2 * count then
found[#found + 1] = page[i]
found[#found + 1] = page[i + 1]
end
end
from = from + count
end
return found
end
local KEYSOF = {
pending = { Q .. 'ready', Q .. 'aside' }, scheduled = { Q .. 'due' }, blocked = { Q .. 'need' },
success = { Q .. 'done:s', Q .. 'kept:s' }, failed = { Q .. 'done:f', Q .. 'kept:f' },
cancelled = { Q .. 'done:c', Q .. 'kept:c' }, skipped = { Q .. 'done:k', Q .. 'kept:k' },
}
local function places(count)
local list = {}
if state == 'running' then
local fromSession, fromId = string.match(cursor, '^(%S*) (.*)$')
local leases = C('SMEMBERS', Q .. 'leases')
table.sort(leases)
for _, name in ipairs(leases) do
if not fromSession or name >= fromSession then
local ids = C('HKEYS', S .. 'own:' .. name)
table.sort(ids)
for _, id in ipairs(ids) do
if #list == count then return list end
if string.byte(id) ~= 32 and (name ~= fromSession or id > fromId) then
list[#list + 1] = { id, name .. ' ' .. id }
end
end
end
end
return list
end
local back = string.sub(KEYSOF[state][1], -6, -3) == 'done'
local score, id = string.match(cursor, '^(%S*) (.*)$')
for _, key in ipairs(KEYSOF[state]) do
local some = after(key, back, score, id, count)
for i = 1, #some, 2 do list[#list + 1] = { some[i], some[i + 1] .. ' ' .. some[i], tonumber(some[i + 1]) } end
end
if #KEYSOF[state] > 1 then
table.sort(list, function(a, b)
if a[3] ~= b[3] then return (a[3] < b[3]) ~= back end
return (a[1] < b[1]) ~= back
end)
for i = #list, count + 1, -1 do list[i] = nil end
end
return list
end
local function fits(t)
if kind ~= '' and kindOf(t.d) ~= string.sub(kind, 2) then return false end
return group == '' or (t.r and t.r.g == group)
end
local hasFilter = kind ~= '' or group ~= ''
local list = places(hasFilter and LOOKS + 1 or limit + 1)
local ids, found, last, size, more = {}, {}, '', 0, false
for i = 1, #list do ids[i] = list[i][1] end
q.load(ids)
for i = 1, #list do
local t = q.tasks[ids[i]]
if i > LOOKS then
more = true
break
end
if t and t.p and fits(t) then
local tail = t.p == 's' and string.match(t.res, '^%S+ %S+ %S* %S* .(.*)$') or ''
size = size + sizeOf(t.d) + #tail
if #found == limit or (#found > 0 and size > bytes) then
more = true
break
end
found[#found + 1] = ids[i]
end
last = list[i][2]
end
return { view(q, found), more and last or '' }`,
  ],
  lock: [
    PARTS.prelude,
    `guard()
local key, owner = S .. 'lock:' .. ARGV[2], ARGV[4]
local ends, holder = string.match(C('GET', key) or '0 ', '^(%d+) (.*)$')
local isHeld = tonumber(ends) > now
local function hold()
local value = int(now + tonumber(ARGV[5])) .. ' ' .. owner
if ARGV[1] == '' then C('SET', key, value, 'PX', ARGV[5]) else C('SET', key, value) end
end
if ARGV[3] == 'acquire' then
if isHeld then return '' end
hold()
local fence = math.max((tonumber(C('GET', S .. 'fence')) or 0) + 1, now * 1000)
C('SET', S .. 'fence', int(fence))
return int(fence)
end
if not isHeld or holder ~= owner then return 0 end
if ARGV[3] == 'extend' then hold() else C('DEL', key) end
return 1`,
  ],
  open: [
    PARTS.prelude, PARTS.records, PARTS.idle, PARTS.sessions,
    `local id, Q = ARGV[2], KEYS[2]
local s = session(id)
if s then
if s.over ~= '' then return 0 end
guard()
beat(s)
return 1
end
guard()
local own = S .. 'own:' .. id
local i = cmsgpack.unpack(ARGV[5])
C('HSET', own, ' q', Q, ' k', ARGV[3], ' w', ARGV[4], ' #', '0', ' !', '0|', ' o', '', ' m', '0', ' i', ARGV[5])
C('SADD', Q .. 'leases', id)
C('HSET', Q .. 'meta', 'successAge', i.sa, 'successCount', i.sc, 'failedAge', i.fa, 'failedCount', i.fc)
sessions[id] = nil
beat(session(id))
return 1`,
  ],
  operate: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `local PERMITTED = {
cancel = 'rldno', retry = 'fc', promote = 'd', reprioritize = 'rldn', remove = 'rldnsfck', complete = 'n', revoke = 'o',
}
local operation, m = ARGV[2], cmsgpack.unpack(ARGV[3])
local q = queue(KEYS[2])
local ids = {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
q.load(ids)
local actions = {
cancel = function(t) q.fail(t, 'c', m.code, m.message) end,
retry = function(t)
if m.payload then
q.redefine(t, m.bytes == 1, m.codec, m.payload)
q.rare(t).cp = nil
end
q.revive(t)
end,
promote = function(t) q.toReady(t) end,
reprioritize = function(t) q.reprioritize(t, m.priority) end,
remove = function(t)
q.flush()
local needed = q.neededBy(t)
if needed then return t.p .. needed end
q.forget(t)
end,
complete = function(t)
if not (t.r and t.r.h) then return t.p end
q.finish(t, 's', 0, (t.r.du or '') .. ' ' .. m.tail)
end,
revoke = function(t)
local s = q.takeAway(t, 'r')
q.takeBack(t, true, given(s).mr)
end,
}
guard()
local out = {}
for i = 1, #ids do
local t = q.tasks[ids[i]]
if not t or not t.p then
out[i] = 'unknown'
elseif not string.find(PERMITTED[operation], t.p, 1, true) then
out[i] = t.p
else
out[i] = actions[operation](t) or 'done'
end
end
q.conclude()
return out`,
  ],
  pause: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `queue(KEYS[2]).pause(ARGV[2] == '1')
return 1`,
  ],
  reclaim: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.drain,
    `lookAhead()
look()
local condemned, report = {}, { reclaimed = {}, poisoned = {} }
for _, id in ipairs(C('ZRANGE', S .. 'lost', 0, -1)) do
local s = session(id)
if s and s.over == 'condemned' then condemned[#condemned + 1] = id end
end
drainLost(tonumber(ARGV[2]), report, nil)
return { C('ZRANGE', S .. 'susp', 0, -1), condemned, report.reclaimed, report.poisoned }`,
  ],
  record: [
    PARTS.prelude, PARTS.records,
    `local k = recordKeys(ARGV[2])
local key = ARGV[4]
local actions = {}
function actions.get()
local record = recordRead(k, key)
return record and { key, cmsgpack.pack(record) } or {}
end
function actions.put()
local versions = {}
for i = 4, #ARGV, 3 do
local one = ARGV[i]
local record, old = recordRead(k, one)
if ARGV[i + 1] ~= '' and tonumber(ARGV[i + 1]) ~= (record and record.n or 0) then
versions[#versions + 1] = 0
else
local m = cmsgpack.unpack(ARGV[i + 2])
local version = versionAfter(record, old)
recordWrite(k, one, old, {
v = m.v, n = version, l = m.l, d = m.d or (m.i and now + m.i) or nil, e = m.e and now + m.e or nil,
})
versions[#versions + 1] = version
end
end
recordPrune(k, 20)
return versions
end
function actions.delete()
local record = recordRead(k, key)
if not record or (ARGV[5] ~= '' and tonumber(ARGV[5]) ~= record.n) then return 0 end
recordDrop(k, key, record)
return 1
end
function actions.list()
guard()
recordPrune(k, 20)
local limit = tonumber(ARGV[6])
local from = '[' .. key
if ARGV[7] ~= '' then from = '(' .. string.sub(ARGV[7], 2) end
local set = ARGV[5] == '' and k.keys or k.label .. string.sub(ARGV[5], 2)
local out, count, last = {}, 0, nil
while true do
local page = C('ZRANGEBYLEX', set, from, '+', 'LIMIT', 0, limit + 1)
for _, one in ipairs(page) do
if string.sub(one, 1, #key) ~= key then
out[#out + 1] = ''
return out
end
from = '(' .. one
local record = recordRead(k, one)
if record then
if count == limit then
out[#out + 1] = ' ' .. last
return out
end
count = count + 1
last = one
out[#out + 1] = one
out[#out + 1] = cmsgpack.pack(record)
end
end
if #page <= limit then
out[#out + 1] = ''
return out
end
end
end
local function groups()
local own = groupOf(key)
if own ~= '' then return { own } end
local found = {}
for _, group in ipairs(C('SMEMBERS', k.groups)) do
if group == '' or string.sub(group, 1, #key) == key then found[#found + 1] = group end
end
return found
end
local function sizeOf(record)
return #record.v - 1
end
local function addDue(due, set, most, bytes)
local from, found = 0, 0
while found < most do
local page = C('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', from, 100)
for _, one in ipairs(page) do
local record = string.sub(one, 1, #key) == key and recordRead(k, one)
if record then
due[#due + 1] = { one, record }
found = found + 1
bytes = bytes - sizeOf(record)
if found == most or (bytes < 0 and found > 1) then return end
end
end
if #page < 100 then return end
from = from + 100
end
end
local function nextDueIn(set)
local page = C('ZRANGEBYSCORE', set, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if #page == 2 and not (string.sub(page[1], 1, #key) == key and recordRead(k, page[1])) then
page = C('ZRANGEBYSCORE', set, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
end
for i = 1, #page, 2 do
if string.sub(page[i], 1, #key) == key and recordRead(k, page[i]) then return page[i + 1] - now end
end
return #page == 200 and page[200] - now or math.huge
end
function actions.due()
local limit, lease, bytes, due = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), {}
local from = groups()
for _, group in ipairs(from) do addDue(due, k.due .. group, limit + 1, bytes) end
if #from > 1 then
table.sort(due, function(a, b)
if a[2].d ~= b[2].d then return a[2].d < b[2].d end
return a[1] < b[1]
end)
end
local out, nextIn, taken = { int(now), '' }, math.huge, 0
for i = 1, math.min(limit, #due) do
local one, record = due[i][1], due[i][2]
bytes = bytes - sizeOf(record)
if bytes < 0 and taken > 0 then break end
taken = i
record.n = record.n + 1
record.d = now + lease
guard()
local packed = cmsgpack.pack(record)
C('HSET', k.all, one, packed)
C('ZADD', k.due .. groupOf(one), record.d, one)
out[#out + 1] = one
out[#out + 1] = packed
end
if #due > taken then
nextIn = 0
else
for _, group in ipairs(from) do nextIn = math.min(nextIn, nextDueIn(k.due .. group)) end
end
if nextIn < math.huge then out[2] = tostring(nextIn) end
return out
end
return actions[ARGV[3]]()`,
  ],
  resume: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `local s = session(ARGV[2])
local tasks, ids = {}, {}
for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
local q = s and queue(s.q)
if q then q.load(ids) end
for i = 1, #ids do
local t = q and q.tasks[ids[i]]
local token = t and t.p and (string.find('sfck', t.p, 1, true) and tonumber(string.match(t.res, '^%a(%d+)')) or q.settledToken(t))
tasks[i] = token and t.p .. int(token) or ''
end
if not s or s.over ~= '' then return { 2, s and s.token or '0', now, {}, tasks } end
guard()
beat(s)
return { 0, s.token, now, q.entriesAfter(s, 0), tasks }`,
  ],
  start: [
    PARTS.prelude,
    `local META = S .. 'meta'
local stored = C('HMGET', META, 'format', 'shards', 'runId', 'generator', 'servers')
local format, shards, run = stored[1] or ARGV[2], stored[2] or ARGV[3], stored[3] or ARGV[4]
if format ~= ARGV[2] or shards ~= ARGV[3] then return { format, shards, run, 0 } end
local number = stored[4] and tonumber(stored[4]) + 1 or math.floor(now / 1000)
if stored[5] and stored[5] ~= ARGV[5] then number = number + 10000 end
number = int(number)
guard()
C('HSET', META, 'format', format, 'shards', shards, 'runId', run, 'generator', number, 'servers', ARGV[5])
return { format, shards, run, number }`,
  ],
  upkeep: [
    PARTS.prelude, PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue,
    `local q = queue(KEYS[2])
local limit = tonumber(ARGV[3])
local actions = {}
function actions.drain()
local done = q.promoteDue(limit)
if done < limit then done = done + q.passDeadlines(limit - done) end
if done < limit then done = done + q.release(limit - done) end
if done < limit then q.sweep(limit - done) end
q.flush()
q.wake()
local time = q.nextTime()
return (q.backlog() or (time and time <= now)) and 1 or 0
end
function actions.prune()
local success = { age = tonumber(ARGV[4]), count = tonumber(ARGV[5]) }
local failed = { age = tonumber(ARGV[6]), count = tonumber(ARGV[7]) }
local more = q.pruneAll({ s = success, c = success, k = success, f = failed }, limit)
q.wake()
return more and 1 or 0
end
function actions.reconcile()
local Q = KEYS[2]
local cursor = C('HGET', Q .. 'meta', 'cursor') or '0'
local page = C('HSCAN', Q .. 'defs', cursor, 'COUNT', limit)
local ids = {}
for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
q.load(ids)
guard()
C('HSET', Q .. 'meta', 'cursor', page[1])
local mended = 0
for i = 1, #ids do
local t = q.tasks[ids[i]]
if t and not t.p then
mended = mended + 1
q.toReady(t)
end
end
q.conclude()
return mended
end
return actions[ARGV[2]]()`,
  ],
  watch: [
    PARTS.prelude,
    `local Q = KEYS[2]
local FRESH = 1000
local ids, out, rest = {}, {}, {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
local results = C('HMGET', Q .. 'res', unpack(ids))
local rares = C('EXISTS', Q .. 'rare') == 1 and C('HMGET', Q .. 'rare', unpack(ids)) or {}
for i = 1, #ids do
local since = results[i] and not rares[i] and string.match(results[i], '^s%d+ (%d+)! ')
if since and now - since < FRESH then
out[i] = { ids[i], results[i] }
else
rest[#rest + 1] = i
end
end
if #rest == 0 then return out end`,
    PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.view,
    `local q = queue(Q)
local names = {}
for k = 1, #rest do names[k] = ids[rest[k]] end
q.load(names)
for k = 1, #rest do
local i = rest[k]
local t = q.tasks[ids[i]]
if not t or not t.p then
local tomb = C('HGET', Q .. 'tombs', ids[i])
out[i] = tomb and tonumber(string.match(tomb, '^%d+')) > now and 'f' or 'u'
elseif t.res then
q.keep(t)
out[i] = viewOf(q, t)
else
q.watch(t, ARGV[2], tonumber(ARGV[3]))
out[i] = 'o'
end
end
q.flush()
return out`,
  ],
  work: [
    PARTS.prelude,
    `local id = ARGV[2]
local marks, reports, settlements = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local at = 13
local stale, staleReports = {}, {}
local NOTHING = {}
local own = S .. 'own:' .. id
local fields, ids = { ' q', ' k', ' w', ' #', ' !', ' o' }, {}
for i = 1, settlements do
ids[i] = ARGV[13 + 2 * marks + 3 * reports + 2 * i - 1]
fields[6 + i] = ids[i]
end
local found = C('HMGET', own, unpack(fields))
if not found[1] then
for i = 1, settlements do stale[i] = i - 1 end
for i = 1, reports do staleReports[i] = i - 1 end
return { 2, '0', now, '', stale, staleReports, '', 0, -1, -1, 0 }
end
local s = { id = id, own = own, q = found[1], k = found[2], w = found[3], token = found[4], notes = found[5], over = found[6] }
local Q = s.q
local DEFS, READY, RARE, RES, META = Q .. 'defs', Q .. 'ready', Q .. 'rare', Q .. 'res', Q .. 'meta'
local hasMore = C('EXISTS', RARE, Q .. 'waits', Q .. 'aside', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep', S .. 'lost') > 0
local q, long
local function general()
if q then return q end`,
    PARTS.definition, PARTS.records, PARTS.idle, PARTS.sessions, PARTS.queue, PARTS.drain,
    `sessions[id] = s
q = queue(Q)
long = { call = call, given = given, beat = beat, look = look, lookAhead = lookAhead, drainLost = drainLost }
return q
end
local meta = C('HMGET', META, 'paused', 'successCount')
local paused = meta[1] == '1'
local ended, promoted = 0, nil
local function tellPromoted()
local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')[2]
if not head or paused then return end`,
    PARTS.idle,
    `local left = math.min(promoted.count, C('ZCARD', READY))
for kind in pairs(promoted.kinds) do wakeIdle(Q, left, kind) end
local priority = math.floor(head / BAND)
if priority < promoted.head then publishHead(Q, priority) end
end
local function conclude()
if promoted then tellPromoted() end
if q then return q.conclude() end
if ended == 0 then return end
local most = tonumber(meta[2])
if not most or C('ZCARD', Q .. 'done:s') < most + 100 then return end
local oldest = C('ZRANGE', Q .. 'done:s', 0, 0, 'WITHSCORES')[2]
if oldest / 2048 + YOUNG <= now then general().prune('s', q.retention().s, math.min(2 * ended, 400)) end
end
local function orEmpty(list)
return #list > 0 and list or ''
end
local function gone()
conclude()
return { 2, s.token, now, '', orEmpty(stale), orEmpty(staleReports), '', 0, -1, -1, 0 }
end
if marks > 0 then`,
    PARTS.mark,
    `end
at = at + 2 * marks
if reports > 0 then`,
    PARTS.report,
    `end
at = at + 3 * reports
if settlements > 0 then`,
    PARTS.success,
    `end
if q then q.spread() end
if s.over ~= '' then return gone() end
local seq, untold = string.match(s.notes, '^(%d+)|(.*)$')
if untold ~= '' and ARGV[4] ~= '0' then
local acknowledged = tonumber(ARGV[4])
local left = string.gsub(untold, '(%d+) %S+ %d+ %a ', function(n)
if tonumber(n) <= acknowledged then return '' end
end)
if left ~= untold then
guard()
s.notes = seq .. '|' .. left
C('HSET', own, ' !', s.notes)
end
end
if ARGV[5] == '1' then
general()
guard()
long.beat(s)
long.lookAhead()
local rules = long.given(s)
local success = { age = rules.sa, count = rules.sc }
q.pruneAll({ s = success, c = success, k = success, f = { age = rules.fa, count = rules.fc } }, 100)
end
local want = tonumber(ARGV[6])
local status, claimed, head = 0, nil, nil
local hasTimes
local function setIdle(free)
guard()
C('HSET', Q .. 'idle', id, free .. ',' .. int(now) .. s.k)
end
local function step()
if want > 0 and s.token ~= ARGV[3] then
status = 1
claimed = general().entriesAfter(s, tonumber(ARGV[3]))
want = 0
if C('HEXISTS', Q .. 'idle', id) == 1 then setIdle('0') end
end
if want == 0 then
if status == 0 and ARGV[13] ~= '' and C('HEXISTS', Q .. 'idle', id) == 1 then
setIdle(ARGV[13])
if ARGV[13] ~= '0' then return nil end
end
if paused then return nil end
end`,
    PARTS.definition, PARTS.take, PARTS.due,
    `if want == 0 then
local result = claim(0)
head = result.head
if result.exhausted then long.call(id) end
return nil
end
hasTimes = (hasMore or q) and C('EXISTS', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0
local isSilent = C('ZRANGEBYSCORE', S .. 'sess', '-inf', now, 'LIMIT', 0, 1)[1]
local hasLost = (hasMore or q) and C('EXISTS', S .. 'lost') == 1
local isDone, result = not hasTimes, nil
if hasTimes then isDone, result = promotePlain(not isSilent and not hasLost) end
if not isDone then
guard()
general()
q.promoteDue(200)
q.passDeadlines(200)
end
if isSilent then
general()
long.look()
end
if isSilent or hasLost then
general()
long.drainLost(200, nil, Q)
end
if s.over ~= '' then return gone() end
if q then q.spread() end
if paused then
setIdle('0')
return nil
end
result = result or claim(want)
claimed, head = result.claimed, result.head
if result.short then
setIdle(int(math.max(0, (tonumber(ARGV[13]) or 0) - (claimed and #claimed[2] or 0))))
else
guard()
C('HDEL', Q .. 'idle', id)
end
if result.exhausted then long.call(id) end
return nil
end
local over = step()
if over then return over end
conclude()
local nextIn = '-1'
if not hasMore and not q then hasTimes = false end
if q or hasTimes == nil then hasTimes = C('EXISTS', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0 end
if hasTimes then
if C('EXISTS', Q .. 'casc', Q .. 'sweep') > 0 then
nextIn = '0'
else
local due = C('ZRANGE', Q .. 'due', 0, 0, 'WITHSCORES')[2]
local deadline = C('ZRANGE', Q .. 'deadline', 0, 0, 'WITHSCORES')[2]
if due or deadline then
nextIn = string.format('%.17g', math.max(0, math.min(due or math.huge, deadline or math.huge) - now))
end
end
end
return {
status, s.token, now, claimed or '', orEmpty(stale), orEmpty(staleReports), s.notes, C('HLEN', own) - BOOK,
nextIn, head or -1, paused and 1 or 0,
}`,
  ],
}
