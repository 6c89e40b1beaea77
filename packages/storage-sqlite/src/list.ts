/**
 * Pages of the tasks in a state. A cursor is the last task's place in the order, so that pages neither skip nor
 * repeat what did not move.
 */
import { TASK_STATES, type ListQuery, type QueueRef, type TaskPage, type TaskRecord } from '@neotask/core'
import type { Database } from './database.js'
import { bytesOf, FLAG, lanePlace, PENDING, placeOf, RUNNING, sessionPlace, SUCCESS } from './layout.js'
import { RECORD, recordFrom, type RecordTuple } from './task-record.js'

const MAX_PAGE = 500
const PAGE_BYTES = 1024 * 1024
/** Tasks looked at for one page; a page with a filter may end there. */
const LOOKED_AT = 2000

const FORWARD = `SELECT ${RECORD} FROM neotask_tasks t WHERE t.place = ? AND (t.rank, t.n) > (?, ?) ORDER BY t.rank, t.n LIMIT ?`
const BACKWARD = `SELECT ${RECORD} FROM neotask_tasks t WHERE t.place = ? AND (t.rank, t.n) < (?, ?) ORDER BY t.rank DESC, t.n DESC LIMIT ?`
const QUEUE = 'SELECT q FROM neotask_queues WHERE tenant = ? AND queue = ?'
const LANES = 'SELECT lane FROM neotask_lanes WHERE q = ?'
const SESSIONS = 'SELECT s FROM neotask_sessions WHERE q = ? AND state < 2'
const MEMBER = `SELECT 1 FROM neotask_extras x JOIN neotask_groups g ON g.g = x.grp WHERE x.n = ? AND g.id = ?`

interface Place {
  readonly rank: number
  readonly n: number
}

export function listTasks(db: Database, ref: QueueRef, query: ListQuery): TaskPage {
  const q = db.get<[number]>(QUEUE, ref.tenant, ref.queue)?.[0]
  if (q === undefined) return { tasks: [] }
  const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
  const places = placesOf(db, q, TASK_STATES.indexOf(query.state))
  const backward = TASK_STATES.indexOf(query.state) >= SUCCESS
  const filtered = query.kind !== undefined || query.group !== undefined
  let from = parse(query.cursor) ?? (backward ? { rank: Infinity, n: 0 } : { rank: -1, n: 0 })
  const page = new Page(limit, query.bytes ?? PAGE_BYTES)
  for (let seen = 0; seen < LOOKED_AT;) {
    const wanted = filtered ? limit * 2 + 1 : limit + 1
    const rows = read(db, places, from, wanted, backward)
    for (const row of rows) {
      if (matches(db, row, query) && !page.add(db, row)) return { tasks: page.tasks, cursor: format(from) }
      from = { rank: row[3], n: row[0] }
    }
    if (rows.length < wanted) return { tasks: page.tasks }
    seen += rows.length
  }
  return { tasks: page.tasks, cursor: format(from) }
}

function placesOf(db: Database, q: number, state: number): number[] {
  if (state === RUNNING) return db.all<[number]>(SESSIONS, q).map(([s]) => sessionPlace(s))
  const own = [placeOf(q, state)]
  if (state !== PENDING) return own
  return own.concat(db.all<[number]>(LANES, q).map(([lane]) => lanePlace(lane)))
}

/** The next rows of all the places together, in their order. */
function read(
  db: Database,
  places: readonly number[],
  from: Place,
  limit: number,
  backward: boolean,
): RecordTuple[] {
  const rows: RecordTuple[] = []
  for (const place of places)
    rows.push(...db.all<RecordTuple>(backward ? BACKWARD : FORWARD, place, from.rank, from.n, limit))
  if (places.length > 1) rows.sort((a, b) => a[3] - b[3] || a[0] - b[0])
  return rows.slice(0, limit)
}

function matches(db: Database, row: RecordTuple, query: ListQuery): boolean {
  if (query.kind !== undefined && row[11] !== query.kind) return false
  if (query.group === undefined) return true
  return (row[7] & FLAG.grouped) !== 0 && db.get(MEMBER, row[0], query.group) !== undefined
}

class Page {
  readonly tasks: TaskRecord[] = []
  readonly #limit: number
  #left: number

  constructor(limit: number, bytes: number) {
    this.#limit = limit
    this.#left = bytes
  }

  /** @returns whether there was room; the first task always fits */
  add(db: Database, row: RecordTuple): boolean {
    if (this.tasks.length === this.#limit) return false
    const record = recordFrom(db, row)
    this.#left -= bytesOf(record.payload) + bytesOf(record.result)
    if (this.#left < 0 && this.tasks.length > 0) return false
    this.tasks.push(record)
    return true
  }
}

const format = ({ rank, n }: Place): string => `${rank}:${n}`

function parse(cursor: string | undefined): Place | undefined {
  if (cursor === undefined) return undefined
  const [rank, n] = cursor.split(':').map(Number)
  return { rank: rank ?? 0, n: n ?? 0 }
}
