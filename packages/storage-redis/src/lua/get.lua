--! prelude definition records idle sessions queue view
-- The records of tasks.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 ids, packed
-- reply for each id what `view` gives, or empty
-- cost  O(ids); of running tasks O(sessions) besides. Reads only.
local q = queue(KEYS[2])
return view(q, cmsgpack.unpack(ARGV[2]))
