/**
 * The upkeep face: bounded, idempotent pieces that anybody may carry out at any time.
 */
import {
  OPERATIONS,
  type OperationOutcome,
  type QueueRef,
  type ReclaimReport,
  type Retention,
  type UpkeepFace,
} from '@neotask/core'
import { noteTaken } from './cancel.js'
import { yieldTurn, type Connection } from './connection.js'
import type { Effects } from './effects.js'
import { release } from './finish.js'
import { placesOf } from './list.js'
import { BLOCKED, FLAG, lanePlace, sessionOf, sessionPlace, stateOf } from './layout.js'
import { conclude, pruneRest, pruneTasks, type PruneCursors } from './retention.js'
import { addLooked, lookAtSessions, takeBack, type Reporting } from './sessions.js'
import type { SqliteNotices } from './sqlite-notices.js'
import { Step } from './step.js'
import { drainSome } from './upkeep-steps.js'

const REVOKED = 100

const OPEN_QUEUES = `SELECT DISTINCT q.q, q.tenant, q.queue FROM neotask_sessions s JOIN neotask_queues q ON q.q = s.q WHERE s.state < 2`
const MAX_RECLAIMS = 'SELECT max_reclaims FROM neotask_sessions WHERE s = ?'

export class SqliteUpkeep implements UpkeepFace {
  readonly #connection: Connection
  readonly #notices: SqliteNotices
  readonly #cursors: PruneCursors
  /** Up to where the blocked tasks of each queue have been compared. */
  readonly #looked = new Map<number, number>()
  /** States that `prune` has gone through in each queue, while it has not gone through the others. */
  readonly #pruned = new Map<number, Set<number>>()

  constructor(connection: Connection, notices: SqliteNotices, cursors: PruneCursors) {
    this.#connection = connection
    this.#notices = notices
    this.#cursors = cursors
  }

  async reclaim(limit: number): Promise<ReclaimReport> {
    const { database } = this.#connection
    const report: Reporting = { suspected: [], condemned: [], reclaimed: [], poisoned: [] }
    const queues = await database.patiently(() =>
      database.read(() => database.all<[number, string, string]>(OPEN_QUEUES)),
    )
    let left = limit
    for (const [q, tenant, queue] of queues) {
      await this.#step(
        () => Step.of(database, q),
        (step) => {
          const looked = lookAtSessions(step, left)
          left -= looked.reclaimed.length + looked.poisoned.length
          addLooked(report, { tenant, queue }, looked)
        },
      )
    }
    return report
  }

  async drain(ref: QueueRef, limit: number): Promise<'done' | 'more'> {
    const more = await this.#find(ref, (step) => drainSome(step, limit))
    return more ? 'more' : 'done'
  }

  async prune(ref: QueueRef, retention: Retention, limit: number): Promise<'done' | 'more'> {
    const isMore = await this.#find(ref, (step) => {
      const finished = this.#pruned.get(step.q) ?? new Set<number>()
      this.#pruned.set(step.q, finished)
      const { removed, more } = pruneTasks(step, retention, limit, this.#cursors, finished)
      if (!more) this.#pruned.delete(step.q)
      return more || removed + pruneRest(step, limit - removed) >= limit
    })
    return isMore ? 'more' : 'done'
  }

  async revoke(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    const outcomes: OperationOutcome[] = []
    while (outcomes.length < ids.length) {
      if (outcomes.length > 0) await yieldTurn()
      const some = ids.slice(outcomes.length, outcomes.length + REVOKED)
      const done = await this.#find(ref, (step) => some.map((id) => revokeOne(step, id)))
      outcomes.push(...(done ?? some.map(() => 'unknown' as const)))
    }
    return outcomes
  }

  async reconcile(ref: QueueRef, limit: number): Promise<{ readonly mended: number }> {
    const mended = await this.#find(ref, (step) => {
      const blocked = mendBlocked(step, limit, this.#looked.get(step.q) ?? -1)
      this.#looked.set(step.q, blocked.next)
      return mendPlaces(step, limit) + blocked.mended + mendCounters(step)
    })
    return { mended: mended ?? 0 }
  }

  // ------------------------------------------------------------------------------------------------ helpers

  #find<T>(ref: QueueRef, action: (step: Step) => T): Promise<T | undefined> {
    return this.#step(() => Step.find(this.#connection.database, ref), action)
  }

  async #step<T>(begin: () => Step | undefined, action: (step: Step) => T): Promise<T | undefined> {
    const { database } = this.#connection
    const { value, effects } = await database.patiently(() =>
      database.write((): { value: T | undefined; effects: Effects | undefined } => {
        const step = begin()
        if (!step) return { value: undefined, effects: undefined }
        const result = action(step)
        return { value: result, effects: conclude(step, this.#cursors) }
      }),
    )
    if (effects) this.#notices.deliver(effects)
    return value
  }
}

function revokeOne(step: Step, id: string): OperationOutcome {
  const row = step.row(id)
  if (!row) return 'unknown'
  const state = stateOf(row.place)
  if (!OPERATIONS.revoke.includes(state)) return { state }
  const maxReclaims = step.db.get<[number]>(MAX_RECLAIMS, sessionOf(row.place) ?? 0)?.[0] ?? Infinity
  noteTaken(step, row, 'revoked')
  takeBack(step, row, true, maxReclaims < 0 ? -1 - maxReclaims : maxReclaims)
  return 'done'
}

// ------------------------------------------------------------------------------------------------ reconcile

/** Tasks that stand in a session or a lane which does not exist. */
function mendPlaces(step: Step, limit: number): number {
  const { db, q } = step
  const known = new Set<number>([
    ...db.all<[number]>('SELECT s FROM neotask_sessions WHERE q = ?', q).map(([s]) => sessionPlace(s)),
    ...db.all<[number]>('SELECT lane FROM neotask_lanes WHERE q = ?', q).map(([lane]) => lanePlace(lane)),
  ])
  let mended = 0
  let place: number | undefined = -Infinity
  while (mended < limit) {
    place = db.get<[number]>(
      'SELECT place FROM neotask_tasks WHERE place > ? AND place < 0 ORDER BY place LIMIT 1',
      place,
    )?.[0]
    if (place === undefined) break
    if (known.has(place)) continue
    const ids = db.all<[string]>(
      'SELECT id FROM neotask_tasks WHERE place = ? AND q = ? LIMIT ?',
      place,
      q,
      limit - mended,
    )
    for (const [id] of ids) {
      const row = step.row(id)
      if (!row) continue
      step.giveBack(row)
      mended++
    }
  }
  return mended
}

const BLOCKED_TASKS = `SELECT t.id, t.rank, t.flags, EXISTS (
    SELECT 1 FROM neotask_edges e JOIN neotask_tasks p ON p.n = e.parent WHERE e.child = t.n AND e.open = 1 AND (
      p.place < 0 OR p.place % 8 < 4 OR EXISTS (SELECT 1 FROM neotask_cascades c WHERE c.q = t.q AND c.parent = p.n)
    )
  ) FROM neotask_tasks t WHERE t.place = ? AND t.rank > ? ORDER BY t.rank LIMIT ?`

/** Tasks that wait for parents which will not release them any more. @returns how many, and where to go on */
function mendBlocked(step: Step, limit: number, from: number): { mended: number; next: number } {
  const { db } = step
  const seen = db.all<[string, number, number, number]>(BLOCKED_TASKS, step.place(BLOCKED), from, limit)
  let mended = 0
  for (const [id, , flags, waits] of seen) {
    const row = waits === 0 && !(flags & FLAG.held) ? step.row(id) : undefined
    if (!row) continue
    db.run('UPDATE neotask_edges SET open = 0 WHERE child = ?', row.n)
    release(step, row)
    mended++
  }
  return { mended, next: seen.length < limit ? -1 : (seen.at(-1)?.[1] ?? -1) }
}

/** The counters of the queue against what stands there. */
function mendCounters(step: Step): number {
  const count = (place: number): number =>
    step.db.get<[number]>('SELECT count(*) FROM neotask_tasks WHERE place = ?', place)?.[0] ?? 0
  let mended = 0
  for (const [state, counted] of [...step.counts.entries()]) {
    let found = 0
    for (const place of placesOf(step.db, step.q, state)) found += count(place)
    if (found === counted) continue
    step.shift(undefined, state, found - counted)
    mended++
  }
  return mended
}
