--! prelude
-- What a storage asks first: makes what a new namespace needs, and gives it a number of its own. One of another format stays
-- as it is.
--
-- KEYS  1 shard
-- ARGV  2 format, 3 number of shards, 4 an id for the run of a new namespace, 5 which servers these are
-- reply stored format, shards, id of the run, the number
-- cost  O(1), 4 commands
local META = S .. 'meta'
local stored = C('HMGET', META, 'format', 'shards', 'runId', 'generator', 'servers')
local format, shards, run = stored[1] or ARGV[2], stored[2] or ARGV[3], stored[3] or ARGV[4]
if format ~= ARGV[2] or shards ~= ARGV[3] then return { format, shards, run, 0 } end
-- The last number plus 1. Servers that were started anew or took the place of others may have forgotten some that are in
-- use, so then it leaps; and a new namespace begins with the time, which one before it had left behind.
local number = stored[4] and tonumber(stored[4]) + 1 or math.floor(now / 1000)
if stored[5] and stored[5] ~= ARGV[5] then number = number + 10000 end
number = int(number)
guard()
C('HSET', META, 'format', format, 'shards', shards, 'runId', run, 'generator', number, 'servers', ARGV[5])
return { format, shards, run, number }
