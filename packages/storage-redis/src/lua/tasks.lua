-- One queue, as a step sees it: tasks are read once, moved in memory, and written when the step is known to succeed.
-- So everything is checked before the first write, and a task leaves one structure and enters another in one go.
--
-- A task `t` has its `id`, its packed definition `d`, what few tasks have in `r` (see docs/adr), and its place `p`:
-- r ready, l lane, d due, n need, o entry of a session, s f c k final; nil when it is in none, new or forgotten. `v` is
-- the score there. Fields that begin with `from` are what is stored.
local q = { Q = Q, ended = {}, fresh = 0 }
local DEFS, READY, DUE, NEED, ASIDE = Q .. 'defs', Q .. 'ready', Q .. 'due', Q .. 'need', Q .. 'aside'
local RES, RARE, WAITS, DEADLINE = Q .. 'res', Q .. 'rare', Q .. 'waits', Q .. 'deadline'
local META, LEASES, IDLE, CASC, SWEEP = Q .. 'meta', Q .. 'leases', Q .. 'idle', Q .. 'casc', Q .. 'sweep'
local GROUPS, RECORDS, FADE, ERRORS = Q .. 'groups', Q .. 'grouped', Q .. 'fade', Q .. 'errors'
local TOMBS, TOMBTIMES, WINDOWS = Q .. 'tombs', Q .. 'tombtimes', Q .. 'windows'
local FINAL = { s = true, f = true, c = true, k = true }
local T = {}
local touched = {}
-- Tasks that get a new place in ready, in their order.
local places = {}
-- Changes of what is kept beside the tasks, by key; the last one of a step counts.
local kids, members, grouped, errors, failures, history = {}, {}, {}, {}, {}, {}
-- Commands that go with the next writing.
local later = {}
-- Ids to tell of, by watcher.
local finals = {}
-- Tasks that became ready, by kind.
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

-- What few tasks have, to be changed.
local function rare(t)
  touch(t)
  t.rareChanged = true
  if not t.r then t.r = {} end
  return t.r
end

-- Reads tasks that the step does not know yet.
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

-- The same for entries of a session, whose place is known.
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

-- When it entered the place where it stands.
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

-- ------------------------------------------------------------------------------------------------- groups' flags

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

-- Whether the flag of its group ends the task.
local function isDoomed(t)
  local r = t.r
  return r and r.g and not r.x and flagsOf(r.g).c
end

-- --------------------------------------------------------------------------------------------- the waiting states

-- Puts the task in ready, at the place that the score says; without one, behind all others of its priority.
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

-- Puts a task that nothing blocks (any more) where it belongs. Its delay starts now.
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

-- Names the parents in the definition, whose records stay from now on, and in `o` those that are not final yet.
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

-- Whether a parent has ended otherwise than asked.
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

-- The definition with another payload; what is not given stays.
function q.redefine(t, isBytes, codec, payload, options)
  touch(t)
  t.defChanged = true
  local d = t.d
  local kind, watcher, nonce, oldCodec, size, from = headerOf(d)
  local old = size ~= '' and string.sub(d, from, from + size - 1) or nil
  if options == nil then options = old end
  local head = kind .. ' ' .. watcher .. ' ' .. nonce .. ' ' .. (codec or oldCodec) .. ' ' .. (options and int(#options) or '') .. ' ' .. (options or '')
  -- A long header from now on.
  local first = string.byte(d)
  first = first - first % 32 + first % 8 + (isBytes and 8 or 0)
  t.d = string.char(first) .. string.sub(d, 2, headerFrom(d) - 1)
    .. string.char(math.floor(#head / 16384), math.floor(#head / 128) % 128, #head % 128) .. head .. payload
end

-- Takes the watcher off that came with the task.
function q.unwatch(t)
  if not isWatched(t.d) then return end
  touch(t)
  t.defChanged = true
  t.d = string.char(string.byte(t.d) - 4) .. string.sub(t.d, 2)
end

-- --------------------------------------------------------------------------------------------------------- waiting

-- Later registrations: watcher, until, watcher, until.
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

-- Keeps a final record for who may read it.
function q.keep(t)
  local list = waitsOf(t)
  if list[2] and list[2] >= now + WATCHED then return end
  setWaits(t, { '', now + WATCHED })
end

-- Registers a watcher, or tells it at once when the task is final.
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

-- Tells the watchers that the task is final or removed. @param but one that learns of it by itself
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

-- ----------------------------------------------------------------------------------------------------------- writing

-- Gathers commands by key, so that each key is written once.
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

-- Writes what the step has done so far. What leaves comes first: it needs no memory.
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
