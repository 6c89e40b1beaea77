--! prelude records sessions queue
-- Accepts tasks. A unit is accepted or refused whole, and a bad one never harms its neighbours.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 most waiting tasks or '', 3 packed unit sizes or '' when every unit is one task, 4 whose call it is,
--       then for each task: id, packed options or '', definition without the time of its creation
-- reply the priority that was published as a new head, or -1; list of the outcomes that are not `accepted`: index, then
--       'r' repeated, 'd' known, 'f<waiting>' no room, 'p<id>' a parent that is unknown, 'b' refused by the caller, 'i<id>' in another task
-- cost  O(n log N); 6 commands for a batch of plain tasks. May be refused for memory, whole.
local Q = KEYS[2]
local DEFS, READY, META = Q .. 'defs', Q .. 'ready', Q .. 'meta'
local most = tonumber(ARGV[2])
local n = (#ARGV - 4) / 3
local time = stamp(now)

local function isPlain()
  if ARGV[3] ~= '' then return false end
  for i = 1, n do
    if ARGV[3 * i + 3] ~= '' then return false end
  end
  -- Waiters of known tasks, tombstones and groups are the other way's business.
  return true
end

local function noteKinds(kinds)
  local list = {}
  for kind in pairs(kinds) do list[#list + 1] = kind end
  C('SADD', Q .. 'kinds', unpack(list))
end

local function waiting()
  return C('ZCARD', READY) + C('ZCARD', Q .. 'aside') + C('ZCARD', Q .. 'due') + C('ZCARD', Q .. 'need')
end

-- The common case: plain tasks, each a unit of its own.
local function enqueuePlain()
  local ids, chosen = {}, {}
  for i = 1, n do
    ids[i] = ARGV[3 * i + 2]
    if not isGenerated(ids[i]) then chosen[#chosen + 1] = i end
  end
  local known, buried = C('HMGET', DEFS, unpack(ids)), {}
  if #chosen > 0 then
    local names = {}
    for i = 1, #chosen do names[i] = ids[chosen[i]] end
    local found = C('HMGET', Q .. 'tombs', unpack(names))
    for i = 1, #chosen do buried[chosen[i]] = found[i] end
  end
  local room = most and most - waiting()
  local defs, scores, kinds, out, taken = {}, {}, {}, {}, {}
  local counts, best = {}, 1001
  for i = 1, n do
    local id, d = ids[i], ARGV[3 * i + 4]
    local other = known[i] or taken[id]
    local tomb = buried[i]
    if tomb and tonumber(string.match(tomb, '^%d+')) <= now then tomb = nil end
    if other or tomb then
      -- A registration of its own would be needed.
      if other and string.byte(d, 1) % 2 == 1 then return nil end
      local nonce = string.match(d, '^%S* %S* (%S*)', 7)
      local was = other and string.match(other, '^%S* %S* (%S*)', 13) or string.match(tomb or '', '^%d+ (.*)$')
      out[#out + 1] = i - 1
      out[#out + 1] = nonce ~= '' and nonce == was and 'r' or 'd'
    elseif room and #scores / 2 >= room then
      out[#out + 1] = i - 1
      out[#out + 1] = 'f' .. int(most - room + #scores / 2)
    else
      d = time .. d
      taken[id] = d
      local k = #scores
      defs[k + 1], defs[k + 2] = id, d
      local priority = priorityOf(d)
      scores[k + 1], scores[k + 2] = priority, id
      if priority < best then best = priority end
      local kind = kindOf(d)
      counts[kind] = (counts[kind] or 0) + 1
    end
  end
  local fresh = #scores / 2
  if fresh == 0 then return { -1, out } end
  local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')
  local base = C('HINCRBY', META, 'seq', fresh) - fresh
  for i = 1, fresh do scores[2 * i - 1] = scores[2 * i - 1] * BAND + base + i end
  C('HSET', DEFS, unpack(defs))
  C('ZADD', READY, unpack(scores))
  C('HINCRBY', Q .. 'hist', int(now - now % 60000) .. 'e', fresh)
  noteKinds(counts)
  local isMoreUrgent = not head[2] or best < math.floor(head[2] / BAND)
  if (isMoreUrgent or C('EXISTS', Q .. 'idle') == 1) and C('HGET', META, 'paused') ~= '1' then
    local q = queue(Q)
    q.origin = ARGV[4]
    q.announce(counts, fresh, isMoreUrgent and best or nil)
  else
    isMoreUrgent = false
  end
  return { isMoreUrgent and best or -1, out }
end

-- ------------------------------------------------------------------------------------------------------ the other way

local q
local limitOfRoom
local function nonceOf(d, from)
  return string.match(d, '^%S* %S* (%S*)', from)
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

-- Why the task cannot be stored. @param earlier new ids of its unit that may be its parents
local function check(o, earlier)
  if o.bad then return 'b' end
  for _, id in ipairs(o.a or {}) do
    if not isKnown(id) and not (earlier and earlier[id]) then return 'p' .. id end
  end
  return nil
end

local function waitingNow()
  return q.waiting + q.added
end

local function accept(id, d, o)
  local t = q.create(id, time .. d)
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

-- One task whose unit may be accepted. @returns its outcome, nil for accepted
local function enqueueOne(id, d, o, limit, isAlone)
  local t = q.tasks[id]
  if t and t.p then
    if string.byte(d, 1) % 2 == 1 then q.watch(t, string.match(d, '^%S* (%S*)', 7), WATCHED) end
    local nonce = nonceOf(d, 7)
    return nonce ~= '' and nonce == nonceOf(t.d, 13) and 'r' or 'd'
  end
  local buried = tombOf(id)
  if buried then
    local nonce = nonceOf(d, 7)
    return nonce ~= '' and nonce == buried and 'r' or 'd'
  end
  local why = isAlone and check(o)
  if why then return why end
  local into = q.absorb(id, time .. d, o)
  if into then return 'i' .. into end
  if limit and waitingNow() + 1 > limit then return 'f' .. int(waitingNow()) end
  accept(id, d, o)
  return nil
end

-- Whether a unit of several tasks may be accepted. @param unit list of { id, definition, options }
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

local function enqueueAll()
  q = queue(Q)
  q.origin = ARGV[4]
  q.waiting, q.added, q.newKinds = most and waiting() or 0, 0, {}
  local ids, options = {}, {}
  for i = 1, n do
    ids[#ids + 1] = ARGV[3 * i + 2]
    options[i] = ARGV[3 * i + 3] ~= '' and cmsgpack.unpack(ARGV[3 * i + 3]) or {}
    for _, id in ipairs(options[i].a or {}) do ids[#ids + 1] = id end
  end
  q.load(ids)
  local sizes = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or nil
  local out, i, u = {}, 1, 1
  while i <= n do
    local size = sizes and sizes[u] or 0
    local unit = {}
    for j = i, i + math.max(1, size) - 1 do unit[#unit + 1] = { ARGV[3 * j + 2], ARGV[3 * j + 4], options[j] } end
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
  if next(q.newKinds) then noteKinds(q.newKinds) end
  for key, id in pairs(q.windowed or {}) do C('HSET', Q .. 'windows', key, id) end
  q.conclude()
  return { q.head or -1, out }
end

local out = isPlain() and enqueuePlain()
return out or enqueueAll()
