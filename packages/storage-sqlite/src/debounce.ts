/**
 * Debounce: a key names the newest task that was stored with it, and while that one waits, a task with the same key
 * goes into it instead of being stored.
 *
 * The name stands in the task's row of `extras`, unique, so it goes when the task does.
 */
import type { Absorbed, NewTask } from '@neotask/core'
import { makeReady, schedule } from './finish.js'
import { FLAG, LARGE, PENDING, SCALE, SCHEDULED, scoreOf, stateIndex, type Row } from './layout.js'
import type { Step } from './step.js'

const NAMESAKE = 'SELECT n, newest, opened FROM neotask_extras WHERE debounce = ?'
const UNNAME = 'UPDATE neotask_extras SET debounce = NULL WHERE debounce = ?'
const NAME = 'UPDATE neotask_extras SET debounce = ?, opened = ? WHERE n = ?'
const NEWEST =
  'UPDATE neotask_extras SET newest = ?, opened = ?, checkpoint = NULL, progress = NULL WHERE n = ?'
const REPLACE = `UPDATE neotask_tasks SET codec = ?, payload = ?, options = ?, score = ?, rank = ?, flags = ?, attempts = 0,
  reclaims = 0, duration = NULL, error = NULL WHERE n = ?`
const PUT_BODY = 'INSERT OR REPLACE INTO neotask_bodies VALUES (?, ?)'
const DROP_BODY = 'DELETE FROM neotask_bodies WHERE n = ?'

interface Namesake {
  readonly row: Row
  /** `null` when the next task that comes opens it anew. */
  readonly opened: number | null
  /** The id of the last task that went into it: it comes again when the reply was lost. */
  readonly newest: string | null
}

/** The name of a task's window in the file; neither kinds nor keys have spaces. Kinds share no keys. */
export const windowName = (step: Step, { kind, debounce }: NewTask): string | undefined =>
  debounce === undefined ? undefined : `${step.q} ${kind} ${debounce.key}`

/** The task that would take this one up. */
export function absorber(step: Step, task: NewTask): Namesake | undefined {
  const name = windowName(step, task)
  const found =
    name === undefined ? undefined : step.db.get<[number, string | null, number | null]>(NAMESAKE, name)
  const row = found && step.rowOf(found[0])
  if (!found || !row) return undefined
  const state = stateIndex(row.place)
  if (found[1] !== task.id && state !== PENDING && state !== SCHEDULED) return undefined
  return { row, newest: found[1], opened: found[2] }
}

/** Puts the task into another with its key. */
export function absorb(step: Step, { row, newest, opened }: Namesake, task: NewTask): Absorbed {
  if (newest !== task.id) replace(step, row, row.attempts > 0 ? step.now : (opened ?? step.now), task)
  return { into: row.id }
}

/** The key of a new task, which has a row in `extras`, names it from now on. */
export function openWindow(step: Step, row: Row, name: string): void {
  step.db.run(UNNAME, name)
  step.db.run(NAME, name, step.now, row.n)
}

/** When a task with a key is due, in a window that opened then. */
export function dueIn(step: Step, { delay = 0, debounce }: NewTask, opened: number): number {
  return Math.ceil(Math.min(step.now + delay, opened + (debounce?.maxWait ?? Infinity)))
}

function replace(step: Step, row: Row, opened: number, task: NewTask): void {
  const { db, now } = step
  const large = task.payload.length > LARGE
  if (large) db.run(PUT_BODY, row.n, task.payload)
  else if (row.flags & FLAG.large) db.run(DROP_BODY, row.n)
  const flags = row.flags & ~(FLAG.large | FLAG.probation | FLAG.timedOut)
  row.flags = large ? flags | FLAG.large : flags
  const wasReady = stateIndex(row.place) === PENDING
  row.score = scoreOf(task.priority, row.score % SCALE)
  if (wasReady) row.rank = row.score
  row.attempts = 0
  row.reclaims = 0
  const payload = large ? null : task.payload
  db.run(REPLACE, task.codec, payload, task.options ?? null, row.score, row.rank, row.flags, row.n)
  db.run(NEWEST, task.id, opened, row.n)
  const due = dueIn(step, task, opened)
  if (due > now) schedule(step, row, due)
  // One that was ready keeps its place, so that it is not put off for ever.
  else if (wasReady) step.effects.ready(row.kind, row.score)
  else makeReady(step, row)
}
