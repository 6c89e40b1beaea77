--! prelude
-- The one call of a running node; its parts are carried out in the order of their listing.
--
-- KEYS  1 shard
-- ARGV  2 session, 3 ack, 4 ackTaken, 5 '1' for a renewal, 6 want, 7 bytes wanted, 8 priority that is too little urgent or '',
--       9 newest log lines kept, 10 number of marks, 11 of reports, 12 of settlements, 13 tasks that would start at once,
--       then for each mark: id, token; report: id, token, packed; settlement: id, details: '#' and its token unless that is
--       the one before, a letter, ' ' for a success, 'f' 'r' 'c' 'k' 'x' 'p' for the others, and what belongs to that
-- reply status 0 ok, 1 again, 2 gone; token; now; what is claimed, see `describe`; indices of stale settlements and of stale
--       reports; what was taken; entries held; ms to the next time, or -1; priority of the head, or -1; 1 when paused
-- cost  O(n log N); for plain tasks 5 commands to settle and 9 to claim
local id = ARGV[2]
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
  return { 2, '0', now, NOTHING, stale, staleReports, '', 0, -1, -1, 0 }
end
local s = { id = id, own = own, q = found[1], k = found[2], w = found[3], token = found[4], notes = found[5], over = found[6] }
local Q = s.q
local DEFS, READY, RARE, RES, META = Q .. 'defs', Q .. 'ready', Q .. 'rare', Q .. 'res', Q .. 'meta'
-- Whether there is anything that plain tasks know nothing of: most often one question answers all.
local hasMore = C('EXISTS', RARE, Q .. 'waits', Q .. 'aside', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep', S .. 'lost') > 0

-- The long way: made when the first thing needs it.
local q, long
local function general()
  if q then return q end
  --! records idle sessions queue drain
  sessions[id] = s
  q = queue(Q)
  long = { call = call, given = given, beat = beat, look = look, lookAhead = lookAhead, drainLost = drainLost }
  return q
end

local meta = C('HMGET', META, 'paused', 'successCount')
local paused = meta[1] == '1'

-- ---------------------------------------------------------------------------------------------- 1. marks and reports

local function mark()
  local ids = {}
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
      -- It has started: it is no suspect, and does not expire any more.
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
  end
end

local function report()
  general()
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
  q.flush()
end

-- -------------------------------------------------------------------------------------------------- 2. settlements

-- What a task has that was due and has nothing else, see promotePlain.
local function isSince(packed)
  return string.sub(packed, 1, 3) == '\129\161s'
end

-- Plain successes are written here, in one go; what needs more is left to the other way.
local ended = 0
-- Bytes of results that messages carry.
local CARRIED = 16384
local function settle()
  local rares = (hasMore or q) and C('HMGET', RARE, unpack(ids)) or NOTHING
  local waits = (hasMore or q) and C('EXISTS', Q .. 'waits') == 1 and C('HMGET', Q .. 'waits', unpack(ids)) or NOTHING
  -- What a mark has changed is read again.
  local entries, offset = found, 6
  if marks > 0 then
    entries, offset = C('HMGET', own, unpack(ids)), 0
  end
  local out, res, done, rest, seen, told = {}, {}, {}, {}, {}, {}
  local n, started, carried = 0, 0, 0
  local time = ' ' .. int(now)
  -- Tasks of one claim have nearly always the same entry, so what it says is worked out once for all of them.
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
        if carried > CARRIED or not string.find(how, '^ %S* json t[^\n]*$') then carried = math.huge end
        list.records = list.records or {}
        list.records[#list] = head .. how
      end
      n = n + 1
      out[n] = id
      res[2 * n - 1], res[2 * n] = id, head .. how
      done[2 * n] = id
    else
      -- A later settlement of the same task waits its turn.
      seen[id] = true
      rest[#rest + 1] = i
      tokens[i], hows[i] = token, how
    end
  end
  if n > 0 then
    C('HDEL', own, unpack(out))
    dirty = true
    C('HSET', RES, unpack(res))
    -- One score for all: of those that ended in one step the order is that of their ids, as everywhere among equals.
    local score = int(now * 2048 + C('HINCRBY', META, 'ends', 1) % 2048)
    for i = 1, n do done[2 * i - 1] = score end
    C('ZADD', Q .. 'done:s', unpack(done))
    C('HINCRBY', Q .. 'hist', int(now - now % 60000) .. 's', n)
    if started > 0 then C('HINCRBY', own, ' m', -started) end
    for watcher, list in pairs(told) do
      local text = table.concat(list, ' ')
      -- Who hears of a small result need not ask for it.
      if carried <= CARRIED then text = text .. '\n' .. table.concat(list.records, '\n') end
      publish('final:' .. watcher, text)
    end
    ended = n
  end
  if #rest == 0 then return end
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
end

-- --------------------------------------------------------------------------------------------------- 6. the claim

local function kindsServed()
  for _, kind in ipairs(C('SMEMBERS', Q .. 'kinds')) do
    if not string.find(s.k, ' ' .. kind .. ' ', 1, true) then return false end
  end
  return true
end

-- The first of ready and their scores. A score as text is dear, and tasks that were submitted together share it, so it is
-- asked for once for each of them, as long as that helps.
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

-- Makes tasks that have left their places entries of the session, by a new token.
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

-- Takes the first of ready. @returns nil when that takes a closer look
local function claimPlain(want, bytes, bound)
  if (hasMore or q) and C('EXISTS', Q .. 'aside') == 1 or not kindsServed() then return nil end
  local ids, scores = firstOfReady(want + 1)
  if #ids == 0 then return { claimed = NOTHING, short = want > 0 } end
  local rares, known = (hasMore or q) and C('HMGET', RARE, unpack(ids)) or NOTHING, {}
  for i = 1, #rares do
    local r = rares[i] and cmsgpack.unpack(rares[i])
    -- What keeps it from being taken without a closer look.
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
  local result = { head = head, short = n < want and not head, claimed = NOTHING }
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

-- ------------------------------------------------------------------------------------------------------ what is due

-- Places behind all others for tasks in this order. Those whose ids put them in this order share one in their priority.
local function placesBehind(ids, defs)
  local number = C('HINCRBY', META, 'seq', #ids) - #ids
  local isOrdered = true
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

-- Makes plain tasks ready that are due, at most 200, behind all others of their priority; or claims them at once when nothing
-- else is ready and all are wanted.
-- @returns whether that was all there was to do, and what was claimed
local promoted
local function promotePlain(want)
  if q or C('EXISTS', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0 then return false end
  local ids = C('ZRANGEBYSCORE', Q .. 'due', '-inf', now, 'LIMIT', 0, 200)
  if #ids == 0 then return true end
  local rares, defs = C('HMGET', RARE, unpack(ids)), C('HMGET', DEFS, unpack(ids))
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
  if not head[2] and not paused and isAlike and #ids <= want and ARGV[8] == '' and size <= tonumber(ARGV[7])
    and C('EXISTS', Q .. 'aside') == 0 and kindsServed() then
    hold(ids, defs, scores)
    return true, { claimed = { table.concat(ids, ' '), defs, NOTHING, '1' }, short = #ids < want }
  end
  promoted = { count = #ids, kinds = {}, head = head[2] and math.floor(head[2] / BAND) or math.huge }
  -- When it was ready, since that is not when it was created.
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
end

-- Tells of what was made ready and is still there.
local function tellPromoted()
  local head = C('ZRANGE', READY, 0, 0, 'WITHSCORES')[2]
  if not head or paused then return end
  --! idle
  local left = math.min(promoted.count, C('ZCARD', READY))
  for kind in pairs(promoted.kinds) do wakeIdle(Q, left, kind) end
  local priority = math.floor(head / BAND)
  if priority < promoted.head then publishHead(Q, priority) end
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
  return { claimed = NOTHING, head = head, exhausted = isExhausted }
end

-- ------------------------------------------------------------------------------------------------------- the parts

local function conclude()
  if promoted then tellPromoted() end
  if q then return q.conclude() end
  -- Retention catches up with plain ends in hundreds.
  if ended == 0 then return end
  local most = tonumber(meta[2])
  if not most or C('ZCARD', Q .. 'done:s') < most + 100 then return end
  local oldest = C('ZRANGE', Q .. 'done:s', 0, 0, 'WITHSCORES')[2]
  if oldest / 2048 + YOUNG <= now then general().prune('s', q.retention().s, math.min(2 * ended, 400)) end
end

local function gone()
  conclude()
  return { 2, s.token, now, NOTHING, stale, staleReports, '', 0, -1, -1, 0 }
end

if marks > 0 then mark() end
at = at + 2 * marks
if reports > 0 then report() end
at = at + 3 * reports
if settlements > 0 then settle() end
if q then q.spread() end
if s.over ~= '' then return gone() end

-- 4. what was taken, until it is acknowledged
local acknowledged = tonumber(ARGV[4])
local function acknowledge()
  local seq, rest = string.match(s.notes, '^(%d+)|(.*)$')
  if rest == '' or acknowledged == 0 then return end
  local left = string.gsub(rest, '(%d+) %S+ %d+ %a ', function(n)
    if tonumber(n) <= acknowledged then return '' end
  end)
  if left == rest then return end
  guard()
  s.notes = seq .. '|' .. left
  C('HSET', own, ' !', s.notes)
end
acknowledge()

-- 5. renewal, with a piece of retention
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
local status, claimed, head = 0, NOTHING, nil
-- Whether something is due some time, or was left; nil when nobody has looked, or it may have changed since.
local hasTimes

local function step()
  if want > 0 and s.token ~= ARGV[3] then
    status = 1
    claimed = general().entriesAfter(s, tonumber(ARGV[3]))
    want = 0
  elseif want > 0 then
    hasTimes = (hasMore or q) and C('EXISTS', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0
    if C('ZRANGEBYSCORE', S .. 'sess', '-inf', now, 'LIMIT', 0, 1)[1] then
      general()
      long.look()
    end
    if (hasMore or q) and C('EXISTS', S .. 'lost') == 1 then
      general()
      long.drainLost(200, nil, Q)
    end
    -- The look may have condemned this very session.
    if s.over ~= '' then return gone() end
    local isDone, result = not hasTimes, nil
    if hasTimes then isDone, result = promotePlain(want) end
    if not isDone then
      guard()
      general()
      q.promoteDue(200)
      q.passDeadlines(200)
    end
    if q then q.spread() end
    if paused then
      guard()
      C('HSET', Q .. 'idle', id, s.k .. '0 ' .. int(now))
      return nil
    end
    result = result or claim(want)
    claimed, head = result.claimed, result.head
    guard()
    if result.short then
      -- What may be handed to it until it asks again, see hand.lua.
      local free = math.max(0, ARGV[13] - (result.claimed == NOTHING and 0 or #result.claimed[2]))
      C('HSET', Q .. 'idle', id, s.k .. int(free) .. ' ' .. int(now))
    else
      C('HDEL', Q .. 'idle', id)
    end
    if result.exhausted then long.call(id) end
    return nil
  end
  -- Whoever is among the idle tells how many tasks it could start by now, and is told of others.
  if ARGV[13] ~= '0' and C('HEXISTS', Q .. 'idle', id) == 1 then
    guard()
    C('HSET', Q .. 'idle', id, s.k .. ARGV[13] .. ' ' .. int(now))
  elseif not paused then
    local result = claim(0)
    head = result.head
    if result.exhausted then long.call(id) end
  end
  return nil
end

local over = step()
if over then return over end
conclude()
local nextIn = -1
if not hasMore and not q then hasTimes = false end
if q or hasTimes == nil then hasTimes = C('EXISTS', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0 end
if hasTimes then
  if C('EXISTS', Q .. 'casc', Q .. 'sweep') > 0 then
    nextIn = 0
  else
    local due = C('ZRANGE', Q .. 'due', 0, 0, 'WITHSCORES')[2]
    local deadline = C('ZRANGE', Q .. 'deadline', 0, 0, 'WITHSCORES')[2]
    if due or deadline then nextIn = math.max(0, math.min(due or math.huge, deadline or math.huge) - now) end
  end
end
return {
  status, s.token, now, claimed, stale, staleReports, s.notes, C('HLEN', own) - BOOK,
  string.format('%.17g', nextIn), head or -1, paused and 1 or 0,
}
