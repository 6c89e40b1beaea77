/**
 * The only door to a final state, and what follows from it: waiters hear of it, dependents are released.
 *
 * A step tells at most 100 dependents of one task, and 300 in all; the rest is written down as a cascade, which
 * later steps go on with, one level at a time. Until then those dependents count as blocked, and their edges pin
 * the parent.
 */
import type { Encoded, FinalState, Settlement } from '@neotask/core'
import {
  BLOCKED,
  FINAL_INDEX,
  FLAG,
  RUNNING,
  sessionPlace,
  stateIndex,
  stateOf,
  SUCCESS,
  type Row,
} from './layout.js'
import { EVENT, type Step } from './step.js'

/** How a task ended. */
export interface End {
  readonly state: FinalState
  /** The token of the settlement that ended it; absent when something else decided. */
  readonly token?: number | undefined
  /** Whether this was an attempt that counts. */
  readonly attempted?: boolean | undefined
  readonly result?: Encoded | undefined
  readonly codec?: string | undefined
  /** Absent: the error of the attempt before stays. `null`: there is none. */
  readonly error?: string | null | undefined
  readonly fingerprint?: string | undefined
  readonly reason?: string | undefined
  readonly message?: string | undefined
  readonly duration?: number | undefined
}

/** ms that a record stays for watchers that were told of it. */
export const READING = 60_000

/** Dependents told in one step of one task. */
const TOLD_OF_ONE = 100

const FINISH = `UPDATE neotask_tasks SET place = ?, rank = ?, since = ?, flags = ?, settled = ?, attempts = ?, result = ?,
  result_codec = ?, duration = ?, error = ?, reason = ? WHERE n = ?`
const FINISH_OTHERWISE = `UPDATE neotask_tasks SET place = ?, rank = ?, since = ?, flags = ?, settled = ?,
  duration = coalesce(?, duration), reason = ? WHERE n = ?`
/** Whatever else a task has needs more than its row. What it was marked with while it was held goes. */
const FINISH_PLAIN = `UPDATE neotask_tasks SET place = ?, rank = ?, since = ?, flags = 0, settled = rank, attempts = attempts + 1,
  result = ?, result_codec = ?, duration = ?, error = NULL, reason = NULL
  WHERE q = ? AND id = ? AND +place = ? AND +rank = ? AND flags & ~${FLAG.started | FLAG.probation | FLAG.timedOut} = 0`
const FAIL = 'INSERT OR REPLACE INTO neotask_failures (n, q, fingerprint, at) VALUES (?, ?, ?, ?)'
const WATCHERS = 'SELECT watcher FROM neotask_watchers WHERE n = ? AND until > ?'
const KEEP = 'UPDATE neotask_watchers SET until = ? WHERE n = ? AND until > ?'
const CHILDREN = `SELECT e.child FROM neotask_edges e WHERE e.parent = ? AND e.child > ? AND e.open = 1 ORDER BY e.child LIMIT ?`
const CLOSE_EDGE = 'UPDATE neotask_edges SET open = 0 WHERE parent = ? AND child = ?'
const OPEN_EDGE = 'SELECT 1 FROM neotask_edges WHERE child = ? AND open = 1 LIMIT 1'
const DROP_EDGES = 'DELETE FROM neotask_edges WHERE child = ?'
const CASCADE = 'INSERT OR REPLACE INTO neotask_cascades VALUES (?, ?, ?)'
const CASCADES = 'SELECT parent, past FROM neotask_cascades WHERE q = ? LIMIT ?'
const CASCADE_DONE = 'DELETE FROM neotask_cascades WHERE q = ? AND parent = ?'
const DELAYS = 'SELECT delay, run_at FROM neotask_extras WHERE n = ?'
const GROUP_OF = `SELECT g.g, g.cancelled, g.paused, g.id FROM neotask_extras x JOIN neotask_groups g ON g.g = x.grp WHERE x.n = ?`

const FROM_THE_FIRST = 0

const DECIDED: Pick<End, 'state'> = { state: 'cancelled' }

export function finish(step: Step, row: Row, end: End): void {
  finishOne(step, row, end)
  if (!(row.flags & FLAG.parent)) return
  const { more, past } = tellDependents(step, row, FROM_THE_FIRST, TOLD_OF_ONE)
  if (more) leave(step, row, past)
}

/** Everything but the dependents, which stand in a cascade when this is one of its steps. */
function finishOne(step: Step, row: Row, end: End): void {
  const { db, now } = step
  const state = FINAL_INDEX[end.state]
  if (row.flags & FLAG.deadline) row.flags = step.dropDeadline(row)
  let flags = row.flags & ~(FLAG.started | FLAG.probation | FLAG.suspended | FLAG.timedOut | FLAG.decided)
  if (end.token === undefined) flags |= FLAG.decided
  const settled = end.token ?? row.settled
  const place = step.place(state)
  if (end.state === 'success' || end.error !== undefined) {
    if (end.attempted) row.attempts++
    db.run(
      FINISH,
      place,
      now,
      now,
      flags,
      settled,
      row.attempts,
      end.result ?? null,
      end.codec ?? null,
      end.duration ?? null,
      end.error ?? null,
      end.reason ?? null,
      row.n,
    )
  } else {
    db.run(FINISH_OTHERWISE, place, now, now, flags, settled, end.duration ?? null, end.reason ?? null, row.n)
  }
  step.shift(stateIndex(row.place), state)
  step.count(EVENT[end.state])
  step.finished++
  row.place = place
  row.rank = now
  row.flags = flags
  row.settled = settled
  if (end.message !== undefined) {
    step.extra(row.n, 'message', end.message)
    markExtras(step, row)
  }
  if (end.state === 'failed') db.run(FAIL, row.n, step.q, end.fingerprint ?? end.reason ?? '', now)
  if (flags & FLAG.edges) db.run(DROP_EDGES, row.n)
  if (flags & FLAG.watched) {
    for (const [watcher] of db.all<[string]>(WATCHERS, row.n, now)) step.effects.final(watcher, row.id)
    // Who was told may come and read.
    db.run(KEEP, now + READING, row.n, now)
  }
}

/**
 * The quick way of most: a held task with nothing that another table knows of succeeds by one statement, unread.
 *
 * @returns how many of the settlements from `from` on were such
 */
export function finishPlain(
  step: Step,
  session: number,
  settlements: readonly Settlement[],
  from: number,
): number {
  const place = sessionPlace(session)
  const [success, now] = [step.place(SUCCESS), step.now]
  const statement = step.db.statement(FINISH_PLAIN)
  let index = from
  for (; index < settlements.length; index++) {
    const settlement = settlements[index] as Settlement
    if (settlement.outcome !== 'success') break
    const { id, token, result, codec, duration } = settlement
    const done = statement.run(success, now, now, result, codec, duration ?? null, step.q, id, place, token)
    if (done.changes === 0) break
  }
  const count = index - from
  if (count === 0) return 0
  step.shift(RUNNING, SUCCESS, count)
  step.count(EVENT.success, count)
  step.finished += count
  return count
}

/** Cancels, because of something else than a settlement. */
export function finishCancelled(step: Step, row: Row, reason: string, message?: string): void {
  finish(step, row, { ...DECIDED, reason, message })
}

/** Goes on with cascades that earlier steps left. @returns how many dependents were told */
export function drainCascades(step: Step, limit: number): number {
  let told = 0
  for (const [n, from] of step.db.all<[number, number]>(CASCADES, step.q, limit)) {
    if (told >= limit || step.tells <= 0) break
    const parent = step.rowOf(n)
    // A parent that was retried meanwhile ends again, and then tells those that still wait.
    const { more, past, count } =
      parent && stateIndex(parent.place) >= SUCCESS
        ? tellDependents(step, parent, from, Math.min(TOLD_OF_ONE, limit - told))
        : { more: false, past: from, count: 0 }
    if (more && parent) leave(step, parent, past)
    else step.db.run(CASCADE_DONE, step.q, n)
    told += count
  }
  return told
}

/** Leaves the dependents after `past` to later steps. */
function leave(step: Step, parent: Row, past: number): void {
  step.db.run(CASCADE, step.q, parent.n, past)
  step.effects.backlog = true
}

export function hasCascades(step: Step): boolean {
  return step.db.get(CASCADES, step.q, 1) !== undefined
}

/** Tells the dependents after `past`, and says how far it came. */
function tellDependents(
  step: Step,
  parent: Row,
  past: number,
  most: number,
): { more: boolean; past: number; count: number } {
  const limit = Math.min(most, step.tells)
  if (limit <= 0) return { more: true, past, count: 0 }
  const children = step.db.all<[number]>(CHILDREN, parent.n, past, limit + 1)
  const told = children.slice(0, limit)
  step.tells -= told.length
  for (const [n] of told) tell(step, parent, n)
  return { more: children.length > limit, past: told.at(-1)?.[0] ?? past, count: told.length }
}

/** A child is touched only while it is blocked, and only by naming the parent: a repeat is harmless. */
function tell(step: Step, parent: Row, n: number): void {
  const { db } = step
  db.run(CLOSE_EDGE, parent.n, n)
  const child = step.rowOf(n)
  if (!child || stateIndex(child.place) !== BLOCKED) return
  if (child.flags & FLAG.onSuccess && stateIndex(parent.place) !== SUCCESS) {
    finishOne(step, child, {
      ...DECIDED,
      reason: 'DEPENDENCY_FAILED',
      message: `its dependency ${parent.id} is ${stateOf(parent.place)}`,
    })
    if (child.flags & FLAG.parent) leave(step, child, FROM_THE_FIRST)
  } else if (!(child.flags & FLAG.held) && !hasOpenEdge(step, n)) {
    release(step, child)
  }
}

function hasOpenEdge(step: Step, n: number): boolean {
  return step.db.get(OPEN_EDGE, n) !== undefined
}

/** Takes a task whose parents are all final to where it goes now. */
export function release(step: Step, row: Row): void {
  if (row.flags & FLAG.suspended) row.flags = step.dropDeadline(row) & ~FLAG.suspended
  const due = row.flags & FLAG.delayed ? dueOnRelease(step, row) : 0
  row.flags &= ~FLAG.delayed
  if (due > step.now) schedule(step, row, due)
  else makeReady(step, row)
}

function dueOnRelease(step: Step, row: Row): number {
  const [delay, runAt] = step.db.get<[number | null, number | null]>(DELAYS, row.n) ?? [null, null]
  return Math.max(step.now + (delay ?? 0), runAt ?? 0)
}

/** To a new place in the order. A member of a cancelled group ends instead. */
export function makeReady(step: Step, row: Row): void {
  if (!endByGroup(step, row)) step.makeReady(row)
}

/** To its old place in the order, or to its end. */
export function giveBack(step: Step, row: Row): void {
  if (!endByGroup(step, row)) step.giveBack(row)
}

/** To be ready later, or to its end. */
export function schedule(step: Step, row: Row, due: number): void {
  if (!endByGroup(step, row)) step.schedule(row, due)
}

/** Ends the task when its group is cancelled. @returns whether it did */
export function endByGroup(step: Step, row: Row): boolean {
  if (groupOf(step, row)?.cancelled !== true) return false
  finishOne(step, row, { ...DECIDED, reason: 'GROUP_CANCELLED' })
  if (row.flags & FLAG.parent) leave(step, row, FROM_THE_FIRST)
  return true
}

/** The group that binds the task: exempt members are bound by none. */
export function groupOf(
  step: Step,
  row: Row,
): { g: number; cancelled: boolean; paused: boolean; id: string } | undefined {
  if (!(row.flags & FLAG.grouped) || row.flags & FLAG.exempt) return undefined
  const found = step.db.get<[number, number, number, string]>(GROUP_OF, row.n)
  return found && { g: found[0], cancelled: found[1] === 1, paused: found[2] === 1, id: found[3] }
}

/** Notes on the task itself that it has a row in `extras`. */
export function markExtras(step: Step, row: Row): void {
  if (row.flags & FLAG.extras) return
  row.flags |= FLAG.extras
  step.db.run('UPDATE neotask_tasks SET flags = ? WHERE n = ?', row.flags, row.n)
}
