--! prelude definition records idle sessions queue
-- A bounded piece of what anybody may do for a queue.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 'drain', 'prune' or 'reconcile', 3 limit, of prune 4 to 7 age and count of success and of failed
-- reply 1 when there is more to do, else 0; of reconcile how many tasks were mended
-- cost  O(limit log N)
local q = queue(KEYS[2])
local limit = tonumber(ARGV[3])
local actions = {}

function actions.drain()
  local done = q.promoteDue(limit)
  if done < limit then done = done + q.passDeadlines(limit - done) end
  if done < limit then done = done + q.release(limit - done) end
  if done < limit then q.sweep(limit - done) end
  q.flush()
  q.wake()
  local time = q.nextTime()
  return (q.backlog() or (time and time <= now)) and 1 or 0
end

function actions.prune()
  local success = { age = tonumber(ARGV[4]), count = tonumber(ARGV[5]) }
  local failed = { age = tonumber(ARGV[6]), count = tonumber(ARGV[7]) }
  local more = q.pruneAll({ s = success, c = success, k = success, f = failed }, limit)
  q.wake()
  return more and 1 or 0
end

-- Looks at a piece of all tasks, from where the last look ended: whoever is in no structure becomes ready.
function actions.reconcile()
  local Q = KEYS[2]
  local cursor = C('HGET', Q .. 'meta', 'cursor') or '0'
  local page = C('HSCAN', Q .. 'defs', cursor, 'COUNT', limit)
  local ids = {}
  for i = 1, #page[2], 2 do ids[#ids + 1] = page[2][i] end
  q.load(ids)
  guard()
  C('HSET', Q .. 'meta', 'cursor', page[1])
  local mended = 0
  for i = 1, #ids do
    local t = q.tasks[ids[i]]
    if t and not t.p then
      mended = mended + 1
      q.toReady(t)
    end
  end
  q.conclude()
  return mended
end

return actions[ARGV[2]]()
