-- Plain tasks that are due.

-- Places behind all others for tasks in this order. Those whose ids put them in this order share one in their priority.
local function placesBehind(ids, defs)
  local number = C('HINCRBY', META, 'seq', #ids) - #ids
  -- Redis orders ids by their bytes, and Lua by the locale of the server, which may put 'a' before 'B'.
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

-- Makes plain tasks ready that are due, at most 200, behind all others of their priority; or claims them at once when nothing
-- else is ready and all are wanted.
-- @param mayClaim whether nothing else comes before the claim
-- @returns whether that was all there was to do, and what was claimed
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
