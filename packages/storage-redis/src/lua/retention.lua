-- How final records go. `done:` holds those that retention has not looked at, by the order of their ends; one that has to
-- stay although its time has come moves to `kept:`, so that it is not met again before the time in `look:`.
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

-- Whether somebody may still read the record, or an unfinished task needs it.
local function mustStay(t, since)
  if string.match(t.res, '^%a%d+ %d+(!?)') == '!' and now < since + WATCHED then return true end
  local list = q.waitsOf(t)
  for i = 2, #list, 2 do
    if list[i] > now then return true end
  end
  return q.neededBy(t) ~= nil
end

-- Removes at most `limit` records of a state that are beyond the rule, oldest first. @returns whether there is more to do
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
  -- Most often the oldest stays, and with it all others.
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

-- Removes at most `limit` of what else has had its time. @returns whether there is more
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

-- A piece of retention for all states. @returns whether there is more to do
function q.pruneAll(rules, limit)
  local more = q.pruneTombs(limit)
  for _, p in ipairs({ 's', 'f', 'c', 'k' }) do
    if q.prune(p, rules[p], limit) then more = true end
  end
  q.pruneGroups(limit)
  q.pruneHistory()
  return more
end
