-- The records of a tenant: `rec:` their packed values, `reckeys:` the order of their keys, `recdue:` for each group those
-- that are due by time, `recgroups:` the groups that have such, `recend:` by time, `reclabel:` the keys of each label.
local function recordKeys(tenant)
  return {
    all = S .. 'rec:' .. tenant,
    keys = S .. 'reckeys:' .. tenant,
    due = S .. 'recdue:' .. tenant .. ':',
    groups = S .. 'recgroups:' .. tenant,
    ends = S .. 'recend:' .. tenant,
    label = S .. 'reclabel:' .. tenant .. ':',
  }
end

-- What the key begins with, up to its first '/'.
local function groupOf(key)
  return string.match(key, '^[^/]*/') or ''
end

local function recordRead(k, key)
  local packed = C('HGET', k.all, key)
  local record = packed and cmsgpack.unpack(packed)
  if not record then return nil, nil end
  if record.e and record.e <= now then return nil, record end
  return record, record
end

-- The highest version of a record that was removed.
local removed
local function lastRemoved()
  removed = removed or tonumber(C('HGET', S .. 'meta', 'version') or 0)
  return removed
end

-- The version of what is put over a record, or makes one, perhaps anew: then it is beyond all that one of the key may have
-- had. @param record what is there; `old` what is stored, even when its time is over
local function versionAfter(record, old)
  if record then return record.n + 1 end
  return math.max(lastRemoved() + 1, old and old.n + 1 or 1, math.floor(now * 1000))
end

local function recordDrop(k, key, record)
  C('HDEL', k.all, key)
  if record.n and record.n > lastRemoved() then
    removed = record.n
    C('HSET', S .. 'meta', 'version', int(removed))
  end
  C('ZREM', k.keys, key)
  C('ZREM', k.due .. groupOf(key), key)
  C('ZREM', k.ends, key)
  for _, label in ipairs(record.l or {}) do C('ZREM', k.label .. label, key) end
end

-- Replaces the record, whatever was there. @param old what is stored, even when its time is over
local function recordWrite(k, key, old, record)
  if old then
    for _, label in ipairs(old.l or {}) do C('ZREM', k.label .. label, key) end
    if old.d and not record.d then C('ZREM', k.due .. groupOf(key), key) end
    if old.e and not record.e then C('ZREM', k.ends, key) end
  end
  C('HSET', k.all, key, cmsgpack.pack(record))
  if not old then C('ZADD', k.keys, 0, key) end
  if record.d then
    local group = groupOf(key)
    if C('ZADD', k.due .. group, record.d, key) == 1 then C('SADD', k.groups, group) end
  end
  if record.e then C('ZADD', k.ends, record.e, key) end
  for _, label in ipairs(record.l or {}) do C('ZADD', k.label .. label, 0, key) end
end

-- Removes at most `limit` records whose time is over.
local function recordPrune(k, limit)
  local gone = C('ZRANGEBYSCORE', k.ends, '-inf', now, 'LIMIT', 0, limit)
  for _, key in ipairs(gone) do
    local _, record = recordRead(k, key)
    recordDrop(k, key, record or {})
  end
  return #gone
end
