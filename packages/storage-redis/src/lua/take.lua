-- The claim of plain tasks from ready; what takes a closer look is left to the other way.

local function kindsServed()
  for _, kind in ipairs(C('SMEMBERS', Q .. 'kinds')) do
    if not string.find(s.k, ' ' .. kind .. ' ', 1, true) then return false end
  end
  return true
end

-- The first of ready and their scores. A score as text is dear, and tasks that were submitted together share it, so it is
-- asked for once for each of them, as long as that helps.
local function firstOfReady(count)
  local ids, scores, alone = {}, {}, 0
  while #ids < count do
    local n = #ids
    local first = C('ZRANGE', READY, n, alone < 3 and n or count - 1, 'WITHSCORES')
    local score = first[2]
    if not score then break end
    if #first == 2 and n + 1 < count then
      local same = C('ZRANGEBYSCORE', READY, score, score, 'LIMIT', 0, count - n)
      for i = 1, #same do ids[n + i], scores[n + i] = same[i], score end
      alone = #same < 4 and alone + 1 or 0
    else
      for i = 1, #first, 2 do
        ids[#ids + 1] = first[i]
        scores[#scores + 1] = first[i + 1]
      end
    end
  end
  return ids, scores
end

-- Makes tasks that have left their places entries of the session, by a new token.
local function hold(ids, defs, scores)
  local token = int(C('INCR', S .. 'tok'))
  s.token = token
  local before, entries = token .. ' ' .. int(now) .. ' ', { ' #', token }
  local lastScore, plain
  for i = 1, #ids do
    local d = defs[i]
    if scores[i] ~= lastScore then
      lastScore = scores[i]
      plain = before .. lastScore
    end
    local e = plain
    if isWatched(d) then
      e = e .. ' w' .. int(createdOf(d) + WATCHED) .. ' ' .. watcherOf(d)
    end
    entries[2 * i + 1], entries[2 * i + 2] = ids[i], e
  end
  C('HSET', own, unpack(entries))
end

-- Takes the first of ready. @returns nil when that takes a closer look
local function claimPlain(want, bytes, bound)
  if (hasMore or q) and C('EXISTS', Q .. 'aside') == 1 or not kindsServed() then return nil end
  local ids, scores = firstOfReady(want + 1)
  if #ids == 0 then return { short = want > 0 } end
  local rares, known = (hasMore or q) and C('EXISTS', RARE) == 1 and C('HMGET', RARE, unpack(ids)) or NOTHING, {}
  for i = 1, #rares do
    local r = rares[i] and cmsgpack.unpack(rares[i])
    -- What keeps it from being taken without a closer look.
    if r and (r.g or r.D) then return nil end
    known[i] = r
  end
  local defs = want > 0 and C('HMGET', DEFS, unpack(ids)) or {}
  local n, size, most = 0, 0, math.min(want, #ids)
  for i = 1, most do size = size + #defs[i] end
  if bound == math.huge and size <= bytes then
    n = most
  else
    size = 0
    for i = 1, most do
      size = size + sizeOf(defs[i])
      if tonumber(scores[i]) >= bound or (i > 1 and size > bytes) then break end
      n = i
    end
  end
  local head = scores[n + 1] and math.floor(scores[n + 1] / BAND) or nil
  local result = { head = head, short = n < want and not head }
  if n == 0 then return result end
  guard()
  for i = n + 1, #ids do ids[i], defs[i], scores[i] = nil, nil, nil end
  local rest = {}
  for i = 1, n do
    if rares[i] then
      local r, k = known[i], #rest
      rest[k + 1], rest[k + 2], rest[k + 3] = i, rares[i], r.a and general().parentsOf(r) or ''
      rest[k + 4] = int(r.s or createdOf(defs[i]))
    end
  end
  C('ZREMRANGEBYRANK', READY, 0, n - 1)
  hold(ids, defs, scores)
  result.claimed = { table.concat(ids, ' '), defs, rest }
  return result
end

local function claim(want)
  local bytes = tonumber(ARGV[7])
  local bound = ARGV[8] ~= '' and tonumber(ARGV[8]) * BAND or math.huge
  local result = claimPlain(want, bytes, bound)
  if result then return result end
  general()
  if want > 0 then
    local list, head, isShort, isExhausted = q.claim(s, want, bytes, bound)
    return { claimed = q.describe(list), head = head, short = isShort, exhausted = isExhausted }
  end
  local _, head, _, isExhausted = q.claim(s, 0, bytes, bound)
  return { head = head, exhausted = isExhausted }
end
