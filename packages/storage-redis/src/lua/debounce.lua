-- Debounce: a key names the newest task that was stored with it, and while that one waits, a task with the same key goes
-- into it instead of being stored. `windows` has the ids by kind and key; of the task itself `wk` is the name of its window,
-- `wo` when that opened (none after a retry of the ended task), `wn` the id of the last task that went into it.
local windows = {}

local function namesake(o)
  if not o.b then return nil end
  local id = windows[o.b]
  if id == nil then
    id = C('HGET', WINDOWS, o.b) or false
    windows[o.b] = id
  end
  if not id then return nil end
  q.load({ id })
  return T[id] and T[id].p and T[id] or nil
end

local function isWaiting(t)
  return t.p == 'r' or t.p == 'l' or t.p == 'd'
end

local function delayIn(opened, o)
  return math.max(0, math.min(o.d or 0, opened + (o.w or math.huge) - now))
end

-- Whether `absorb` would take the task up.
function q.isAbsorbed(id, o)
  local known = namesake(o)
  return known and (isWaiting(known) or known.r.wn == id)
end

local function replace(t, id, d, o)
  local r = rare(t)
  -- After an attempt, or a retry of the ended task, its window is no more: this is a new one.
  if (r.at or 0) > 0 or not r.wo then r.wo = now end
  r.wn = id
  local _, _, _, codec, size, from = headerOf(d)
  local options = size ~= '' and string.sub(d, from, from + size - 1) or false
  q.redefine(t, isBytes(d), codec, string.sub(d, from + (tonumber(size) or 0)), options)
  r.at, r.du, r.rc, r.pb, r.to, r.e, r.pr, r.cp = nil
  local delay = delayIn(r.wo, o)
  if delay == 0 and t.p ~= 'd' then
    -- One that is ready keeps its place, so that it is not put off for ever.
    q.reprioritize(t, priorityOf(d))
    return
  end
  q.setPriority(t, priorityOf(d))
  if delay > 0 then q.schedule(t, now + delay) else q.toReady(t) end
end

-- Puts the task into the one with its key that waits. @returns the id of that one, nil when the task is to be stored
function q.absorb(id, d, o)
  local t = namesake(o)
  if not t then return nil end
  local repeated = t.r.wn == id
  if not repeated and not isWaiting(t) then return nil end
  if isWatched(d) then q.watch(t, watcherOf(d), WATCHED) end
  if not repeated then replace(t, id, d, o) end
  return t.id
end

-- The key of a new task names it from now on.
function q.openWindow(t, o)
  if not o.b then return end
  local r = rare(t)
  r.wk, r.wo, r.wn = o.b, now, nil
  r.dl = delayIn(now, o)
  windows[o.b] = t.id
  q.windowed = q.windowed or {}
  q.windowed[o.b] = t.id
end
