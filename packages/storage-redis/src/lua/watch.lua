--! prelude records idle sessions queue view
-- Registers a waiter, and says what is final already.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 watcher, 3 ttl, then ids
-- reply for each id: what `view` gives when it is final, 'o' registered, 'f' its record is gone, 'u' unknown
-- cost  O(ids); of tasks that run O(sessions) besides
local Q = KEYS[2]
local q = queue(Q)
local ids, out = {}, {}
for i = 4, #ARGV do ids[#ids + 1] = ARGV[i] end
q.load(ids)
for i = 1, #ids do
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
