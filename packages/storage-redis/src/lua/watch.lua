--! prelude
-- Registers a waiter, and says what is final already.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 watcher, 3 ttl, then ids
-- reply for each id: of a plain success of which somebody was told just now its id and record, of another end what `view` gives,
--       'o' registered, 'f' its record is gone, 'u' unknown
-- cost  O(ids); of tasks that run O(sessions) besides. For plain successes 2 commands.
local Q = KEYS[2]
-- ms after an end for which the word of it keeps the record long enough for who reads it now.
local FRESH = 1000
local ids, out, rest = {}, {}, {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end

-- The common case: who submitted a task and waits for it has heard that it ended.
local results = C('HMGET', Q .. 'res', unpack(ids))
local rares = C('EXISTS', Q .. 'rare') == 1 and C('HMGET', Q .. 'rare', unpack(ids)) or {}
for i = 1, #ids do
  local since = results[i] and not rares[i] and string.match(results[i], '^s%d+ (%d+)! ')
  if since and now - since < FRESH then
    out[i] = { ids[i], results[i] }
  else
    rest[#rest + 1] = i
  end
end
if #rest == 0 then return out end

--! definition records idle sessions queue view
local q = queue(Q)
local names = {}
for k = 1, #rest do names[k] = ids[rest[k]] end
q.load(names)
for k = 1, #rest do
  local i = rest[k]
  local t = q.tasks[ids[i]]
  if not t or not t.p then
    local tomb = C('HGET', Q .. 'tombs', ids[i])
    out[i] = tomb and tonumber(string.match(tomb, '^%d+')) > now and 'f' or 'u'
  elseif t.res then
    q.keep(t)
    out[i] = viewOf(q, t)
  else
    q.watch(t, ARGV[2], tonumber(ARGV[3]))
    out[i] = 'o'
  end
end
q.flush()
return out
