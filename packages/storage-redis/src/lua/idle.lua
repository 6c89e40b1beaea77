-- Who is told that there is work. `idle` of a queue holds the sessions whose last claim came back short: how many tasks may be
-- handed to them, a comma, when they claimed, and their kinds, each between spaces.

-- Sessions that one step wakes for a kind.
local WAKE_LIMIT = 16
local called, idle = {}, {}

-- Tells a session that there is work, or that something was taken from it; once in a step.
local function call(id)
  if called[id] then return end
  called[id] = true
  publish('wake:' .. id, '')
end

-- Wakes idle sessions of a queue, those that serve the kind when one is named; they are idle no more.
local function wakeIdle(Q, limit, kind)
  local list = idle[Q]
  if not list then
    list = {}
    idle[Q] = list
    local some = C('HRANDFIELD', Q .. 'idle', 64, 'WITHVALUES')
    for i = 1, #some, 2 do list[#list + 1] = { some[i], some[i + 1] } end
  end
  local left = math.min(limit, WAKE_LIMIT)
  for _, one in ipairs(list) do
    if left == 0 then return end
    if one[1] and (not kind or string.find(one[2], ' ' .. kind .. ' ', 1, true)) then
      guard()
      C('HDEL', Q .. 'idle', one[1])
      call(one[1])
      one[1] = false
      left = left - 1
    end
  end
end

-- Tells the sessions of a queue how urgent its most urgent task is. @param origin who hears of it by a reply
local function publishHead(Q, priority, origin)
  local name = string.gsub(string.sub(Q, #S + 1, -2), '%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end)
  publish('head:' .. name, int(priority) .. (origin and ' ' .. origin or ''))
end
