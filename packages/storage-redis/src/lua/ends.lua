-- How tasks end, and what follows from an end.

local function count(what, by)
  history[what] = (history[what] or 0) + by
end
q.count = count

-- Unties an unfinished task from everything that waits for it to move.
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

-- The only door to a final state, for a task wherever it is.
--
-- @param token that of the settlement which decides, 0 when something else does
-- @param tail duration, and of a success the codec and the result, as the record has them
-- @param but a watcher that learns of it by itself
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

-- Lets a running task go from its entry. The same step puts it elsewhere.
function q.leave(t)
  touch(t)
  t.p, t.session = nil, nil
end

-- Takes a running task's entry, and tells its session. @returns whose it was
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

-- Ends a task that no settlement decided about.
function q.fail(t, p, reason, message)
  local r = rare(t)
  r.re, r.ms = reason, message
  q.takeAway(t, 'c')
  q.finish(t, p, 0, r.du or '')
end

function q.endByGroup(t)
  q.fail(t, 'c', 'GROUP_CANCELLED')
end

-- Puts a task whose entry was taken back in its old place, or ends it when that happened too often.
-- @returns whether it was ended
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

-- Gives a waiting task the place of its age within another priority, wherever it waits.
function q.reprioritize(t, priority)
  q.setPriority(t, priority)
  if t.p == 'l' then
    t.v = priority * BAND + t.v % BAND
  elseif t.p == 'r' and t.v then
    -- One that became ready in this very step gets its place at the end of it.
    local since = t.r and t.r.s
    q.toReady(t, priority * BAND + t.v % BAND)
    if t.p == 'r' then rare(t).s = since end
  end
end

-- A final task's next life, at the end of its priority.
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

-- Removes every trace of a task that no unfinished one needs. Its id stays taken, unless it was a generated one.
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

-- The unfinished task that keeps this one from being removed.
function q.neededBy(t)
  return t.r and t.r.k and C('ZRANGE', Q .. 'kids:' .. t.id, 0, 0)[1] or nil
end

-- ------------------------------------------------------------------------------------------ pieces of bounded work

-- Makes at most `limit` due tasks ready, in the order of their times. @returns how many
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

-- Carries out at most `limit` deadlines that have passed. @returns how many
function q.passDeadlines(limit)
  local ids = C('ZRANGEBYSCORE', DEADLINE, '-inf', now, 'LIMIT', 0, limit)
  if #ids == 0 then return 0 end
  q.load(ids)
  for i = 1, #ids do
    local t = T[ids[i]]
    if not t.r.su then
      q.fail(t, 'c', 'TASK_EXPIRED')
    else
      -- A suspended task goes on without the parents that are still open.
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

-- A dependent learns of the end of a parent. Only who is blocked and names the parent is touched, so a repeat does no harm.
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

-- Tells at most `limit` dependents of the ends of their parents, one level at a time. @returns how many
function q.release(limit)
  local done = 0
  while done < limit do
    local parents = C('LRANGE', CASC, 0, 49)
    if #parents == 0 then break end
    local results = C('HMGET', RES, unpack(parents))
    local pairsOf, ids, over = {}, {}, 0
    for i = 1, #parents do
      local room = limit - done
      -- A parent that was retried meanwhile ends again, and then tells those that still wait.
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
