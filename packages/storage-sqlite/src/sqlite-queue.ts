/**
 * The queue face: enqueue, looks at tasks, and operations on them.
 *
 * `enqueue` gives up when another process is writing, and the caller's batcher repeats it; everything else waits.
 */
import {
  MAX_PRIORITY,
  NeoTaskError,
  OPERATIONS,
  optionError,
  type CancelOptions,
  type Encoded,
  type EnqueueOptions,
  type EnqueueOutcome,
  type ErrorGroup,
  type GroupFlags,
  type HistoryBucket,
  type ListQuery,
  type NewTask,
  type Operation,
  type OperationOutcome,
  type QueueCounts,
  type QueueFace,
  type QueueRef,
  type ReviveOptions,
  type TaskPage,
  type TaskRecord,
  type Unit,
  type WatchOptions,
  type WatchOutcome,
} from '@neotask/core'
import { cancelTask } from './cancel.js'
import { Turn, yieldTurn, type Connection } from './connection.js'
import { refusalFrom, type Database } from './database.js'
import { Effects } from './effects.js'
import { enqueueUnit, pinAgain, watch } from './enqueue.js'
import { enqueueRun, plainRun } from './enqueue-run.js'
import { finish, makeReady } from './finish.js'
import { setFlags, sweepGroups, SWEPT } from './groups.js'
import {
  FINAL_INDEX,
  FLAG,
  LARGE,
  PENDING,
  priorityOf,
  scoreOf,
  SCALE,
  stateIndex,
  stateOf,
  SUCCESS,
  type Row,
} from './layout.js'
import { listTasks } from './list.js'
import { conclude, erase, neededBy, type PruneCursors } from './retention.js'
import type { SqliteNotices } from './sqlite-notices.js'
import { Step } from './step.js'
import { finalFrom, RECORD, recordFrom, type RecordTuple } from './task-record.js'

/** Tasks written in one transaction, unless a single unit is larger. */
export const BATCH = 500
/** Ids that one transaction of an operation takes. */
const OPERATED = 100
const READ = 200

const RECORD_BY_ID = `SELECT ${RECORD} FROM neotask_tasks t WHERE t.q = ? AND t.id = ?`
const QUEUE = 'SELECT q FROM neotask_queues WHERE tenant = ? AND queue = ?'
const COUNTS = `SELECT q, pending, scheduled, blocked, running, success, failed, cancelled, skipped, paused
  FROM neotask_queues WHERE tenant = ? AND queue = ?`
const PREFETCHED = `SELECT count(*) FROM neotask_sessions s JOIN neotask_tasks t ON t.place = -2 * s.s
  WHERE s.q = ? AND s.state < 2 AND t.flags & ${FLAG.started} = 0`
const LIVE = 'SELECT id FROM neotask_sessions WHERE q = ? AND state < 2 AND state = 0'
const HISTORY = `SELECT minute, enqueued, success, failed, cancelled, skipped, retried FROM neotask_history
  WHERE q = ? AND minute >= ? AND minute <= ? ORDER BY minute`
const ERRORS = `SELECT fingerprint, count(*) AS members, max(at), n FROM neotask_failures WHERE q = ?
  GROUP BY fingerprint ORDER BY members DESC, max(at) DESC LIMIT ?`
const TOMBSTONE = 'SELECT 1 FROM neotask_tombstones WHERE q = ? AND id = ? AND until > ?'
const NEW_LIFE = `UPDATE neotask_tasks SET attempts = 0, reclaims = 0, result = NULL, result_codec = NULL, duration = NULL,
  error = NULL, reason = NULL WHERE n = ?`

type CountsTuple = [number, number, number, number, number, number, number, number, number, number]

export class SqliteQueue implements QueueFace {
  readonly #connection: Connection
  readonly #notices: SqliteNotices
  readonly #cursors: PruneCursors

  constructor(connection: Connection, notices: SqliteNotices, cursors: PruneCursors) {
    this.#connection = connection
    this.#notices = notices
    this.#cursors = cursors
  }

  async enqueue(
    ref: QueueRef,
    units: readonly Unit[],
    options: EnqueueOptions = {},
  ): Promise<EnqueueOutcome[]> {
    const { database } = this.#connection
    const outcomes: EnqueueOutcome[] = []
    for (let from = 0; from < units.length;) {
      if (from > 0) await yieldTurn()
      const begin = from
      const done = await database.politely(() => {
        const some = (accept: Accept) =>
          this.#commit(database, () => this.#enqueueSome(database, ref, units, begin, options, accept))
        try {
          return some(enqueueUnit)
        } catch (error) {
          if (error instanceof NeoTaskError) throw error
          return some(enqueueAlone)
        }
      })
      for (const some of done) outcomes.push(...some)
      from += done.length
    }
    return outcomes
  }

  enqueueSync(ref: QueueRef, units: readonly Unit[], options: EnqueueOptions = {}): EnqueueOutcome[] {
    const { database } = this.#connection
    const foreign = database.occupied
    const { effects, value } = database.within(() => {
      const step = Step.in(database, ref)
      const outcomes = units.flatMap((unit) => enqueueAlone(step, asList(unit), options))
      return { effects: conclude(step, this.#cursors), value: outcomes }
    })
    if (foreign) this.#notices.deliverLater(effects)
    else this.#notices.deliver(effects)
    return value
  }

  async get(ref: QueueRef, ids: readonly string[]): Promise<(TaskRecord | undefined)[]> {
    const { database } = this.#connection
    const records: (TaskRecord | undefined)[] = []
    for (let from = 0; from < ids.length; from += READ) {
      if (from > 0) await yieldTurn()
      const some = ids.slice(from, from + READ)
      records.push(
        ...(await database.patiently(() =>
          database.read(() => {
            const q = database.get<[number]>(QUEUE, ref.tenant, ref.queue)?.[0]
            return some.map((id) => {
              const row = q === undefined ? undefined : database.get<RecordTuple>(RECORD_BY_ID, q, id)
              return row && recordFrom(database, row)
            })
          }),
        )),
      )
    }
    return records
  }

  async watch(ref: QueueRef, ids: readonly string[], options: WatchOptions): Promise<WatchOutcome[]> {
    const { database } = this.#connection
    const outcomes: WatchOutcome[] = []
    for (let from = 0; from < ids.length; from += READ) {
      if (from > 0) await yieldTurn()
      const some = ids.slice(from, from + READ)
      outcomes.push(
        ...(await database.patiently(() =>
          this.#commit(database, () => {
            const step = Step.find(database, ref)
            if (!step) return { effects: new Effects(0), value: some.map(() => 'unknown' as const) }
            const value = some.map((id) => watchTask(step, id, options))
            // Told by the reply: no need for a notice.
            step.effects.finals.length = 0
            return { value, effects: conclude(step, this.#cursors) }
          }),
        )),
      )
    }
    return outcomes
  }

  list(ref: QueueRef, query: ListQuery): Promise<TaskPage> {
    const { database } = this.#connection
    return database.patiently(() => database.read(() => listTasks(database, ref, query)))
  }

  counts(ref: QueueRef): Promise<QueueCounts> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.read(() => {
        const row = database.get<CountsTuple>(COUNTS, ref.tenant, ref.queue) ?? [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        const [q, pending, scheduled, blocked, running, success, failed, cancelled, skipped, paused] = row
        const prefetched = running > 0 ? (database.get<[number]>(PREFETCHED, q)?.[0] ?? 0) : 0
        const counts = { pending, scheduled, blocked, running, success, failed, cancelled, skipped }
        return { ...counts, prefetched, paused: paused === 1 }
      }),
    )
  }

  history(ref: QueueRef, range: { from: number; to: number }): Promise<HistoryBucket[]> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.read(() => {
        const q = database.get<[number]>(QUEUE, ref.tenant, ref.queue)?.[0] ?? 0
        const rows = database.all<[number, number, number, number, number, number, number]>(
          HISTORY,
          q,
          range.from,
          range.to,
        )
        return rows.map(([at, enqueued, success, failed, cancelled, skipped, retried]) => {
          return { at, enqueued, success, failed, cancelled, skipped, retried }
        })
      }),
    )
  }

  errors(ref: QueueRef, options: { limit: number }): Promise<ErrorGroup[]> {
    const { database } = this.#connection
    return database.patiently(() =>
      database.read(() => {
        const q = database.get<[number]>(QUEUE, ref.tenant, ref.queue)?.[0] ?? 0
        const groups = database.all<[string, number, number, number]>(ERRORS, q, options.limit)
        return groups.map(([fingerprint, count, lastAt, n]) => {
          const [id, error] = database.get<[string, string | null]>(
            'SELECT id, error FROM neotask_tasks WHERE n = ?',
            n,
          ) ?? ['', '']
          return { fingerprint, count, id, error: error ?? '', lastAt }
        })
      }),
    )
  }

  cancel(ref: QueueRef, ids: readonly string[], options: CancelOptions = {}): Promise<OperationOutcome[]> {
    const { code = 'TASK_CANCELLED', message } = options
    return this.#operate('cancel', ref, ids, (step, row) => {
      cancelTask(step, row, code, message)
    })
  }

  retry(ref: QueueRef, ids: readonly string[], options: ReviveOptions = {}): Promise<OperationOutcome[]> {
    return this.#operate('retry', ref, ids, (step, row) => {
      reviveTask(step, row, options)
    })
  }

  promote(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#operate('promote', ref, ids, (step, row) => {
      makeReady(step, row)
    })
  }

  reprioritize(ref: QueueRef, ids: readonly string[], priority: number): Promise<OperationOutcome[]> {
    if (!Number.isInteger(priority) || priority < 0 || priority > MAX_PRIORITY) {
      throw optionError('priority', `an integer from 0 to ${MAX_PRIORITY}`, priority)
    }
    return this.#operate('reprioritize', ref, ids, (step, row) => {
      const score = scoreOf(priority, row.score % SCALE)
      const rank = row.rank === row.score ? score : row.rank
      step.db.run('UPDATE neotask_tasks SET score = ?, rank = ? WHERE n = ?', score, rank, row.n)
      if (stateIndex(row.place) === PENDING && priority < priorityOf(row.score))
        step.effects.ready(row.kind, score)
    })
  }

  remove(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#operate('remove', ref, ids, (step, row) => {
      const dependent = neededBy(step, row)
      if (dependent !== undefined) return { state: stateOf(row.place), neededBy: dependent }
      erase(step, row)
      return undefined
    })
  }

  async complete(ref: QueueRef, id: string, result: Encoded, codec: string): Promise<OperationOutcome> {
    const [outcome] = await this.#operate('complete', ref, [id], (step, row) => {
      if (!(row.flags & FLAG.held)) return { state: stateOf(row.place) }
      finish(step, row, { state: 'success', result, codec })
      return undefined
    })
    return outcome as OperationOutcome
  }

  pause(ref: QueueRef, paused: boolean): Promise<void> {
    return this.#change(ref, (step) => {
      step.paused = paused ? 1 : 0
      step.touch()
      for (const [id] of step.db.all<[string]>(LIVE, step.q)) step.effects.wake.push(id)
    })
  }

  setGroup(ref: QueueRef, group: string, flags: GroupFlags): Promise<void> {
    return this.#change(ref, (step) => {
      setFlags(step, group, flags)
      sweepGroups(step, SWEPT)
    })
  }

  // ------------------------------------------------------------------------------------------------ helpers

  /** As many units as one transaction takes. */
  #enqueueSome(
    database: Database,
    ref: QueueRef,
    units: readonly Unit[],
    from: number,
    options: EnqueueOptions,
    accept: Accept,
  ): { effects: Effects; value: EnqueueOutcome[][] } {
    const turn = new Turn(database)
    const step = Step.in(database, ref)
    const outcomes: EnqueueOutcome[][] = []
    let tasks = 0
    for (let index = from; index < units.length && tasks < BATCH;) {
      if (tasks > 0 && turn.over) break
      const run = accept === enqueueUnit ? plainRun(step, units, index, options) : undefined
      if (run) {
        for (const outcome of enqueueRun(step, run)) outcomes.push([outcome])
        tasks += run.length
        index += run.length
        continue
      }
      const unit = asList(units[index] as Unit)
      if (tasks > 0 && tasks + unit.length > BATCH) break
      outcomes.push(accept(step, unit, options))
      tasks += unit.length
      index++
    }
    return { effects: conclude(step, this.#cursors), value: outcomes }
  }

  #commit<T>(database: Database, action: () => { effects: Effects; value: T }): T {
    const { effects, value } = database.write(action)
    this.#notices.deliver(effects)
    return value
  }

  #change(ref: QueueRef, action: (step: Step) => void): Promise<void> {
    const { database } = this.#connection
    return database.patiently(() =>
      this.#commit(database, () => {
        const step = Step.in(database, ref)
        action(step)
        return { effects: conclude(step, this.#cursors), value: undefined }
      }),
    )
  }

  /** Carries out one of the operations of the table, where the state permits it. */
  async #operate(
    operation: Operation,
    ref: QueueRef,
    ids: readonly string[],
    action: (step: Step, row: Row) => OperationOutcome | undefined,
  ): Promise<OperationOutcome[]> {
    const { database } = this.#connection
    const outcomes: OperationOutcome[] = []
    while (outcomes.length < ids.length) {
      if (outcomes.length > 0) await yieldTurn()
      const some = ids.slice(outcomes.length, outcomes.length + OPERATED)
      outcomes.push(
        ...(await database.patiently(() =>
          this.#commit(database, () => {
            const step = Step.find(database, ref)
            if (!step) return { effects: new Effects(0), value: some.map(() => 'unknown' as const) }
            return { value: operateOn(operation, step, some, action), effects: conclude(step, this.#cursors) }
          }),
        )),
      )
    }
    return outcomes
  }
}

type Accept = (step: Step, unit: readonly NewTask[], options: EnqueueOptions) => EnqueueOutcome[]

/** A unit under a savepoint of its own: what SQLite refuses of it reaches its owner, and nobody else. */
function enqueueAlone(step: Step, unit: readonly NewTask[], options: EnqueueOptions): EnqueueOutcome[] {
  try {
    return step.attempt(() => enqueueUnit(step, unit, options))
  } catch (error) {
    const refusal = refusalFrom(step.db.translate(error))
    return unit.map(() => refusal)
  }
}

function asList(unit: Unit): readonly NewTask[] {
  return Array.isArray(unit) ? (unit as readonly NewTask[]) : [unit as NewTask]
}

function operateOn(
  operation: Operation,
  step: Step,
  ids: readonly string[],
  action: (step: Step, row: Row) => OperationOutcome | undefined,
): OperationOutcome[] {
  const permitted = OPERATIONS[operation]
  return ids.map((id) => {
    const row = step.row(id)
    if (!row) return 'unknown'
    const state = stateOf(row.place)
    return permitted.includes(state) ? (action(step, row) ?? 'done') : { state }
  })
}

/** Begins another life of a final task. */
function reviveTask(step: Step, row: Row, options: ReviveOptions): void {
  const { db } = step
  if (stateIndex(row.place) === FINAL_INDEX.failed) db.run('DELETE FROM neotask_failures WHERE n = ?', row.n)
  if (row.flags & FLAG.watched) db.run('DELETE FROM neotask_watchers WHERE n = ?', row.n)
  if (row.flags & FLAG.extras)
    db.run('UPDATE neotask_extras SET message = NULL, progress = NULL, opened = NULL WHERE n = ?', row.n)
  db.run(NEW_LIFE, row.n)
  row.attempts = 0
  row.reclaims = 0
  row.flags &= ~(FLAG.decided | FLAG.held | FLAG.watched | FLAG.delayed)
  if (options.payload) {
    const { payload, codec } = options.payload
    const large = payload.length > LARGE
    if (large) db.run('INSERT OR REPLACE INTO neotask_bodies VALUES (?, ?)', row.n, payload)
    else if (row.flags & FLAG.large) db.run('DELETE FROM neotask_bodies WHERE n = ?', row.n)
    row.flags = large ? row.flags | FLAG.large : row.flags & ~FLAG.large
    db.run(
      'UPDATE neotask_tasks SET payload = ?, codec = ? WHERE n = ?',
      large ? null : payload,
      codec,
      row.n,
    )
    // What the last attempt saved belongs to the payload that it had.
    if (row.flags & FLAG.extras) db.run('UPDATE neotask_extras SET checkpoint = NULL WHERE n = ?', row.n)
  }
  if (row.flags & FLAG.edges) pinAgain(step, row)
  makeReady(step, row)
}

function watchTask(step: Step, id: string, options: WatchOptions): WatchOutcome {
  const { db } = step
  const record = db.get<RecordTuple>(RECORD_BY_ID, step.q, id)
  if (!record) return db.get(TOMBSTONE, step.q, id, step.now) ? 'forgotten' : 'unknown'
  const row = step.row(id) as Row
  const isFinal = stateIndex(row.place) >= SUCCESS
  watch(step, row, options.watcher, options.ttl)
  return isFinal ? finalFrom(db, record) : 'open'
}
