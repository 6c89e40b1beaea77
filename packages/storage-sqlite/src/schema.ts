/**
 * The tables, and the way from each earlier format to the present one.
 *
 * The statements stand here as text rather than in `.sql` files: `tsc` is the whole build, and it copies nothing
 * but what it compiles. The table names carry a prefix, so that the same schema fits into a user's own database.
 */

/** Written into the header of files that are ours alone: `NeoT`. */
export const APPLICATION_ID = 0x4e656f54

const FIRST = `
CREATE TABLE neotask_meta (key TEXT NOT NULL PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
-- One row of numbers for all claims, so that a token of one queue is never one of another.
INSERT INTO neotask_meta VALUES ('token', 0);

-- One row is read and written in each step: the counters of the queue.
CREATE TABLE neotask_queues (
  q INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  queue TEXT NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0,
  seq INTEGER NOT NULL DEFAULT 0,
  pending INTEGER NOT NULL DEFAULT 0,
  scheduled INTEGER NOT NULL DEFAULT 0,
  blocked INTEGER NOT NULL DEFAULT 0,
  running INTEGER NOT NULL DEFAULT 0,
  success INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0,
  retention TEXT,
  UNIQUE (tenant, queue)
) STRICT;

-- A task stands where \`place\` says, and nowhere else (see layout.ts).
CREATE TABLE neotask_tasks (
  n INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  id TEXT NOT NULL,
  place INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  score INTEGER NOT NULL,
  since INTEGER NOT NULL,
  created INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  settled INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  reclaims INTEGER NOT NULL DEFAULT 0,
  kind TEXT NOT NULL,
  codec TEXT NOT NULL,
  payload ANY,
  options TEXT,
  result ANY,
  result_codec TEXT,
  duration REAL,
  error TEXT,
  reason TEXT
) STRICT;
CREATE UNIQUE INDEX neotask_tasks_id ON neotask_tasks (q, id);
CREATE INDEX neotask_tasks_place ON neotask_tasks (place, rank);

CREATE TABLE neotask_bodies (n INTEGER PRIMARY KEY, payload ANY NOT NULL) STRICT;

-- What few tasks have.
CREATE TABLE neotask_extras (
  n INTEGER PRIMARY KEY,
  nonce TEXT,
  grp INTEGER,
  after_ids TEXT,
  delay INTEGER,
  run_at INTEGER,
  deadline INTEGER,
  debounce TEXT,
  opened INTEGER,
  newest TEXT,
  message TEXT,
  progress ANY,
  checkpoint ANY,
  logs TEXT
) STRICT;
-- debounce: queue, kind and key, of the newest task that has them. opened: when its window did, NULL when the next
-- task that goes into it opens it anew. newest: the id of the last task that went into it.
CREATE UNIQUE INDEX neotask_extras_debounce ON neotask_extras (debounce) WHERE debounce IS NOT NULL;

-- A parent is pinned while an unfinished child has an edge to it. open: the child still waits for it.
CREATE TABLE neotask_edges (
  parent INTEGER NOT NULL,
  child INTEGER NOT NULL,
  open INTEGER NOT NULL,
  PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;
CREATE INDEX neotask_edges_child ON neotask_edges (child, open);

-- Final parents with dependents after \`past\` that have not been told yet.
CREATE TABLE neotask_cascades (
  q INTEGER NOT NULL,
  parent INTEGER NOT NULL,
  past INTEGER NOT NULL,
  PRIMARY KEY (q, parent)
) STRICT, WITHOUT ROWID;

CREATE TABLE neotask_deadlines (
  q INTEGER NOT NULL,
  at INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (q, at, n)
) STRICT, WITHOUT ROWID;

-- sweep: 1 while members after \`past\` have not been brought in line with the flags.
CREATE TABLE neotask_groups (
  g INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  id TEXT NOT NULL,
  cancelled INTEGER NOT NULL DEFAULT 0,
  paused INTEGER NOT NULL DEFAULT 0,
  sweep INTEGER NOT NULL DEFAULT 0,
  past INTEGER NOT NULL DEFAULT 0,
  touched INTEGER NOT NULL DEFAULT 0,
  UNIQUE (q, id)
) STRICT;
CREATE INDEX neotask_groups_sweep ON neotask_groups (q) WHERE sweep = 1;
CREATE INDEX neotask_groups_touched ON neotask_groups (q, touched);
CREATE TABLE neotask_members (g INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (g, n)) STRICT, WITHOUT ROWID;

CREATE TABLE neotask_lanes (
  lane INTEGER PRIMARY KEY AUTOINCREMENT,
  q INTEGER NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (q, name)
) STRICT;

CREATE TABLE neotask_failures (n INTEGER PRIMARY KEY, q INTEGER NOT NULL, fingerprint TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
CREATE INDEX neotask_failures_fingerprint ON neotask_failures (q, fingerprint, at);

CREATE TABLE neotask_watchers (
  n INTEGER NOT NULL,
  watcher TEXT NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (n, watcher)
) STRICT, WITHOUT ROWID;

-- state: 0 live, 1 over but not empty yet, 2 over. The row stays a while, so that late settlements find their queue.
CREATE TABLE neotask_sessions (
  s INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  q INTEGER NOT NULL,
  ttl INTEGER NOT NULL,
  beat INTEGER NOT NULL,
  suspect INTEGER,
  state INTEGER NOT NULL DEFAULT 0,
  ended INTEGER,
  token INTEGER NOT NULL DEFAULT 0,
  taken INTEGER NOT NULL DEFAULT 0,
  taken_ack INTEGER NOT NULL DEFAULT 0,
  max_reclaims INTEGER NOT NULL,
  node TEXT NOT NULL,
  kinds TEXT NOT NULL,
  retention TEXT NOT NULL
) STRICT;
CREATE INDEX neotask_sessions_open ON neotask_sessions (q) WHERE state < 2;
CREATE INDEX neotask_sessions_over ON neotask_sessions (ended) WHERE state = 2;

CREATE TABLE neotask_taken (
  s INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  id TEXT NOT NULL,
  token INTEGER NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (s, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE neotask_tombstones (
  q INTEGER NOT NULL,
  id TEXT NOT NULL,
  nonce TEXT,
  until INTEGER NOT NULL,
  PRIMARY KEY (q, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX neotask_tombstones_until ON neotask_tombstones (q, until);

CREATE TABLE neotask_history (
  q INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  enqueued INTEGER NOT NULL,
  success INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  skipped INTEGER NOT NULL,
  retried INTEGER NOT NULL,
  PRIMARY KEY (q, minute)
) STRICT, WITHOUT ROWID;

CREATE TABLE neotask_records (
  r INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  value ANY NOT NULL,
  version INTEGER NOT NULL,
  labels TEXT,
  due INTEGER,
  expires INTEGER,
  UNIQUE (tenant, key)
) STRICT;
-- What a key begins with, up to its first '/', is its group: what is due is looked for in one.
CREATE INDEX neotask_records_due ON neotask_records (tenant, substr(key, 1, instr(key, '/')), due) WHERE due IS NOT NULL;
CREATE INDEX neotask_records_expires ON neotask_records (expires) WHERE expires IS NOT NULL;
CREATE TABLE neotask_labels (
  tenant TEXT NOT NULL,
  label TEXT NOT NULL,
  key TEXT NOT NULL,
  PRIMARY KEY (tenant, label, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE neotask_locks (
  tenant TEXT NOT NULL,
  key TEXT NOT NULL,
  owner TEXT,
  fence INTEGER NOT NULL,
  until INTEGER NOT NULL,
  PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX neotask_locks_until ON neotask_locks (until);

CREATE TABLE neotask_notices (
  notice INTEGER PRIMARY KEY AUTOINCREMENT,
  origin TEXT NOT NULL,
  channel TEXT NOT NULL,
  message TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
`

/** `MIGRATIONS[v]` leads from format v to v + 1; their number is the present format. Never changed once released. */
export const MIGRATIONS: readonly string[] = [FIRST]
