/**
 * One step: what a transaction knows of its queue, and every move of a task from one place to another.
 *
 * The counters of the queue (sequence, tasks in each state) are read once, changed in memory and written
 * once, so that a batch pays for them once. What others are to be told is collected, and delivered after the
 * commit only.
 */
import { NeoTaskError, type QueueRef } from '@neotask/core'
import type { Database } from './database.js'
import { Effects } from './effects.js'
import {
  BLOCKED,
  FLAG,
  PENDING,
  placeOf,
  priorityOf,
  ROW,
  rowFrom,
  SCHEDULED,
  scoreOf,
  stateIndex,
  type Row,
  type RowTuple,
} from './layout.js'

const COUNTERS = 'q, paused, seq, pending, scheduled, blocked, running, success, failed, cancelled, skipped'
const BY_NAME = `SELECT ${COUNTERS} FROM neotask_queues WHERE tenant = ? AND queue = ?`
const BY_NUMBER = `SELECT ${COUNTERS} FROM neotask_queues WHERE q = ?`
const CREATE = 'INSERT INTO neotask_queues (tenant, queue) VALUES (?, ?)'
const SAVE = `UPDATE neotask_queues SET paused = ?, seq = ?, pending = ?, scheduled = ?, blocked = ?, running = ?,
  success = ?, failed = ?, cancelled = ?, skipped = ? WHERE q = ?`
const HISTORY = `INSERT INTO neotask_history VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (q, minute) DO UPDATE SET
  enqueued = enqueued + excluded.enqueued, success = success + excluded.success, failed = failed + excluded.failed,
  cancelled = cancelled + excluded.cancelled, skipped = skipped + excluded.skipped, retried = retried + excluded.retried`
const NEXT_TOKEN = `UPDATE neotask_meta SET value = value + 1 WHERE key = 'token' RETURNING value`
const MOVE = 'UPDATE neotask_tasks SET place = ?, rank = ?, score = ?, since = ?, flags = ? WHERE n = ?'
const BY_ID = `SELECT ${ROW} FROM neotask_tasks t WHERE t.q = ? AND t.id = ?`
const BY_IDS = `SELECT ${ROW} FROM json_each(?) j CROSS JOIN neotask_tasks t ON t.q = ? AND t.id = j.value`
const BY_N = `SELECT ${ROW} FROM neotask_tasks t WHERE t.n = ?`
const HEAD = 'SELECT rank FROM neotask_tasks WHERE place = ? AND rank >= 0 ORDER BY rank LIMIT 1'
const DEADLINE = 'SELECT deadline FROM neotask_extras WHERE n = ?'

type QueueTuple = [number, number, number, number, number, number, number, number, number, number, number]

/** What `history` counts, by position. */
export const EVENT = { enqueued: 0, success: 1, failed: 2, cancelled: 3, skipped: 4, retried: 5 } as const

/** Dependents that one transaction tells at most; the rest is left to the next steps. */
const TOLD = 300

const MINUTE = 60_000

export class Step {
  readonly db: Database
  readonly now: number
  readonly q: number
  readonly effects: Effects
  paused: number
  /** Tasks in each state, by the index of the state. */
  counts: number[]
  /** How many more dependents this transaction may tell. */
  tells: number = TOLD
  /** Tasks that became final. */
  finished = 0
  #seq: number
  #events: number[] = [0, 0, 0, 0, 0, 0]
  #dirty = false
  #eventful = false

  constructor(db: Database, queue: QueueTuple) {
    this.db = db
    this.now = db.clock.now()
    this.q = queue[0]
    this.paused = queue[1]
    this.#seq = queue[2]
    this.counts = queue.slice(3)
    this.effects = new Effects(this.q)
  }

  /** Begins a step in a queue, which is made when it does not exist. */
  static in(db: Database, ref: QueueRef): Step {
    const known = Step.find(db, ref)
    return known ?? Step.of(db, db.insert(CREATE, ref.tenant, ref.queue))
  }

  /** The same for a queue that must exist already. */
  static find(db: Database, ref: QueueRef): Step | undefined {
    const queue = db.get<QueueTuple>(BY_NAME, ref.tenant, ref.queue)
    return queue && new Step(db, queue)
  }

  static of(db: Database, q: number): Step {
    return new Step(db, db.get<QueueTuple>(BY_NUMBER, q) as QueueTuple)
  }

  /** Writes the counters. Ends every step. */
  save(): Effects {
    if (this.#dirty) {
      this.db.run(SAVE, this.paused, this.#seq, ...this.counts, this.q)
    }
    if (this.#eventful) {
      const minute = Math.floor(this.now / MINUTE) * MINUTE
      this.db.run(HISTORY, this.q, minute, ...this.#events)
    }
    return this.effects
  }

  /** Undoes what this object remembers of the action when it throws, as its savepoint undoes what is stored. */
  attempt<T>(action: () => T): T {
    const { counts, tells, finished } = this
    const [seq, events, marks] = [this.#seq, this.#events, this.effects.mark()]
    this.counts = counts.slice()
    this.#events = events.slice()
    try {
      return this.db.savepoint(action)
    } catch (error) {
      Object.assign(this, { counts, tells, finished })
      this.#seq = seq
      this.#events = events
      this.effects.restore(marks)
      throw error
    }
  }

  // ----------------------------------------------------------------------------------------------- looking

  row(id: string): Row | undefined {
    const tuple = this.db.get<RowTuple>(BY_ID, this.q, id)
    return tuple && rowFrom(tuple)
  }

  rowOf(n: number): Row | undefined {
    const tuple = this.db.get<RowTuple>(BY_N, n)
    return tuple && rowFrom(tuple)
  }

  /** Those that exist, by id. */
  rows(ids: readonly string[]): Map<string, Row> {
    const found = new Map<string, Row>()
    for (const tuple of this.db.all<RowTuple>(BY_IDS, JSON.stringify(ids), this.q))
      found.set(tuple[1], rowFrom(tuple))
    return found
  }

  place(state: number): number {
    return placeOf(this.q, state)
  }

  /** The score of the most urgent ready task. */
  head(): number | undefined {
    return this.db.get<[number]>(HEAD, this.place(PENDING))?.[0]
  }

  // ------------------------------------------------------------------------------------------------ moving

  /** The number of a claim. */
  nextToken(): number {
    const token = this.db.get<[number]>(NEXT_TOKEN)?.[0]
    // Tokens that do not grow would let the late end of a lost attempt pass for the end of the present one.
    if (token === undefined)
      throw new NeoTaskError('STORAGE_FORMAT', 'the database has lost its counter of claims')
    return token
  }

  nextScore(priority: number): number {
    this.#dirty = true
    return scoreOf(priority, ++this.#seq)
  }

  touch(): void {
    this.#dirty = true
  }

  count(event: number, times = 1): void {
    this.#eventful = true
    this.#events[event] = (this.#events[event] ?? 0) + times
  }

  /** Notes that tasks went from one state to another, or came (`from` undefined), or went away (`to` undefined). */
  shift(from: number | undefined, to: number | undefined, times = 1): void {
    if (from === to) return
    this.#dirty = true
    if (from !== undefined) this.counts[from] = (this.counts[from] ?? 0) - times
    if (to !== undefined) this.counts[to] = (this.counts[to] ?? 0) + times
  }

  /** Takes the task from where it stands to another place: the only way, but for claim and `finish`. */
  move(row: Row, place: number, rank: number, flags: number, score: number = row.score): void {
    this.db.run(MOVE, place, rank, score, this.now, flags, row.n)
    this.shift(stateIndex(row.place), stateIndex(place))
    row.place = place
    row.rank = rank
    row.flags = flags
    row.score = score
  }

  /** Between the ready ones and the lanes, or from lane to lane: it waits as before, with its score. */
  putAside(row: Row, place: number): void {
    this.db.run('UPDATE neotask_tasks SET place = ? WHERE n = ?', place, row.n)
    row.place = place
  }

  /** Back to its old place in the order. */
  giveBack(row: Row): void {
    this.move(row, this.place(PENDING), row.score, row.flags & ~FLAG.started)
    this.effects.ready(row.kind, row.score)
  }

  /** To a new place in the order, behind all others of its priority. */
  makeReady(row: Row): void {
    const score = this.nextScore(priorityOf(row.score))
    this.move(row, this.place(PENDING), score, row.flags & ~FLAG.started, score)
    this.effects.ready(row.kind, score)
  }

  schedule(row: Row, due: number): void {
    this.move(row, this.place(SCHEDULED), Math.ceil(due), row.flags & ~FLAG.started)
    this.effects.due(due)
  }

  block(row: Row): void {
    this.move(row, this.place(BLOCKED), row.score, row.flags & ~FLAG.started)
  }

  // --------------------------------------------------------------------------------- deadlines and extras

  extra(n: number, column: string, value: string | number | Uint8Array | null): void {
    this.db.run(
      `INSERT INTO neotask_extras (n, ${column}) VALUES (?, ?) ON CONFLICT (n) DO UPDATE SET ${column} = excluded.${column}`,
      n,
      value,
    )
  }

  /** Whoever calls sets the flags `deadline` and `extras`. */
  setDeadline(n: number, at: number): void {
    const instant = Math.ceil(at)
    this.extra(n, 'deadline', instant)
    this.db.run('INSERT INTO neotask_deadlines VALUES (?, ?, ?)', this.q, instant, n)
    this.effects.due(instant)
  }

  /** @returns the flags without it; who calls writes them */
  dropDeadline(row: Row): number {
    if (!(row.flags & FLAG.deadline)) return row.flags
    const at = this.db.get<[number]>(DEADLINE, row.n)?.[0]
    if (at !== undefined)
      this.db.run('DELETE FROM neotask_deadlines WHERE q = ? AND at = ? AND n = ?', this.q, at, row.n)
    this.extra(row.n, 'deadline', null)
    return row.flags & ~FLAG.deadline
  }
}
