--! prelude
-- The one call of a running node; its parts are carried out in the order of their listing.
--
-- KEYS  1 shard
-- ARGV  2 session, 3 ack, 4 ackTaken, 5 '1' for a renewal, 6 want, 7 bytes wanted, 8 priority that is too little urgent or '',
--       9 newest log lines kept, 10 number of marks, 11 of reports, 12 of settlements, 13 tasks that would start at once or '',
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
  return { 2, '0', now, '', stale, staleReports, '', 0, -1, -1, 0 }
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
  --! definition records idle sessions queue drain
  sessions[id] = s
  q = queue(Q)
  long = { call = call, given = given, beat = beat, look = look, lookAhead = lookAhead, drainLost = drainLost }
  return q
end

local meta = C('HMGET', META, 'paused', 'successCount')
local paused = meta[1] == '1'

-- Ends that were written the short way, and what was made ready by time.
local ended, promoted = 0, nil

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

-- An empty list is told as an empty text, which costs less.
local function orEmpty(list)
  return #list > 0 and list or ''
end

local function gone()
  conclude()
  return { 2, s.token, now, '', orEmpty(stale), orEmpty(staleReports), '', 0, -1, -1, 0 }
end

-- 1. marks and reports
if marks > 0 then
  --! mark
end
at = at + 2 * marks
if reports > 0 then
  --! report
end
at = at + 3 * reports

-- 2. settlements
if settlements > 0 then
  --! success
end
if q then q.spread() end

-- 3. a session that is over
if s.over ~= '' then return gone() end

-- 4. what was taken, until it is acknowledged
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

-- 6. the claim
local want = tonumber(ARGV[6])
local status, claimed, head = 0, nil, nil
-- Whether something is due some time, or was left; nil when nobody has looked, or it may have changed since.
local hasTimes

-- Puts it among the idle. @param free how many tasks may be handed to it until it asks again, see hand.lua
local function setIdle(free)
  guard()
  C('HSET', Q .. 'idle', id, free .. ',' .. int(now) .. s.k)
end

-- @returns the reply when the session is over
local function step()
  if want > 0 and s.token ~= ARGV[3] then
    status = 1
    claimed = general().entriesAfter(s, tonumber(ARGV[3]))
    want = 0
    -- It claims again, and finds only another `again` if it is handed something meanwhile. But when this was a request that
    -- came late, nobody asks again, so whoever sleeps is still woken.
    if C('HEXISTS', Q .. 'idle', id) == 1 then setIdle('0') end
  end
  if want == 0 then
    -- Whoever is among the idle tells how many tasks it could start by now, and is told of others.
    if status == 0 and ARGV[13] ~= '' and C('HEXISTS', Q .. 'idle', id) == 1 then
      setIdle(ARGV[13])
      if ARGV[13] ~= '0' then return nil end
    end
    if paused then return nil end
  end
  --! definition take due
  if want == 0 then
    local result = claim(0)
    head = result.head
    if result.exhausted then long.call(id) end
    return nil
  end
  hasTimes = (hasMore or q) and C('EXISTS', Q .. 'due', Q .. 'deadline', Q .. 'casc', Q .. 'sweep') > 0
  local isSilent = C('ZRANGEBYSCORE', S .. 'sess', '-inf', now, 'LIMIT', 0, 1)[1]
  local hasLost = (hasMore or q) and C('EXISTS', S .. 'lost') == 1
  local isDone, result = not hasTimes, nil
  -- What others have lost may come first, and the look may condemn this very session.
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
}
