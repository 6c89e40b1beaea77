-- What is told of tasks: id, place, definition, score or entry, session, node, lane, record of the end, what few have.
local function viewOf(q, t)
  local s = t.p == 'o' and session(t.session)
  local lane = ''
  if t.p == 'l' then
    local kind = kindOf(t.d)
    lane = C('ZSCORE', q.Q .. 'lane:kind:' .. kind, t.id) and 'kind' or 'group'
  end
  return {
    t.id, t.p, t.d, t.e or (t.v and string.format('%.17g', t.v)) or '', s and s.id or '', s and given(s).nid or '', lane, t.res or '',
    t.r and cmsgpack.pack(t.r) or '', q.settledToken(t),
  }
end

local function view(q, ids)
  q.load(ids)
  local out = {}
  for i = 1, #ids do
    local t = q.tasks[ids[i]]
    out[i] = t and t.p and viewOf(q, t) or {}
  end
  return out
end
