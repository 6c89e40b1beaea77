-- Takes entries of sessions that are over back, in bounded pieces.

-- @returns how many, and whether none is left
local function drainOne(s, limit, report)
  local ids, entries, cursor = {}, {}, '0'
  repeat
    local page = C('HSCAN', s.own, cursor, 'COUNT', limit + BOOK)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      if string.byte(page[2][i]) ~= 32 and #ids < limit then
        ids[#ids + 1], entries[#entries + 1] = page[2][i], page[2][i + 1]
      end
    end
  until cursor == '0' or #ids == limit
  local q = queue(s.q)
  q.flush()
  q.loadHeld(s.id, ids, entries)
  -- The oldest first, so that those that come without a place of their own keep their order.
  for i = 1, #ids do
    local t = q.tasks[ids[i]]
    q.leave(t)
    if s.over == 'ended' then
      q.toReady(t, q.scoreOf(t))
    else
      local poisoned = q.takeBack(t, string.byte(t.e) == 43, given(s).mr)
      if report then
        local list = poisoned and report.poisoned or report.reclaimed
        list[#list + 1] = string.sub(s.q, #S + 1, -2) .. ' ' .. ids[i]
      end
    end
  end
  q.flush()
  local isEmpty = C('HLEN', s.own) == BOOK
  if isEmpty then
    guard()
    C('ZREM', S .. 'lost', s.id)
    C('SREM', s.q .. 'leases', s.id)
    -- Remembered for a day, so that calls which name it are answered and its id is not used again.
    C('PEXPIRE', s.own, DAY)
  end
  return #ids, isEmpty
end

-- @param mine the prefix of the queue whose step this is, concluded by its caller
local function drainLost(limit, report, mine)
  local left, others = limit, {}
  for _, id in ipairs(C('ZRANGE', S .. 'lost', 0, 49)) do
    if left <= 0 then break end
    local s = session(id)
    if s then
      left = left - drainOne(s, left, report)
      if s.q ~= mine then others[s.q] = true end
    else
      guard()
      C('ZREM', S .. 'lost', id)
    end
  end
  for prefix in pairs(others) do queue(prefix).conclude() end
  return left
end
