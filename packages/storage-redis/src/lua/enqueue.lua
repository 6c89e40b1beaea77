--! prelude definition
-- Accepts tasks. A unit is accepted or refused whole, and a bad one never harms its neighbours.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 most waiting tasks or '', 3 whose call it is, 4 the kinds, with a space behind each, when every task is plain and a
--       unit of its own, else '', 5 '2' when besides every id is a generated one and greater than the one before, '1' when
--       each is generated and stands once, else packed sizes of units or '' when there are none of several, 6 the flags of their definitions, a letter each, 7 packed
--       claims of records that tasks come from (tenant, then index, key and version of each) or '' when there are none; then for
--       each task: id, what follows flags and time in its definition and, unless all are plain, packed options or ''
-- reply the priority that was published as a new head, or -1; list of the outcomes that are not `accepted`: index, then
--       'r' repeated, 'd' known, 'f<waiting>' no room, 'p<id>' a parent that is unknown, 'b' refused by the caller, 'i<id>' in another task,
--       'g<key>' its claim of this record is lost
-- cost  O(n log N); 8 commands for a batch of plain tasks. May be refused for memory, whole.
local Q = KEYS[2]
local DEFS, READY, META = Q .. 'defs', Q .. 'ready', Q .. 'meta'
local most = tonumber(ARGV[2])
local isPlain = ARGV[4] ~= ''
local flags = ARGV[6]
local n = #flags

local function waiting()
  return C('ZCARD', READY) + C('ZCARD', Q .. 'aside') + C('ZCARD', Q .. 'due') + C('ZCARD', Q .. 'need')
end

-- The keys of the claims that are lost, by the index of the task.
local lost = {}
if ARGV[7] ~= '' then
  --! records
  local guards = cmsgpack.unpack(ARGV[7])
  -- Many tasks may come from one claim, whose record may be large.
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

-- What is said of the i-th task when it is known, `false` when it is new. @returns nil when the long way has to say it
local function meetPlain(i, known, taken, isChosen)
  local id, d = ids[i], stamp(string.byte(flags, i)) .. ARGV[2 * i + 7]
  local other, tomb = known or taken[id], nil
  if not other and isChosen and not isGenerated(id) then
    tomb = C('HGET', Q .. 'tombs', id)
    if tomb and tonumber(string.match(tomb, '^%d+')) <= now then tomb = nil end
  end
  if not other and not tomb then return false end
  -- A registration of its own would be needed.
  if other and isWatched(d) then return nil end
  local nonce = nonceOf(d)
  local was = other and nonceOf(other) or string.match(tomb or '', '^%d+ (.*)$')
  return nonce ~= '' and nonce == was and 'r' or 'd'
end

-- The common case: plain tasks, each a unit of its own.
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
    -- Their ids put them in order, so that one score will do, and a score as text is dear.
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
  -- Nothing waits before them, so those who wait for work may have them at once.
  local handed = 0
  if isIdle and not head[2] and best == worst and C('EXISTS', Q .. 'aside') == 0 then
    --! hand
    handed = hand(defs, scores, k, kinds, base)
  end
  if handed == k then return { -1, out } end
  C('ZADD', READY, unpack(scores, 2 * handed + 1))
  --! idle
  if isIdle then
    for _, kind in ipairs(kinds) do wakeIdle(Q, k - handed, kind) end
  end
  if isMoreUrgent then publishHead(Q, best, ARGV[3]) end
  return { isMoreUrgent and best or -1, out }
end

if isPlain then
  local reply = enqueuePlain()
  if reply then return reply end
end

-- ------------------------------------------------------------------------------------------------------ the other way

--! records idle sessions queue
local q
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

-- Why the task cannot be stored. @param earlier new ids of its unit that may be its parents
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

-- One task whose unit may be accepted. @returns its outcome, nil for accepted
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
return { q.head or -1, out }
