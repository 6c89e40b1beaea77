--! prelude definition records idle sessions queue view
-- One page of the tasks in a state.
--
-- KEYS  1 shard, 2 queue
-- ARGV  2 state, 3 limit, 4 bytes, 5 kind or '' with a space before it, 6 group or '', 7 cursor or ''
-- reply tasks, see `view`; the cursor of the last one, or '' when there is nothing behind it
-- cost  O(limit); with a filter it looks at 1 000 tasks at most. Reads only.
local Q = KEYS[2]
local q = queue(Q)
local state, limit, bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local kind, group, cursor = ARGV[5], ARGV[6], ARGV[7]
local LOOKS = 1000

-- The ids of a set of scores after a place, in order: forwards, or backwards for ends.
local function after(key, back, score, id, count)
  if not score then return C(back and 'ZREVRANGE' or 'ZRANGE', key, 0, count - 1, 'WITHSCORES') end
  -- How many have another score stands for itself; of those with the same the order is that of the ids.
  local from = back and C('ZCOUNT', key, '(' .. score, '+inf') or C('ZCOUNT', key, '-inf', '(' .. score)
  local found = {}
  while #found < 2 * count do
    local page = C(back and 'ZREVRANGE' or 'ZRANGE', key, from, from + count - 1, 'WITHSCORES')
    if #page == 0 then break end
    for i = 1, #page, 2 do
      local isBehind = page[i + 1] ~= score or (back and page[i] < id) or (not back and page[i] > id)
      if isBehind and #found < 2 * count then
        found[#found + 1] = page[i]
        found[#found + 1] = page[i + 1]
      end
    end
    from = from + count
  end
  return found
end

local KEYSOF = {
  pending = { Q .. 'ready', Q .. 'aside' }, scheduled = { Q .. 'due' }, blocked = { Q .. 'need' },
  success = { Q .. 'done:s', Q .. 'kept:s' }, failed = { Q .. 'done:f', Q .. 'kept:f' },
  cancelled = { Q .. 'done:c', Q .. 'kept:c' }, skipped = { Q .. 'done:k', Q .. 'kept:k' },
}

-- At most `count` places after the cursor: the id, and what the cursor says of it.
local function places(count)
  local list = {}
  if state == 'running' then
    local fromSession, fromId = string.match(cursor, '^(%S*) (.*)$')
    local leases = C('SMEMBERS', Q .. 'leases')
    table.sort(leases)
    for _, name in ipairs(leases) do
      if not fromSession or name >= fromSession then
        local ids = C('HKEYS', S .. 'own:' .. name)
        table.sort(ids)
        for _, id in ipairs(ids) do
          if #list == count then return list end
          if string.byte(id) ~= 32 and (name ~= fromSession or id > fromId) then
            list[#list + 1] = { id, name .. ' ' .. id }
          end
        end
      end
    end
    return list
  end
  local back = string.sub(KEYSOF[state][1], -6, -3) == 'done'
  local score, id = string.match(cursor, '^(%S*) (.*)$')
  for _, key in ipairs(KEYSOF[state]) do
    local some = after(key, back, score, id, count)
    for i = 1, #some, 2 do list[#list + 1] = { some[i], some[i + 1] .. ' ' .. some[i], tonumber(some[i + 1]) } end
  end
  if #KEYSOF[state] > 1 then
    table.sort(list, function(a, b)
      if a[3] ~= b[3] then return (a[3] < b[3]) ~= back end
      return (a[1] < b[1]) ~= back
    end)
    for i = #list, count + 1, -1 do list[i] = nil end
  end
  return list
end

local function fits(t)
  if kind ~= '' and kindOf(t.d) ~= string.sub(kind, 2) then return false end
  return group == '' or (t.r and t.r.g == group)
end

local hasFilter = kind ~= '' or group ~= ''
local list = places(hasFilter and LOOKS + 1 or limit + 1)
local ids, found, last, size, more = {}, {}, '', 0, false
for i = 1, #list do ids[i] = list[i][1] end
q.load(ids)
for i = 1, #list do
  local t = q.tasks[ids[i]]
  if i > LOOKS then
    more = true
    break
  end
  if t and t.p and fits(t) then
    local tail = t.p == 's' and string.match(t.res, '^%S+ %S+ %S* %S* .(.*)$') or ''
    size = size + sizeOf(t.d) + #tail
    if #found == limit or (#found > 0 and size > bytes) then
      more = true
      break
    end
    found[#found + 1] = ids[i]
  end
  last = list[i][2]
end
return { view(q, found), more and last or '' }
