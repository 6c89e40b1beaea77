--! prelude definition records idle sessions queue drain
-- Looks for suspect and condemned sessions, and takes back entries of those that are over.
--
-- KEYS  1 shard
-- ARGV  2 entries at most
-- reply the suspects, the condemned that are not empty yet, what is ready again, what is poison: `tenant/queue id`
-- cost  O(limit log N)
lookAhead()
look()
local condemned, report = {}, { reclaimed = {}, poisoned = {} }
for _, id in ipairs(C('ZRANGE', S .. 'lost', 0, -1)) do
  local s = session(id)
  if s and s.over == 'condemned' then condemned[#condemned + 1] = id end
end
drainLost(tonumber(ARGV[2]), report, nil)
return { C('ZRANGE', S .. 'susp', 0, -1), condemned, report.reclaimed, report.poisoned }
