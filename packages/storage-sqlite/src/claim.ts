/**
 * The claim: takes the most urgent tasks that the session may run, from the ready ones and the lanes of its kinds.
 *
 * What stands first but is not for this session steps aside into a lane, with its score, so that the next claim
 * does not meet it again. A claim reads at most one row more than it takes (the extra one says what is next), and
 * moves all it took with one statement for each place.
 */
import type { Claimed, FinalState, Parent } from '@neotask/core'
import {
  bytesOf,
  CLAIM_CARE,
  encoded,
  FLAG,
  lanePlace,
  PENDING,
  priorityOf,
  RUNNING,
  SCALE,
  SCHEDULED,
  scoreOf,
  sessionPlace,
  stateIndex,
  stateOf,
  SUCCESS,
  type Row,
  type Stored,
} from './layout.js'
import { endByGroup, finishCancelled, groupOf } from './finish.js'
import type { Step } from './step.js'
import { bodyOf } from './task-record.js'

/** Tasks that one claim puts aside or ends on its way. */
const ASIDE = 200
const BYTES = 1024 * 1024

const CLAIM = `t.n, t.id, t.place, t.rank, t.score, t.flags, t.settled, t.attempts, t.reclaims, t.kind, t.codec, t.payload,
  t.options, t.since`
const FIRST = `SELECT ${CLAIM} FROM neotask_tasks t WHERE t.place = ? AND t.rank < ? ORDER BY t.rank LIMIT ?`
const NEWER = `SELECT ${CLAIM} FROM neotask_tasks t WHERE t.place = ? AND t.rank > ? ORDER BY t.rank, t.score LIMIT ?`
/** By their numbers: a statement that goes along the index which it changes takes half as long again. */
const TAKE = `UPDATE neotask_tasks SET place = ?, rank = ?, since = ? WHERE n IN (SELECT value FROM json_each(?))`
const TAKE_DUE = `UPDATE neotask_tasks SET place = ?, rank = ?, since = ?, score = ? WHERE n IN (SELECT value FROM json_each(?))`
const DUE = `SELECT n, id, score, flags, attempts, reclaims, kind, codec, payload, options FROM neotask_tasks
  WHERE place = ? AND rank <= ? ORDER BY rank, n LIMIT ?`
const MORE_URGENT = `SELECT 1 FROM (SELECT score FROM neotask_tasks WHERE place = ? AND rank <= ? ORDER BY rank, n LIMIT ?)
  WHERE score < ? LIMIT 1`
const LANES = 'SELECT lane, name FROM neotask_lanes WHERE q = ?'
const NEW_LANE =
  'INSERT INTO neotask_lanes (q, name) VALUES (?, ?) ON CONFLICT (q, name) DO UPDATE SET name = excluded.name RETURNING lane'
const DROP_LANE = 'DELETE FROM neotask_lanes WHERE lane = ?'
const EXTRAS = 'SELECT checkpoint, after_ids, deadline FROM neotask_extras WHERE n = ?'

type ClaimTuple = [
  number,
  string,
  number,
  number,
  number,
  number,
  number,
  number,
  number,
  string,
  string,
  Stored,
  string | null,
  number,
]

type DueTuple = [number, string, number, number, number, number, string, string, Stored, string | null]

/** A task that may be claimed, with what a claim says of it. */
interface Candidate extends Row {
  readonly codec: string
  readonly payload: Stored
  readonly options: string | null
  readonly since: number
}

export interface Wanted {
  readonly want: number
  readonly bytes?: number | undefined
  readonly moreUrgentThan?: number | undefined
}

export interface Taken {
  readonly claimed: Claimed[]
  /** The priority of the most urgent task that is left for the session. */
  readonly head: number | undefined
  /** Whether the session found less than it wanted, and would run what comes. */
  readonly short: boolean
}

/** @param issue gives the token; called once, when there is something to claim */
export function claim(
  step: Step,
  session: number,
  kinds: ReadonlySet<string>,
  wanted: Wanted,
  issue: () => number,
): Taken {
  const { want, bytes = BYTES, moreUrgentThan } = wanted
  const bound = moreUrgentThan === undefined ? Infinity : moreUrgentThan * SCALE
  const search = new Search(step, kinds)
  const found = search.first(want + 1)
  const taken: Candidate[] = []
  const payloads: Stored[] = []
  let left = bytes
  for (const candidate of found) {
    if (taken.length === want || candidate.score >= bound) break
    const payload = candidate.flags & FLAG.large ? bodyOf(step.db, candidate.n) : candidate.payload
    left -= bytesOf(payload)
    if (left < 0 && taken.length > 0) break
    taken.push(candidate)
    payloads.push(payload)
  }
  const next = found[taken.length]
  const head = next && priorityOf(next.score)
  const short = taken.length < want && next === undefined && !search.exhausted
  if (taken.length === 0) return { claimed: [], head, short }
  const token = issue()
  move(step, session, taken, token)
  const claimed = taken.map((candidate, index) =>
    claimedFrom(step, candidate, payloads[index] ?? null, token, step.now - candidate.since),
  )
  return { claimed, head, short }
}

/**
 * The short way of tasks that are due while nothing is ready: they go to the session from where they stand, instead of
 * becoming ready first. Plain ones only, of one priority, in the order in which they were submitted: then one place in the
 * order does for all.
 *
 * @param looked how many due tasks the long way would make ready before it claims: none of them may be more urgent
 * @param issue gives the token; called once, when there is something to claim
 * @returns `undefined` when they have to go the long way
 */
export function claimDue(
  step: Step,
  session: number,
  kinds: ReadonlySet<string>,
  wanted: Wanted,
  looked: number,
  issue: () => number,
): Taken | undefined {
  const { want, bytes = BYTES, moreUrgentThan } = wanted
  if (moreUrgentThan !== undefined) return undefined
  const { db, now } = step
  const place = step.place(SCHEDULED)
  const found = db.all<DueTuple>(DUE, place, now, want + 1)
  const [first] = found
  if (first === undefined) return undefined
  const priority = priorityOf(first[2])
  let [count, left, last] = [0, bytes, 0]
  for (const [n, , score, flags, , , kind, , payload] of found) {
    if (flags !== 0 || n < last || !kinds.has(kind) || priorityOf(score) !== priority) return undefined
    last = n
    left -= bytesOf(payload)
    if (count < want && (left >= 0 || count === 0)) count++
  }
  const isAll = count === found.length
  if (!isAll && found.length <= looked && db.get(MORE_URGENT, place, now, looked, scoreOf(priority, 0)))
    return undefined
  const token = issue()
  const taken = isAll ? found : found.slice(0, count)
  const numbers = JSON.stringify(taken.map(([n]) => n))
  db.run(TAKE_DUE, sessionPlace(session), token, now, step.nextScore(priority), numbers)
  step.shift(SCHEDULED, RUNNING, count)
  const claimed = taken.map(([, id, , , attempts, reclaims, kind, codec, payload, options]) => ({
    id,
    token,
    kind,
    payload: encoded(payload) ?? '',
    codec,
    options: options ?? undefined,
    priority,
    attempts,
    reclaims,
    probation: false,
    waited: 0,
    checkpoint: undefined,
    parents: undefined,
    timedOut: undefined,
  }))
  return { claimed, head: isAll ? undefined : priority, short: isAll && count < want }
}

/** The priority of the most urgent task that the session may run. */
export function headFor(step: Step, kinds: ReadonlySet<string>): number | undefined {
  const [first] = new Search(step, kinds).first(1)
  return first && priorityOf(first.score)
}

/** What the session holds with a newer token. */
export function entriesAfter(step: Step, session: number, token: number, limit: number): Claimed[] {
  const tuples = step.db.all<ClaimTuple>(NEWER, sessionPlace(session), token, limit)
  return tuples.map((tuple) => {
    const candidate = candidateFrom(tuple)
    const payload = candidate.flags & FLAG.large ? bodyOf(step.db, candidate.n) : candidate.payload
    return claimedFrom(step, candidate, payload, candidate.rank, 0)
  })
}

/** Looks for tasks in the order of their scores, and clears out of the way what is not for this session. */
class Search {
  readonly #step: Step
  readonly #kinds: ReadonlySet<string>
  /** Lanes of this queue by their names. */
  readonly #lanes: Map<string, number>
  #left = ASIDE

  constructor(step: Step, kinds: ReadonlySet<string>) {
    this.#step = step
    this.#kinds = kinds
    this.#lanes = new Map(step.db.all<[number, string]>(LANES, step.q).map(([lane, name]) => [name, lane]))
  }

  /** Whether it gave up at its bound, so that there may be more. */
  get exhausted(): boolean {
    return this.#left <= 0
  }

  /** The first that the session may run. */
  first(limit: number): Candidate[] {
    for (;;) {
      const found = this.#read(limit)
      const mine = found.filter((candidate) => this.#left > 0 && this.#mayRun(candidate))
      if (mine.length === found.length) return mine
      if (this.#left <= 0) return mine
    }
  }

  #read(limit: number): Candidate[] {
    const { db } = this.#step
    const all = db.all<ClaimTuple>(FIRST, this.#step.place(PENDING), Infinity, limit)
    let lanes = 0
    for (const [name, lane] of this.#lanes) {
      if (!name.startsWith('kind:') || !this.#kinds.has(name.slice(5))) continue
      const some = db.all<ClaimTuple>(FIRST, lanePlace(lane), Infinity, limit)
      if (some.length === 0) this.#close(name, lane)
      else lanes++
      all.push(...some)
    }
    if (lanes > 0) all.sort((a, b) => a[3] - b[3])
    return all.slice(0, limit).map(candidateFrom)
  }

  /** Whether the session may run the task now. If not, the task is gone from there afterwards. */
  #mayRun(candidate: Candidate): boolean {
    const step = this.#step
    if (candidate.flags & (FLAG.grouped | FLAG.deadline)) {
      if (endByGroup(step, candidate)) return this.#passed()
      if (this.#isExpired(candidate)) {
        finishCancelled(step, candidate, 'TASK_EXPIRED')
        return this.#passed()
      }
      const group = groupOf(step, candidate)
      if (group?.paused) {
        step.putAside(candidate, this.#lane(`group:${group.id}`))
        return this.#passed()
      }
    }
    if (this.#kinds.has(candidate.kind)) return true
    step.putAside(candidate, this.#lane(`kind:${candidate.kind}`))
    step.effects.ready(candidate.kind, candidate.score)
    return this.#passed()
  }

  #passed(): false {
    this.#left--
    return false
  }

  #isExpired(candidate: Candidate): boolean {
    if (!(candidate.flags & FLAG.deadline)) return false
    const deadline = this.#step.db.get<[Stored, string | null, number | null]>(EXTRAS, candidate.n)?.[2]
    return deadline !== undefined && deadline !== null && deadline <= this.#step.now
  }

  #lane(name: string): number {
    let lane = this.#lanes.get(name)
    if (lane === undefined) {
      lane = this.#step.db.get<[number]>(NEW_LANE, this.#step.q, name)?.[0] ?? 0
      this.#lanes.set(name, lane)
    }
    return lanePlace(lane)
  }

  #close(name: string, lane: number): void {
    this.#lanes.delete(name)
    this.#step.db.run(DROP_LANE, lane)
  }
}

function move(step: Step, session: number, taken: readonly Candidate[], token: number): void {
  const numbers = JSON.stringify(taken.map((candidate) => candidate.n))
  step.db.run(TAKE, sessionPlace(session), token, step.now, numbers)
  step.shift(PENDING, RUNNING, taken.length)
}

function candidateFrom(tuple: ClaimTuple): Candidate {
  return {
    n: tuple[0],
    id: tuple[1],
    place: tuple[2],
    rank: tuple[3],
    score: tuple[4],
    flags: tuple[5],
    settled: tuple[6],
    attempts: tuple[7],
    reclaims: tuple[8],
    kind: tuple[9],
    codec: tuple[10],
    payload: tuple[11],
    options: tuple[12],
    since: tuple[13],
  }
}

function claimedFrom(step: Step, task: Candidate, payload: Stored, token: number, waited: number): Claimed {
  const { id, kind, codec, attempts, reclaims, flags } = task
  const [checkpoint, after] =
    (flags & CLAIM_CARE && flags & FLAG.extras
      ? step.db.get<[Stored, string | null, number | null]>(EXTRAS, task.n)
      : undefined) ?? NOTHING
  return {
    id,
    token,
    kind,
    payload: encoded(payload) ?? '',
    codec,
    options: task.options ?? undefined,
    priority: priorityOf(task.score),
    attempts,
    reclaims,
    probation: (flags & FLAG.probation) !== 0,
    waited: Math.max(0, waited),
    checkpoint: encoded(checkpoint),
    parents: after === null ? undefined : parentsOf(step, JSON.parse(after) as string[]),
    timedOut: flags & FLAG.timedOut ? true : undefined,
  }
}

const NOTHING: [Stored, string | null, number | null] = [null, null, null]

/** The parents that are final: all, unless the task was retried after their records had gone. */
function parentsOf(step: Step, ids: readonly string[]): Parent[] {
  const rows = step.rows(ids)
  const parents: Parent[] = []
  for (const id of ids) {
    const row = rows.get(id)
    if (row && stateIndex(row.place) >= SUCCESS) parents.push({ id, state: stateOf(row.place) as FinalState })
  }
  return parents
}
