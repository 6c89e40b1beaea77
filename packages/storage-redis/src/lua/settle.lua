-- The settlement: how an attempt ended, accepted only while the entry is there.

-- Of the last accepted settlement, of whatever kind; tells a repeat from a stale one.
function q.settledToken(t)
  return t.r and t.r.st or (t.res and tonumber(string.match(t.res, '^%a(%d+)'))) or 0
end

-- An attempt that ended had started: no expiry, no probation.
local function started(t)
  rare(t).pb = nil
  q.clearDeadline(t)
end

local function suspend(t, m)
  started(t)
  q.leave(t)
  local r = rare(t)
  if m.cp then r.cp = m.cp end
  if not m.a then
    if m.u then q.schedule(t, now + m.u) else q.toReady(t) end
    return
  end
  q.load(m.a)
  -- A settlement cannot be refused: what could never be released ends here.
  for _, id in ipairs(m.a) do
    if id == t.id or not T[id] or not T[id].p then return q.fail(t, 'c', 'DEPENDENCY_NOT_FOUND') end
  end
  q.addParents(t, m.a, m.m)
  if q.isRefused(m.a, m.m) then
    q.fail(t, 'c', 'DEPENDENCY_FAILED')
  elseif not r.o then
    q.toReady(t)
  else
    r.su = true
    if m.u then q.setDeadline(t, now + m.u) end
    q.block(t)
  end
end

-- @param rest of a success the tail of its record, else the packed details
-- @returns whether it counts as accepted: now, or as the repeat of one that was; otherwise nothing changed
function q.settle(s, id, token, op, rest)
  q.load({ id })
  local t = T[id]
  if not t or not t.p then return false end
  if t.p ~= 'o' or t.session ~= s.id or q.tokenOf(t) ~= token then return token > 0 and q.settledToken(t) == token end
  local r = rare(t)
  r.st = token
  if op ~= 'x' then r.to = nil end
  if op == 's' then
    local duration, tail = string.match(rest, '^(%S*) (.*)$')
    if duration == '' then duration = r.du or '' else r.du = duration end
    r.at = (r.at or 0) + 1
    r.e = nil
    q.finish(t, 's', token, duration .. ' ' .. tail, s.w)
    return true
  end
  local m = cmsgpack.unpack(rest)
  if m.du then r.du = m.du end
  if op == 'f' then
    r.at = (r.at or 0) + 1
    r.e, r.f = m.e, m.f
    q.finish(t, 'f', token, r.du or '', s.w)
    if m.g and r.g then q.flag(r.g, true, nil) end
  elseif op == 'r' then
    r.at = (r.at or 0) + 1
    r.e = m.e
    q.count('r', 1)
    started(t)
    q.leave(t)
    q.schedule(t, now + m.i)
  elseif op == 'x' then
    q.leave(t)
    q.toReady(t, q.scoreOf(t))
  elseif op == 'p' then
    suspend(t, m)
  else
    r.re, r.ms = m.re, m.ms
    q.finish(t, op, token, r.du or '')
  end
  return true
end
