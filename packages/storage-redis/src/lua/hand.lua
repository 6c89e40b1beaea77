-- Tasks that are handed to idle sessions in the step that stores them: claimed for them like any others, only that the
-- claim's reply goes with the wake-up. A reply that is lost is found by the token, as with every claim. A node that runs
-- something may be kept from hearing by it, so others come first: it is handed nothing unless it is the only one.

-- A session that is well asks more often than this, in ms. One that was stopped or cut off is handed nothing after it.
local FRESH = 2500
-- Tasks of a call that are handed, and bytes of their definitions in a message. With many a claim of its own costs each of them
-- little, and goes on while more are stored.
local FEW = 48
local HANDED = 16384

-- @param defs ids and definitions
-- @param scores scores as text, and ids
-- @param kinds that a session must serve
-- @param turn a number that grows with every task, so that each session has its turn
-- @returns how many of them were handed, from the first on
local function hand(defs, scores, count, kinds, turn)
  if count > FEW then return 0 end
  local size = 0
  for i = 1, count do
    size = size + #defs[2 * i]
    -- A message is text.
    if size > HANDED or isBytes(defs[2 * i]) then return 0 end
  end
  local some, able = C('HRANDFIELD', Q .. 'idle', 16, 'WITHVALUES'), {}
  local isAlone = C('SCARD', Q .. 'leases') == 1
  for i = 1, #some, 2 do
    local free, at, served = string.match(some[i + 1], '^(%d+),(%d+)( .*)$')
    free = tonumber(free or 0)
    local isAble = free > 0 and now - at <= FRESH
    for _, kind in ipairs(kinds) do isAble = isAble and string.find(served, ' ' .. kind .. ' ', 1, true) end
    local own = S .. 'own:' .. some[i]
    if isAble and (isAlone or C('HLEN', own) == BOOK) then
      able[#able + 1] = { id = some[i], own = own, served = served, free = free, at = at }
    end
  end
  local done = 0
  for i = 1, #able do
    local one = able[(turn + i) % #able + 1]
    local n = math.min(one.free, math.ceil((count - done) / (#able - i + 1)))
    if n == 0 then break end
    local own = one.own
    local before, token = C('HGET', own, ' #'), int(C('INCR', S .. 'tok'))
    local head, texts, entries = { before, token }, {}, { ' #', token }
    for j = done + 1, done + n do
      local id, d = defs[2 * j - 1], defs[2 * j]
      local e = token .. ' ' .. int(now) .. ' ' .. scores[2 * j - 1]
      if isWatched(d) then e = e .. ' w' .. int(now + WATCHED) .. ' ' .. watcherOf(d) end
      entries[#entries + 1], entries[#entries + 2] = id, e
      -- All but the time, which is text: flags as in arguments, size, and what follows.
      head[#head + 1], head[#head + 2] = id, string.char(LETTER + math.floor(string.byte(d) / 4)) .. #d - 6
      texts[#texts + 1] = string.sub(d, 7)
    end
    -- Who does not listen here would not hear of it.
    if publish('wake:' .. one.id, table.concat(head, ' ') .. '\n' .. table.concat(texts)) > 0 then
      C('HSET', own, unpack(entries))
      C('HSET', Q .. 'idle', one.id, int(one.free - n) .. ',' .. one.at .. one.served)
      done = done + n
    end
  end
  return done
end
