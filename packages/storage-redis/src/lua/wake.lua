-- The end of a step: what it caused is spread within its bounds, and whoever has something to do now is woken.
local RELEASE_LIMIT = 100
local SWEEP_LIMIT = 200
-- Records that one end may remove: two, so that retention catches up with any rate.
local PRUNE_PER_END = 2

function q.backlog()
  return C('EXISTS', CASC, SWEEP) > 0
end

-- When the next task is due or the next deadline passes.
function q.nextTime()
  local due = C('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]
  local deadline = C('ZRANGE', DEADLINE, 0, 0, 'WITHSCORES')[2]
  if due and deadline then return math.min(due, deadline) end
  return tonumber(due or deadline or nil)
end

function q.isPaused()
  return C('HGET', META, 'paused') == '1'
end

-- Releases and sweeps within the step's bounds.
function q.spread()
  q.flush()
  if not q.backlog() then return end
  q.released = (q.released or 0) + q.release(RELEASE_LIMIT - (q.released or 0))
  q.swept = (q.swept or 0) + q.sweep(SWEEP_LIMIT - (q.swept or 0))
  -- A sweep may have ended parents.
  q.released = q.released + q.release(RELEASE_LIMIT - q.released)
end

local function wake(limit, kind)
  wakeIdle(Q, limit, kind)
end

-- The end of a step that has used up its bounds already.
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
  -- Somebody has to go on with what is left.
  if q.backlog() then wake(1) end
end

function q.conclude()
  q.spread()
  q.wake()
end

-- Stops or allows claims, and tells every session.
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
