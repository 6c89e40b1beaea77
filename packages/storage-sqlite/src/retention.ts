/**
 * How tasks go away: by retention when they are final, or by `remove`; and what remains of them.
 *
 * An id that a caller chose stays taken for 24 h. Kept in any case: what an unfinished dependent needs, records
 * younger than 10 s (the repeat of a settlement may still come), and 60 s long what a watcher was told of.
 */
import { isGeneratedId, type Retention } from '@neotask/core'
import { FINAL_INDEX, FLAG, ROW, rowFrom, stateIndex, SUCCESS, type Row, type RowTuple } from './layout.js'
import type { Effects } from './effects.js'
import { keepRemoved } from './record-store.js'
import type { Step } from './step.js'

const SECOND = 1000
const DAY = 86_400 * SECOND
const GRACE = 10 * SECOND
/** How long an ended session is remembered, for settlements that come late. */
const SESSION_MEMORY = DAY

const OLDEST = `SELECT ${ROW} FROM neotask_tasks t WHERE t.place = ? AND (t.rank, t.n) > (?, ?) ORDER BY t.rank, t.n LIMIT ?`
const CHILD = `SELECT t.id FROM neotask_edges e JOIN neotask_tasks t ON t.n = e.child WHERE e.parent = ? LIMIT 1`
const ERASE = 'DELETE FROM neotask_tasks WHERE n = ?'
const TOMBSTONE = 'INSERT OR REPLACE INTO neotask_tombstones VALUES (?, ?, ?, ?)'
const WATCHERS = 'SELECT watcher FROM neotask_watchers WHERE n = ? AND until > ?'

/** Where the next search among the final tasks of a place begins: it must get past the pinned ones. */
export type PruneCursors = Map<number, { rank: number; n: number }>

/** The unfinished dependent that still needs the task. */
export function neededBy(step: Step, row: Row): string | undefined {
  return row.flags & FLAG.parent ? step.db.get<[string]>(CHILD, row.n)?.[0] : undefined
}

/** Removes every trace of a task but its tombstone. Who waits for it learns of it. */
export function erase(step: Step, row: Row): void {
  const { db, q, now } = step
  const { n, flags } = row
  const nonce =
    flags & FLAG.extras
      ? db.get<[string | null]>('SELECT nonce FROM neotask_extras WHERE n = ?', n)?.[0]
      : null
  if (flags & FLAG.watched) {
    if (stateIndex(row.place) < SUCCESS) {
      for (const [watcher] of db.all<[string]>(WATCHERS, n, now)) step.effects.final(watcher, row.id)
    }
    db.run('DELETE FROM neotask_watchers WHERE n = ?', n)
  }
  if (flags & FLAG.deadline) step.dropDeadline(row)
  if (flags & FLAG.edges) db.run('DELETE FROM neotask_edges WHERE child = ?', n)
  if (flags & FLAG.parent) {
    db.run('DELETE FROM neotask_edges WHERE parent = ?', n)
    db.run('DELETE FROM neotask_cascades WHERE q = ? AND parent = ?', q, n)
  }
  if (flags & FLAG.grouped) leaveGroup(step, n)
  if (flags & FLAG.large) db.run('DELETE FROM neotask_bodies WHERE n = ?', n)
  if (flags & (FLAG.extras | FLAG.deadline | FLAG.grouped))
    db.run('DELETE FROM neotask_extras WHERE n = ?', n)
  if (stateIndex(row.place) === FINAL_INDEX.failed) db.run('DELETE FROM neotask_failures WHERE n = ?', n)
  db.run(ERASE, n)
  step.shift(stateIndex(row.place), undefined)
  if (!isGeneratedId(row.id)) db.run(TOMBSTONE, q, row.id, nonce ?? null, now + DAY)
}

function leaveGroup(step: Step, n: number): void {
  const { db } = step
  const g = db.get<[number | null]>('SELECT grp FROM neotask_extras WHERE n = ?', n)?.[0]
  if (g === undefined || g === null) return
  db.run('DELETE FROM neotask_members WHERE g = ? AND n = ?', g, n)
  db.run('UPDATE neotask_groups SET touched = ? WHERE g = ?', step.now, g)
  // A group with flags is remembered a while: they hold for members that come later too.
  db.run(
    `DELETE FROM neotask_groups WHERE g = ? AND cancelled = 0 AND paused = 0
       AND NOT EXISTS (SELECT 1 FROM neotask_members m WHERE m.g = neotask_groups.g)`,
    g,
  )
}

/** What a step removes for each task that it makes final: two, so that retention catches up with any rate. */
const REMOVED = 2

/** Ends a step: retention keeps up with what became final. */
export function conclude(step: Step, cursors: PruneCursors): Effects {
  if (step.finished > 0) {
    const retention = retentionOf(step)
    if (retention) pruneTasks(step, retention, REMOVED * step.finished, cursors)
  }
  return step.save()
}

const parsed = new Map<string, Retention>()

/** The rule of the session that was opened last in the queue. */
export function retentionOf(step: Step): Retention | undefined {
  const text = step.db.get<[string | null]>('SELECT retention FROM neotask_queues WHERE q = ?', step.q)?.[0]
  if (text === null || text === undefined) return undefined
  let retention = parsed.get(text)
  if (!retention) {
    if (parsed.size > 100) parsed.clear()
    parsed.set(text, (retention = JSON.parse(text) as Retention))
  }
  return retention
}

/**
 * Removes at most `limit` final tasks that are beyond their retention.
 *
 * @param finished states that earlier calls have gone through, for a caller who goes on until there is no more: what
 * has to stay would be met again and again otherwise
 * @returns how many, and whether there may be more behind those that have to stay
 */
export function pruneTasks(
  step: Step,
  retention: Retention,
  limit: number,
  cursors: PruneCursors,
  finished: Set<number> = new Set<number>(),
): { removed: number; more: boolean } {
  let removed = 0
  let more = false
  for (let state = SUCCESS; state <= FINAL_INDEX.skipped; state++) {
    if (finished.has(state)) continue
    const done = pruneState(step, state, retention, limit - removed, cursors)
    removed += done.removed
    more ||= done.more
    if (!done.more) finished.add(state)
  }
  return { removed, more }
}

function pruneState(
  step: Step,
  state: number,
  retention: Retention,
  limit: number,
  cursors: PruneCursors,
): { removed: number; more: boolean } {
  const kept = step.counts[state] ?? 0
  if (kept === 0 || limit <= 0) return { removed: 0, more: kept > 0 }
  const rule = state === FINAL_INDEX.failed ? retention.failed : retention.success
  const place = step.place(state)
  const { now } = step
  let excess = kept - rule.count
  const isOver = (row: Row): boolean => row.rank <= now - GRACE && (row.rank <= now - rule.age || excess > 0)
  const read = (count: number): Row[] => {
    const { rank, n } = cursors.get(place) ?? { rank: 0, n: 0 }
    return step.db.all<RowTuple>(OLDEST, place, rank, n, count).map(rowFrom)
  }
  // Most often the oldest stays, and with it all others.
  const [first] = read(1)
  const rows = first && isOver(first) ? read(limit) : []
  let removed = 0
  for (const row of rows) {
    if (!isOver(row)) {
      cursors.delete(place)
      return { removed, more: false }
    }
    const watched = row.flags & FLAG.watched && step.db.get(WATCHERS, row.n, now) !== undefined
    if (!watched && neededBy(step, row) === undefined) {
      erase(step, row)
      removed++
      excess--
    } else {
      cursors.set(place, { rank: row.rank, n: row.n })
    }
  }
  // A full piece may have more behind it; at the end the search begins anew with those that had to stay.
  const more = rows.length === limit
  if (!more) cursors.delete(place)
  return { removed, more }
}

/** Removes at most `limit` of what else has had its time. @returns how many */
export function pruneRest(step: Step, limit: number): number {
  const { db, q, now } = step
  const sweeps: [sql: string, ...values: number[]][] = [
    [
      `DELETE FROM neotask_tombstones WHERE q = ? AND id IN (SELECT id FROM neotask_tombstones WHERE q = ? AND until <= ? LIMIT ?)`,
      q,
      q,
      now,
    ],
    [
      `DELETE FROM neotask_history WHERE q = ? AND minute IN (SELECT minute FROM neotask_history WHERE q = ? AND minute <= ? LIMIT ?)`,
      q,
      q,
      now - DAY,
    ],
    [
      `DELETE FROM neotask_sessions WHERE s IN (SELECT s FROM neotask_sessions WHERE state = 2 AND ended <= ? LIMIT ?)`,
      now - SESSION_MEMORY,
    ],
    [
      `DELETE FROM neotask_locks WHERE (tenant, key) IN (SELECT tenant, key FROM neotask_locks WHERE until <= ? LIMIT ?)`,
      now - DAY,
    ],
    [
      `DELETE FROM neotask_groups WHERE g IN (SELECT g FROM neotask_groups g WHERE q = ? AND touched <= ?
        AND NOT EXISTS (SELECT 1 FROM neotask_members m WHERE m.g = g.g) LIMIT ?)`,
      q,
      now - DAY,
    ],
  ]
  let removed = 0
  for (const [sql, ...values] of sweeps) {
    if (removed >= limit) break
    removed += db.run(sql, ...values, limit - removed)
  }
  if (removed < limit) removed += pruneRecords(step, limit - removed)
  return removed
}

function pruneRecords(step: Step, limit: number): number {
  const { db, now } = step
  const gone = db.all<[number, string, string, number]>(
    'SELECT r, tenant, key, version FROM neotask_records WHERE expires <= ? LIMIT ?',
    now,
    limit,
  )
  if (gone.length > 0) keepRemoved(db, Math.max(...gone.map(([, , , version]) => version)))
  for (const [r, tenant, key] of gone) {
    db.run('DELETE FROM neotask_records WHERE r = ?', r)
    db.run('DELETE FROM neotask_labels WHERE tenant = ? AND key = ?', tenant, key)
  }
  return gone.length
}
