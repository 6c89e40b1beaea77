/**
 * The life of sessions: rows, beats, suspicion, and the entries of those that are over.
 */
import type { QueueRef, ReclaimReport } from '@neotask/core'
import type { Database } from './database.js'
import { finish, giveBack } from './finish.js'
import { FLAG, ROW, rowFrom, sessionPlace, type Row, type RowTuple } from './layout.js'
import { deleteRecord } from './record-store.js'
import type { Step } from './step.js'

export const LIVE = 0
/** Over, but not empty yet. */
const DRAINING = 1
const OVER = 2

/** Of T: silent for so long is suspect, suspect for so long is condemned. */
const SUSPECT_AFTER = 0.6
const CONDEMN_AFTER = 0.4

const COLUMNS = 's, id, q, ttl, beat, suspect, state, token, taken, taken_ack, max_reclaims, kinds'
const BY_ID = `SELECT ${COLUMNS} FROM neotask_sessions WHERE id = ?`
const OPEN = `SELECT ${COLUMNS} FROM neotask_sessions WHERE q = ? AND state < 2`
const ENTRIES = `SELECT ${ROW} FROM neotask_tasks t WHERE t.place = ? ORDER BY t.rank, t.score LIMIT ?`
const HELD = 'SELECT count(*) FROM neotask_tasks WHERE place = ?'
const SUSPECT = 'UPDATE neotask_sessions SET suspect = ? WHERE s = ?'
const CLOSE = `UPDATE neotask_sessions SET state = ${DRAINING}, ended = ? WHERE s = ?`
const EMPTY = `UPDATE neotask_sessions SET state = ${OVER} WHERE s = ?`
const UNTOLD = 'DELETE FROM neotask_taken WHERE s = ?'
const TENANT = 'SELECT tenant, queue FROM neotask_queues WHERE q = ?'

export interface SessionRow {
  readonly s: number
  readonly id: string
  readonly q: number
  readonly ttl: number
  readonly beat: number
  suspect: number | null
  state: number
  readonly token: number
  readonly taken: number
  readonly takenAck: number
  /** -1 less it when it ended by itself: what it held goes back free. */
  readonly maxReclaims: number
  readonly kinds: string
}

type SessionTuple = [
  number,
  string,
  number,
  number,
  number,
  number | null,
  number,
  number,
  number,
  number,
  number,
  string,
]

export function findSession(db: Database, id: string): SessionRow | undefined {
  const tuple = db.get<SessionTuple>(BY_ID, id)
  return tuple && sessionFrom(tuple)
}

function sessionFrom(tuple: SessionTuple): SessionRow {
  const [s, id, q, ttl, beat, suspect, state, token, taken, takenAck, maxReclaims, kinds] = tuple
  return { s, id, q, ttl, beat, suspect, state, token, taken, takenAck, maxReclaims, kinds }
}

export function heldBy(db: Database, session: number): number {
  return db.get<[number]>(HELD, sessionPlace(session))?.[0] ?? 0
}

export const nodeKey = (session: string): string => `node:${session}`

/** What a look at the sessions of a queue came to. */
export interface Looked {
  readonly suspected: string[]
  readonly condemned: string[]
  readonly reclaimed: string[]
  readonly poisoned: string[]
}

/** Marks silent sessions suspect, condemns those that have been suspect for long, and takes entries back. */
export function lookAtSessions(step: Step, limit: number): Looked {
  const looked: Looked = { suspected: [], condemned: [], reclaimed: [], poisoned: [] }
  const draining: SessionRow[] = []
  for (const tuple of step.db.all<SessionTuple>(OPEN, step.q)) {
    const session = sessionFrom(tuple)
    if (session.state === LIVE) judge(step, session)
    if (session.state !== LIVE) draining.push(session)
    else if (session.suspect !== null) looked.suspected.push(session.id)
  }
  let left = limit
  for (const session of draining) {
    if (session.maxReclaims >= 0) looked.condemned.push(session.id)
    if (left > 0) left -= drainSession(step, session, left, looked)
  }
  return looked
}

function judge(step: Step, session: SessionRow): void {
  const { now, db } = step
  const { beat, suspect, ttl, s } = session
  // A time in the future tells that the clock was put back: it counts from now.
  if (suspect === null || suspect > now) {
    session.suspect = beat > now || now - beat >= SUSPECT_AFTER * ttl ? now : null
    if (session.suspect !== suspect) db.run(SUSPECT, session.suspect, s)
  } else if (now - suspect >= CONDEMN_AFTER * ttl) {
    closeSession(step, session)
  }
}

/** From now on every call that names it is answered `gone`. */
export function closeSession(step: Step, session: SessionRow): void {
  step.db.run(CLOSE, step.now, session.s)
  step.db.run(UNTOLD, session.s)
  session.state = DRAINING
  step.effects.over.push(session.id)
  const tenant = step.db.get<[string, string]>(TENANT, session.q)?.[0]
  if (tenant !== undefined) deleteRecord(step.db, tenant, nodeKey(session.id))
}

/** Takes back at most `limit` entries of a session that is over. @returns how many */
export function drainSession(step: Step, session: SessionRow, limit: number, looked?: Looked): number {
  const tuples = step.db.all<RowTuple>(ENTRIES, sessionPlace(session.s), limit + 1)
  for (const tuple of tuples.slice(0, limit)) {
    const row = rowFrom(tuple)
    if (session.maxReclaims < 0) {
      giveBack(step, row)
      continue
    }
    const poisoned = takeBack(step, row, (row.flags & FLAG.started) !== 0, session.maxReclaims)
    looked?.[poisoned ? 'poisoned' : 'reclaimed'].push(row.id)
  }
  if (tuples.length <= limit) {
    step.db.run(EMPTY, session.s)
    session.state = OVER
  }
  return Math.min(limit, tuples.length)
}

/** Puts a task back in its old place, or ends it when that happened too often. @returns whether it was ended */
export function takeBack(step: Step, row: Row, counts: boolean, maxReclaims: number): boolean {
  if (!counts) {
    row.flags |= FLAG.probation
  } else {
    row.reclaims++
    step.db.run('UPDATE neotask_tasks SET reclaims = ? WHERE n = ?', row.reclaims, row.n)
    if (row.reclaims > maxReclaims) {
      finish(step, row, { state: 'failed', reason: 'POISON' })
      return true
    }
  }
  giveBack(step, row)
  return false
}

/** The report of all queues together. */
export function addLooked(report: Reporting, ref: QueueRef, looked: Looked): void {
  report.suspected.push(...looked.suspected)
  report.condemned.push(...looked.condemned)
  for (const id of looked.reclaimed) report.reclaimed.push({ ...ref, id })
  for (const id of looked.poisoned) report.poisoned.push({ ...ref, id })
}

export type Reporting = { -readonly [K in keyof ReclaimReport]: ReclaimReport[K][number][] }
