-- Progress, log lines and checkpoints of attempts that still hold their tasks.
general()
local names = {}
for i = 1, reports do names[i] = ARGV[at + 3 * i - 2] end
q.load(names)
for i = 1, reports do
  local name, token = ARGV[at + 3 * i - 2], tonumber(ARGV[at + 3 * i - 1])
  local t = q.tasks[name]
  if not t or t.p ~= 'o' or t.session ~= id or q.tokenOf(t) ~= token then
    staleReports[#staleReports + 1] = i - 1
  else
    local m, r = cmsgpack.unpack(ARGV[at + 3 * i]), q.rare(t)
    if m.pr then r.pr = m.pr end
    if m.cp then r.cp = m.cp end
    if m.lg then
      local lines, most = r.lg or {}, tonumber(ARGV[9])
      for _, line in ipairs(m.lg) do lines[#lines + 1] = line end
      local newest = {}
      for j = math.max(1, #lines - most + 1), #lines do newest[#newest + 1] = lines[j] end
      r.lg = #newest > 0 and newest or nil
    end
  end
end
q.flush()
