--! prelude records
-- Records of a tenant: get, put, delete, list, claim of due ones.
--
-- KEYS  1 shard
-- ARGV  2 tenant, 3 operation, then
--       get     4 key
--       put     4 key, 5 version or '', 6 packed: v value, d due at, i due in, e ends in, l labels; more triples may follow
--       delete  4 key, 5 version or ''
--       list    4 prefix, 5 label or '' with a space before it, 6 limit, 7 cursor or '' with a space before it
--       due     4 prefix, 5 limit, 6 ms of the lease, 7 bytes of the values
-- reply get: key and packed record, or nothing; put: for each the version, or 0; delete: 1 or 0; list: keys and packed records
--       in turn, then the cursor or ''; due: the time, ms until the next one is due or '', keys and packed records in turn
-- cost  O(log N) for each record; put and list remove at most 20 whose time is over; due looks at 100 to come at most,
--       and at all that is due in the group (the key up to its first '/') but not of the prefix
local k = recordKeys(ARGV[2])
local key = ARGV[4]
local actions = {}

function actions.get()
  local record = recordRead(k, key)
  return record and { key, cmsgpack.pack(record) } or {}
end

function actions.put()
  local versions = {}
  for i = 4, #ARGV, 3 do
    local one = ARGV[i]
    local record, old = recordRead(k, one)
    if ARGV[i + 1] ~= '' and tonumber(ARGV[i + 1]) ~= (record and record.n or 0) then
      versions[#versions + 1] = 0
    else
      local m = cmsgpack.unpack(ARGV[i + 2])
      local version = versionAfter(record, old)
      recordWrite(k, one, old, {
        v = m.v, n = version, l = m.l, d = m.d or (m.i and now + m.i) or nil, e = m.e and now + m.e or nil,
      })
      versions[#versions + 1] = version
    end
  end
  recordPrune(k, 20)
  return versions
end

function actions.delete()
  local record = recordRead(k, key)
  if not record or (ARGV[5] ~= '' and tonumber(ARGV[5]) ~= record.n) then return 0 end
  recordDrop(k, key, record)
  return 1
end

function actions.list()
  guard()
  recordPrune(k, 20)
  local limit = tonumber(ARGV[6])
  local from = '[' .. key
  if ARGV[7] ~= '' then from = '(' .. string.sub(ARGV[7], 2) end
  local set = ARGV[5] == '' and k.keys or k.label .. string.sub(ARGV[5], 2)
  local out, count, last = {}, 0, nil
  while true do
    local page = C('ZRANGEBYLEX', set, from, '+', 'LIMIT', 0, limit + 1)
    for _, one in ipairs(page) do
      if string.sub(one, 1, #key) ~= key then
        out[#out + 1] = ''
        return out
      end
      from = '(' .. one
      local record = recordRead(k, one)
      if record then
        if count == limit then
          out[#out + 1] = ' ' .. last
          return out
        end
        count = count + 1
        last = one
        out[#out + 1] = one
        out[#out + 1] = cmsgpack.pack(record)
      end
    end
    if #page <= limit then
      out[#out + 1] = ''
      return out
    end
  end
end

-- The groups in which keys with the prefix may be.
local function groups()
  local own = groupOf(key)
  if own ~= '' then return { own } end
  local found = {}
  for _, group in ipairs(C('SMEMBERS', k.groups)) do
    if group == '' or string.sub(group, 1, #key) == key then found[#found + 1] = group end
  end
  return found
end

-- The bytes of a value, which stands behind a letter.
local function sizeOf(record)
  return #record.v - 1
end

-- Adds the due records of a group, longest due first: at most `most`, and none behind the one that is too much for the bytes.
local function addDue(due, set, most, bytes)
  local from, found = 0, 0
  while found < most do
    local page = C('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', from, 100)
    for _, one in ipairs(page) do
      local record = string.sub(one, 1, #key) == key and recordRead(k, one)
      if record then
        due[#due + 1] = { one, record }
        found = found + 1
        bytes = bytes - sizeOf(record)
        if found == most or (bytes < 0 and found > 1) then return end
      end
    end
    if #page < 100 then return end
    from = from + 100
  end
end

-- ms until the next record of the prefix is due, of those of a group that are not due yet
local function nextDueIn(set)
  local page = C('ZRANGEBYSCORE', set, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if #page == 2 and not (string.sub(page[1], 1, #key) == key and recordRead(k, page[1])) then
    page = C('ZRANGEBYSCORE', set, '(' .. int(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
  end
  for i = 1, #page, 2 do
    if string.sub(page[i], 1, #key) == key and recordRead(k, page[i]) then return page[i + 1] - now end
  end
  return #page == 200 and page[200] - now or math.huge
end

function actions.due()
  local limit, lease, bytes, due = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), {}
  local from = groups()
  for _, group in ipairs(from) do addDue(due, k.due .. group, limit + 1, bytes) end
  if #from > 1 then
    table.sort(due, function(a, b)
      if a[2].d ~= b[2].d then return a[2].d < b[2].d end
      return a[1] < b[1]
    end)
  end
  local out, nextIn, taken = { int(now), '' }, math.huge, 0
  for i = 1, math.min(limit, #due) do
    local one, record = due[i][1], due[i][2]
    bytes = bytes - sizeOf(record)
    if bytes < 0 and taken > 0 then break end
    taken = i
    record.n = record.n + 1
    record.d = now + lease
    guard()
    local packed = cmsgpack.pack(record)
    C('HSET', k.all, one, packed)
    C('ZADD', k.due .. groupOf(one), record.d, one)
    out[#out + 1] = one
    out[#out + 1] = packed
  end
  if #due > taken then
    nextIn = 0
  else
    for _, group in ipairs(from) do nextIn = math.min(nextIn, nextDueIn(k.due .. group)) end
  end
  if nextIn < math.huge then out[2] = tostring(nextIn) end
  return out
end

return actions[ARGV[3]]()
