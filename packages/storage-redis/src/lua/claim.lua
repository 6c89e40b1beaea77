-- The claim: which tasks a session takes, from ready and from the lanes of the kinds that it serves, smallest score first.
-- What it may not take it puts aside on the way, so that the next claim does not meet it again.

-- Tasks that one claim puts aside or ends on its way.
local ASIDE_LIMIT = 400

local function setAside(t, lane)
  touch(t)
  t.p, t.lane = 'l', lane
end

-- Whether the session may run the task now. If not, it is gone from there.
local function mayRun(s, t)
  local r = t.r
  if r then
    if isDoomed(t) then
      q.endByGroup(t)
      return false
    end
    if r.D and r.D <= now then
      q.fail(t, 'c', 'TASK_EXPIRED')
      return false
    end
    if r.g and not r.x and flagsOf(r.g).p then
      setAside(t, 'group')
      return false
    end
  end
  local kind = kindOf(t.d)
  if string.find(s.k, ' ' .. kind .. ' ', 1, true) then return true end
  setAside(t, 'kind')
  -- It may have become ready in this very step, and somebody else waits for its kind.
  asideKinds[kind] = (asideKinds[kind] or 0) + 1
  return false
end

-- The first candidates of all lines that the session serves, in order.
local function candidates(s, count)
  local keys = { READY }
  if C('EXISTS', ASIDE) == 1 then
    for kind in string.gmatch(string.sub(s.k, 2), '(%S*) ') do keys[#keys + 1] = Q .. 'lane:kind:' .. kind end
  end
  local list = {}
  for _, key in ipairs(keys) do
    local some = C('ZRANGE', key, 0, count - 1, 'WITHSCORES')
    for i = 1, #some, 2 do list[#list + 1] = { some[i], tonumber(some[i + 1]) } end
  end
  if #keys > 1 then
    table.sort(list, function(a, b)
      if a[2] ~= b[2] then return a[2] < b[2] end
      return a[1] < b[1]
    end)
  end
  return list
end

-- @param bound a score that a claimed task must be below
-- @returns the tasks, the priority of the next one, whether nothing is left, whether the search gave up at its bound
function q.claim(s, want, bytes, bound)
  local claimed, left, size = {}, ASIDE_LIMIT, 0
  local token
  while true do
    -- Of the merged lines only so many are sure to be in order.
    local count = math.min(want - #claimed + 1, 200)
    local list = candidates(s, count)
    if #list == 0 then return claimed, nil, true, false end
    local ids = {}
    for i = 1, math.min(#list, count) do ids[i] = list[i][1] end
    q.load(ids)
    for i = 1, #ids do
      local t = T[ids[i]]
      if mayRun(s, t) then
        local score = list[i][2]
        local payload = sizeOf(t.d)
        if #claimed == want or score >= bound or (#claimed > 0 and size + payload > bytes) then
          q.flush()
          return claimed, math.floor(score / BAND), false, false
        end
        size = size + payload
        if not token then
          guard()
          token = int(C('INCR', S .. 'tok'))
          C('HSET', s.own, ' #', token)
          s.token = token
        end
        touch(t)
        t.since = t.r and t.r.s or createdOf(t.d)
        t.p, t.session = 'o', s.id
        t.e = token .. ' ' .. int(now) .. ' ' .. string.format('%.17g', score)
        if isWatched(t.d) then
          t.e = t.e .. ' w' .. int(createdOf(t.d) + WATCHED) .. ' ' .. watcherOf(t.d)
        end
        t.v = nil
        claimed[#claimed + 1] = t
      else
        left = left - 1
        if left == 0 then
          q.flush()
          return claimed, nil, false, true
        end
      end
    end
    q.flush()
  end
end

-- The ends of the parents that are final.
local function parentsOf(r)
  if not r.a then return '' end
  local results, ends = C('HMGET', RES, unpack(r.a)), {}
  for i = 1, #results do
    if results[i] then ends[#ends + 1] = string.sub(results[i], 1, 1) .. r.a[i] end
  end
  return table.concat(ends, ' ')
end

-- What a claim says of tasks: their ids in one text, definitions, and of those that have what few have: number, that, the ends of
-- parents, and since when it was ready. Claims of what was due add that all are ready since just now.
function q.describe(list)
  local ids, defs, rest = {}, {}, {}
  for i = 1, #list do
    local t = list[i]
    ids[i], defs[i] = t.id, t.d
    if t.r then
      local n = #rest
      rest[n + 1], rest[n + 2], rest[n + 3], rest[n + 4] = i, cmsgpack.pack(t.r), parentsOf(t.r), int(t.since or now)
    end
  end
  return { table.concat(ids, ' '), defs, rest }
end
q.parentsOf = parentsOf

-- What the session holds with a newer token, oldest claim first.
function q.entriesAfter(s, token)
  local all = C('HGETALL', s.own)
  local ids, entries = {}, {}
  for i = 1, #all, 2 do
    if string.byte(all[i]) ~= 32 and tonumber(string.match(all[i + 1], '^%+?(%d+)')) > token then
      ids[#ids + 1], entries[#entries + 1] = all[i], all[i + 1]
    end
  end
  q.loadHeld(s.id, ids, entries)
  local list, tokens = {}, {}
  for i = 1, #ids do list[i] = T[ids[i]] end
  table.sort(list, function(a, b)
    local x, y = q.tokenOf(a), q.tokenOf(b)
    if x ~= y then return x < y end
    x, y = q.scoreOf(a), q.scoreOf(b)
    if x ~= y then return x < y end
    return a.id < b.id
  end)
  for i = 1, #list do tokens[i] = int(q.tokenOf(list[i])) end
  local described = q.describe(list)
  described[4] = tokens
  return described
end
