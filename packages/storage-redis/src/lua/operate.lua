--! prelude definition records idle sessions queue
-- One operation on tasks, where their state permits it.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 operation, 3 packed details, then ids
-- reply for each id: 'done', 'unknown', or its place and, of a removal, the dependent that still needs it
-- cost  O(ids log N); of running tasks O(sessions) besides
local PERMITTED = {
  cancel = 'rldno', retry = 'fc', promote = 'd', reprioritize = 'rldn', remove = 'rldnsfck', complete = 'n', revoke = 'o',
}
local operation, m = ARGV[2], cmsgpack.unpack(ARGV[3])
local q = queue(KEYS[2])
local ids = {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
q.load(ids)

local actions = {
  cancel = function(t) q.fail(t, 'c', m.code, m.message) end,
  retry = function(t)
    if m.payload then
      q.redefine(t, m.bytes == 1, m.codec, m.payload)
      -- What the last attempt saved belongs to the payload that it had.
      q.rare(t).cp = nil
    end
    q.revive(t)
  end,
  promote = function(t) q.toReady(t) end,
  reprioritize = function(t) q.reprioritize(t, m.priority) end,
  remove = function(t)
    q.flush()
    local needed = q.neededBy(t)
    if needed then return t.p .. needed end
    q.forget(t)
  end,
  complete = function(t)
    if not (t.r and t.r.h) then return t.p end
    q.finish(t, 's', 0, (t.r.du or '') .. ' ' .. m.tail)
  end,
  revoke = function(t)
    local s = q.takeAway(t, 'r')
    q.takeBack(t, true, given(s).mr)
  end,
}

guard()
local out = {}
for i = 1, #ids do
  local t = q.tasks[ids[i]]
  if not t or not t.p then
    out[i] = 'unknown'
  elseif not string.find(PERMITTED[operation], t.p, 1, true) then
    out[i] = t.p
  else
    out[i] = actions[operation](t) or 'done'
  end
end
q.conclude()
return out
