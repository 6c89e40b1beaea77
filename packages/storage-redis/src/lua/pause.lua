--! prelude definition records idle sessions queue
-- Stops or allows claims from a queue.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 '1' to stop them
-- cost  O(sessions)
queue(KEYS[2]).pause(ARGV[2] == '1')
return 1
