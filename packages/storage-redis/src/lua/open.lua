--! prelude records idle sessions
-- Creates a session; of one that lives it is a beat.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 session, 3 kinds with a space before, between and after, 4 its watcher, 5 packed details
-- reply 1, or 0 when the session is over
-- cost  O(log N), 15 commands
local id, Q = ARGV[2], KEYS[2]
local s = session(id)
if s then
  if s.over ~= '' then return 0 end
  guard()
  beat(s)
  return 1
end
guard()
local own = S .. 'own:' .. id
local i = cmsgpack.unpack(ARGV[5])
C('HSET', own, ' q', Q, ' k', ARGV[3], ' w', ARGV[4], ' #', '0', ' !', '0|', ' o', '', ' m', '0', ' i', ARGV[5])
C('SADD', Q .. 'leases', id)
C('HSET', Q .. 'meta', 'successAge', i.sa, 'successCount', i.sc, 'failedAge', i.fa, 'failedCount', i.fc)
sessions[id] = nil
beat(session(id))
return 1
