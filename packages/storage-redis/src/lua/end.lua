--! prelude definition records idle sessions queue drain
-- Gives back what the session holds, to the old places.
--
-- KEYS  1 shard
-- ARGV  2 session, 3 entries at most
-- reply 1 when nothing is left, else 0
-- cost  O(limit log N)
local s = session(ARGV[2])
if not s then return 1 end
guard()
if s.over == '' then close(s, 'ended') end
local _, isEmpty = drainOne(s, tonumber(ARGV[3]))
queue(s.q).conclude()
return isEmpty and 1 or 0
