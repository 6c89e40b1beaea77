--! prelude definition records idle sessions queue
-- After any doubt: what the session holds, and what became of the ids. Also a beat.
--
-- KEYS  1 shard
-- ARGV  2 session, then ids
-- reply status 0 ok, 2 gone; token; now; entries, see `describe`; for each id its place and settled token, or empty
-- cost  O(entries + ids)
local s = session(ARGV[2])
local tasks, ids = {}, {}
for i = 3, #ARGV do ids[#ids + 1] = ARGV[i] end
local q = s and queue(s.q)
if q then q.load(ids) end
for i = 1, #ids do
  local t = q and q.tasks[ids[i]]
  local token = t and t.p and (string.find('sfck', t.p, 1, true) and tonumber(string.match(t.res, '^%a(%d+)')) or q.settledToken(t))
  tasks[i] = token and t.p .. int(token) or ''
end
if not s or s.over ~= '' then return { 2, s and s.token or '0', now, {}, tasks } end
guard()
beat(s)
return { 0, s.token, now, q.entriesAfter(s, 0), tasks }
