--! prelude records
-- Records of a tenant: get, put, delete, list, claim of due ones.
--
-- KEYS  1 shard
-- ARGV  2 tenant, 3 operation, then
--       get     4 key
--       put     4 key, 5 version or '', 6 packed: v value, d due at, i due in, e ends in, l labels
--       delete  4 key, 5 version or ''
--       list    4 prefix, 5 label or '' with a space before it, 6 limit, 7 cursor or '' with a space before it
--       due     4 prefix, 5 limit, 6 ms of the lease
-- reply get: key and packed record, or nothing; put: the version, or 0; delete: 1 or 0; list: keys and packed records in turn,
--       then the cursor or ''; due: keys and packed records in turn
-- cost  O(log N) for each record; put and list remove at most 20 whose time is over
local k = recordKeys(ARGV[2])
local key = ARGV[4]
local actions = {}

function actions.get()
  local record = recordRead(k, key)
  return record and { key, cmsgpack.pack(record) } or {}
end

function actions.put()
  local record, old = recordRead(k, key)
  local version = record and record.n or 0
  if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= version then return 0 end
  local m = cmsgpack.unpack(ARGV[6])
  recordWrite(k, key, old, {
    v = m.v, n = version + 1, l = m.l, d = m.d or (m.i and now + m.i) or nil, e = m.e and now + m.e or nil,
  })
  recordPrune(k, 20)
  return version + 1
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

function actions.due()
  local limit, out, from = tonumber(ARGV[5]), {}, 0
  while #out < 2 * limit do
    local page = C('ZRANGEBYSCORE', k.due, '-inf', now, 'LIMIT', from, 100)
    if #page == 0 then break end
    local taken = 0
    for _, one in ipairs(page) do
      local record = string.sub(one, 1, #key) == key and recordRead(k, one)
      if record and #out < 2 * limit then
        record.n = record.n + 1
        record.d = now + tonumber(ARGV[6])
        guard()
        C('HSET', k.all, one, cmsgpack.pack(record))
        C('ZADD', k.due, record.d, one)
        taken = taken + 1
        out[#out + 1] = one
        out[#out + 1] = cmsgpack.pack(record)
      end
    end
    from = from + #page - taken
  end
  return out
end

return actions[ARGV[3]]()
