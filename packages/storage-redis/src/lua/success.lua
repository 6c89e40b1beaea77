-- Ends of attempts. Plain successes are written here, in one go; what needs more is left to the other way.

-- What a task has that was due and has nothing else, see promotePlain.
local function isSince(packed)
  return string.sub(packed, 1, 3) == '\129\161s'
end

-- Bytes of results that messages carry.
local CARRIED = 16384

local rares = (hasMore or q) and C('EXISTS', RARE) == 1 and C('HMGET', RARE, unpack(ids)) or NOTHING
local waits = (hasMore or q) and C('EXISTS', Q .. 'waits') == 1 and C('HMGET', Q .. 'waits', unpack(ids)) or NOTHING
-- What a mark has changed is read again.
local entries, offset = found, 6
if marks > 0 then
  entries, offset = C('HMGET', own, unpack(ids)), 0
end
local out, res, done, rest, seen, told = {}, {}, {}, {}, {}, {}
local n, started, carried = 0, 0, 0
local time = ' ' .. int(now)
-- Tasks of one claim have nearly always the same entry, so what it says is worked out once for all of them.
local lastEntry, lastToken, isHeld, isStarted, watcher, head
local token, tokens, hows = nil, {}, {}
for i = 1, settlements do
  local id, e, how = ids[i], entries[offset + i], ARGV[at + 2 * i]
  if string.byte(how) == 35 then token, how = string.match(how, '^#(%d+)(.*)$') end
  if e and (e ~= lastEntry or token ~= lastToken) then
    lastEntry, lastToken = e, token
    isStarted = string.byte(e) == 43
    local from = isStarted and 2 or 1
    isHeld = string.find(e, token .. ' ', from, true) == from
    local ends
    ends, watcher = string.match(e, ' w(%d+) (%S+)$')
    if ends and (watcher == s.w or tonumber(ends) <= now) then watcher = nil end
    head = 's' .. token .. time .. (watcher and '!' or '')
  end
  if e and isHeld and (not rares[i] or isSince(rares[i])) and not waits[i] and not seen[id] and string.byte(how) == 32 then
    seen[id] = true
    if isStarted then started = started + 1 end
    if watcher then
      local list = told[watcher]
      if not list then
        list = {}
        told[watcher] = list
      end
      list[#list + 1] = id
      carried = carried + #how
      if carried > CARRIED or not string.find(how, '^ %S* json t[^\n]*$') then carried = math.huge end
      list.records = list.records or {}
      list.records[#list] = head .. how
    end
    n = n + 1
    out[n] = id
    res[2 * n - 1], res[2 * n] = id, head .. how
    done[2 * n] = id
  else
    -- A later settlement of the same task waits its turn.
    seen[id] = true
    rest[#rest + 1] = i
    tokens[i], hows[i] = token, how
  end
end
if n > 0 then
  C('HDEL', own, unpack(out))
  dirty = true
  C('HSET', RES, unpack(res))
  -- One score for all: of those that ended in one step the order is that of their ids, as everywhere among equals.
  local score = int(now * 2048 + C('HINCRBY', META, 'ends', 1) % 2048)
  for i = 1, n do done[2 * i - 1] = score end
  C('ZADD', Q .. 'done:s', unpack(done))
  C('HINCRBY', Q .. 'hist', int(now - now % 60000) .. 's', n)
  if started > 0 then C('HINCRBY', own, ' m', -started) end
  for watcher, list in pairs(told) do
    local text = table.concat(list, ' ')
    -- Who hears of a small result need not ask for it.
    if carried <= CARRIED then text = text .. '\n' .. table.concat(list.records, '\n') end
    publish('final:' .. watcher, text)
  end
  ended = n
end
if #rest > 0 then
  general()
  local names = {}
  for i = 1, #rest do names[i] = ids[rest[i]] end
  q.load(names)
  for _, i in ipairs(rest) do
    local letter = string.sub(hows[i], 1, 1)
    if not q.settle(s, ids[i], tonumber(tokens[i]), letter == ' ' and 's' or letter, string.sub(hows[i], 2)) then
      stale[#stale + 1] = i - 1
    end
  end
  q.flush()
end
