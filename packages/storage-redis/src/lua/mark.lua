-- Start marks: handlers were called, and the entries of their tasks say so from now on.
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
