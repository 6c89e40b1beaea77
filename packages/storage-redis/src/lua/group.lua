--! prelude definition records idle sessions queue
-- Sets the flags of a group.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 group, 3 '1' to cancel it, 4 '1' to pause it, '0' to go on, ''
-- cost  O(200 log N), for the members that it reaches in this step
local q = queue(KEYS[2])
local paused
if ARGV[4] ~= '' then paused = ARGV[4] == '1' end
q.flag(ARGV[2], ARGV[3] == '1', paused)
q.conclude()
return 1
