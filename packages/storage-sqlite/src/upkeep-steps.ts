/**
 * The bounded pieces of upkeep that claims do as well: due tasks, deadlines, cascades, sweeps.
 */
import { cancelTask } from './cancel.js'
import { drainCascades, hasCascades, makeReady, release } from './finish.js'
import { hasSweeps, sweepGroups } from './groups.js'
import {
  BLOCKED,
  FLAG,
  PENDING,
  ROW,
  rowFrom,
  SCHEDULED,
  stateIndex,
  type Row,
  type RowTuple,
} from './layout.js'
import type { Step } from './step.js'

const DUE = `SELECT ${ROW} FROM neotask_tasks t WHERE t.place = ? AND t.rank <= ? ORDER BY t.rank, t.n LIMIT ?`
const PASSED = 'SELECT n FROM neotask_deadlines WHERE q = ? AND at <= ? ORDER BY at LIMIT ?'
const NEXT_DUE = 'SELECT rank FROM neotask_tasks WHERE place = ? ORDER BY rank LIMIT 1'
const NEXT_DEADLINE = 'SELECT at FROM neotask_deadlines WHERE q = ? ORDER BY at LIMIT 1'
const OPEN_PARENTS = `SELECT p.id FROM neotask_edges e JOIN neotask_tasks p ON p.n = e.parent WHERE e.child = ? AND e.open = 1`

/** Makes due tasks ready. @returns how many */
function promoteDue(step: Step, limit: number): number {
  if ((step.counts[SCHEDULED] ?? 0) === 0) return 0
  const due = step.db.all<RowTuple>(DUE, step.place(SCHEDULED), step.now, limit)
  for (const tuple of due) makeReady(step, rowFrom(tuple))
  return due.length
}

/** Takes tasks whose deadline has passed out of where they stand. @returns how many */
function passDeadlines(step: Step, limit: number): number {
  const passed = step.db.all<[number]>(PASSED, step.q, step.now, limit)
  for (const [n] of passed) {
    // Read anew: the end of one before it may have ended it too, or have let it go on.
    const row = step.rowOf(n)
    if (!row || !(row.flags & FLAG.deadline)) continue
    if (row.flags & FLAG.suspended) timeOut(step, row)
    else cancelTask(step, row, 'TASK_EXPIRED')
  }
  return passed.length
}

/** A suspended task's time is over: it goes on without the parents that are still open. */
function timeOut(step: Step, row: Row): void {
  const { db } = step
  if (stateIndex(row.place) !== BLOCKED) return
  const open = new Set(db.all<[string]>(OPEN_PARENTS, row.n).map(([id]) => id))
  db.run('DELETE FROM neotask_edges WHERE child = ? AND open = 1', row.n)
  const after = db.get<[string | null]>('SELECT after_ids FROM neotask_extras WHERE n = ?', row.n)?.[0]
  if (after) {
    const left = (JSON.parse(after) as string[]).filter((id) => !open.has(id))
    step.extra(row.n, 'after_ids', left.length > 0 ? JSON.stringify(left) : null)
  }
  row.flags |= FLAG.timedOut
  release(step, row)
}

/** A bounded piece of everything. @returns whether there may be more */
export function drainSome(step: Step, limit: number): boolean {
  const due = promoteDue(step, limit)
  const deadlines = passDeadlines(step, limit)
  const told = drainCascades(step, limit)
  const swept = sweepGroups(step, limit)
  if (due === limit || deadlines === limit) return true
  return (told > 0 && hasCascades(step)) || (swept > 0 && hasSweeps(step))
}

/** Whether tasks are due, while nothing is ready and nothing else is to be done. */
export function hasOnlyDue(step: Step): boolean {
  if (step.paused || (step.counts[PENDING] ?? 0) > 0 || !(firstDue(step) <= step.now)) return false
  return !hasCascades(step) && !hasSweeps(step) && step.db.get(PASSED, step.q, step.now, 1) === undefined
}

/** ms until the next task is due or the next deadline passes. */
export function nextDueIn(step: Step): number | undefined {
  const { db, effects, now } = step
  if (effects.backlog) return 0
  const next = Math.min(firstDue(step), db.get<[number]>(NEXT_DEADLINE, step.q)?.[0] ?? Infinity)
  return next === Infinity ? undefined : Math.max(0, next - now)
}

/** The instant at which the first scheduled task is due. */
function firstDue(step: Step): number {
  if ((step.counts[SCHEDULED] ?? 0) === 0) return Infinity
  return step.db.get<[number]>(NEXT_DUE, step.place(SCHEDULED))?.[0] ?? Infinity
}
