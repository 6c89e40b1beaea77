-- Groups: their flags, the sweeps that carry those to members, and how long flags outlive members.

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

-- Without a flag there is nothing to remember of a group without a record; else it is remembered like a chosen id.
function q.fade(group)
  C('HDEL', RECORDS, group)
  if hasFlags(flagsOf(group)) then C('ZADD', FADE, now + DAY, group) end
end

-- Sets flags, which hold for later members too. What they mean for present ones is for sweeps to carry out.
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

-- Ends members of a cancelled group, but for those that their parents will end. @returns how many it looked at
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

-- Brings tasks back from the lane of a group that goes on. @returns how many
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

-- Carries flags to at most `limit` members. @returns how many it looked at
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

-- Lets at most `limit` groups go that have had no record for a day.
function q.pruneGroups(limit)
  for _, group in ipairs(C('ZRANGEBYSCORE', FADE, '-inf', now, 'LIMIT', 0, limit)) do
    guard()
    C('ZREM', FADE, group)
    if C('HEXISTS', RECORDS, group) == 0 then C('HDEL', GROUPS, group) end
  end
end
