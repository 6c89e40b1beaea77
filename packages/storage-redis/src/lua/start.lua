--! prelude
-- What a storage asks first: makes what a new namespace needs, and gives it a number of its own. One of another format stays
-- as it is.
--
-- KEYS  1 shard
-- ARGV  2 format, 3 number of shards, 4 an id for the run of a new namespace
-- reply stored format, shards, id of the run, the number
-- cost  O(1), 3 commands
local META = S .. 'meta'
local stored = C('HMGET', META, 'format', 'shards', 'runId', 'generator')
local format, shards, run = stored[1] or ARGV[2], stored[2] or ARGV[3], stored[3] or ARGV[4]
if format ~= ARGV[2] or shards ~= ARGV[3] then return { format, shards, run, 0 } end
-- Not less than the time, so that a number does not come again when the memory was lost.
local number = int(math.max(tonumber(stored[4] or 0) + 1, math.floor(now / 1000)))
C('HSET', META, 'format', format, 'shards', shards, 'runId', run, 'generator', number)
return { format, shards, run, number }
