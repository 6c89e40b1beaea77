--! prelude
-- How many tasks are in each state.
--
-- KEYS  1 shard, 2 queue
-- reply pending, scheduled, blocked, running, success, failed, cancelled, skipped, prefetched, 1 when paused
-- cost  O(sessions). Reads only.
local Q = KEYS[2]
local running, marked = 0, 0
for _, id in ipairs(C('SMEMBERS', Q .. 'leases')) do
  local own = S .. 'own:' .. id
  running = running + math.max(0, C('HLEN', own) - BOOK)
  marked = marked + (tonumber(C('HGET', own, ' m') or '0') or 0)
end
local function ended(p)
  return C('ZCARD', Q .. 'done:' .. p) + C('ZCARD', Q .. 'kept:' .. p)
end
return {
  C('ZCARD', Q .. 'ready') + C('ZCARD', Q .. 'aside'), C('ZCARD', Q .. 'due'), C('ZCARD', Q .. 'need'), running,
  ended('s'), ended('f'), ended('c'), ended('k'), running - marked, C('HGET', Q .. 'meta', 'paused') == '1' and 1 or 0,
}
