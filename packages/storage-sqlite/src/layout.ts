/**
 * How a task lies in the file: its place, its flags, its score.
 *
 * A task is one row, and the column `place` says in which structure it stands: so it stands in exactly one by
 * construction. Places of a queue are positive and name a state; sessions are negative and even, lanes negative
 * and odd. `rank` is the order within the place: the score where it waits, the due time where it is scheduled,
 * the token where it is held, the time of its end where it is final. One index over (place, rank) is every
 * structure of the contract.
 */
import { TASK_STATES, type Encoded, type FinalState, type TaskState } from '@neotask/core'

/** Tasks of one priority: a score is `priority * SCALE + sequence`, at most 2^53. */
export const SCALE: number = 2 ** 43

export const scoreOf = (priority: number, sequence: number): number => priority * SCALE + sequence
export const priorityOf = (score: number): number => Math.floor(score / SCALE)

const STATES = TASK_STATES.length

export const PENDING = 0
export const SCHEDULED = 1
export const BLOCKED = 2
export const RUNNING = 3
export const SUCCESS = 4

export const FINAL_INDEX: Readonly<Record<FinalState, number>> = {
  success: 4,
  failed: 5,
  cancelled: 6,
  skipped: 7,
}

/** The place of a state, except for what is running or stands aside. */
export const placeOf = (queue: number, state: number): number => queue * STATES + state
export const sessionPlace = (session: number): number => -2 * session
export const lanePlace = (lane: number): number => -2 * lane - 1

export const sessionOf = (place: number): number | undefined =>
  place < 0 && place % 2 === 0 ? place / -2 : undefined
export const laneOf = (place: number): number | undefined =>
  place < 0 && place % 2 !== 0 ? (place + 1) / -2 : undefined

/** Index into `TASK_STATES`. */
export function stateIndex(place: number): number {
  if (place < 0) return place % 2 === 0 ? RUNNING : PENDING
  return place % STATES
}

export const stateOf = (place: number): TaskState => TASK_STATES[stateIndex(place)] as TaskState

/** What is known of a task beside its place. Most tasks have none of these, and cost no look elsewhere. */
export const FLAG = {
  /** Its handler is known to have been called (held only). */
  started: 1,
  /** It came back unmarked from a lost session. */
  probation: 2,
  /** It has a row in `extras`. */
  extras: 4,
  /** Its payload lies in `bodies`. */
  large: 8,
  grouped: 16,
  exempt: 32,
  held: 64,
  /** It has named parents. */
  edges: 128,
  /** Its parents must succeed. */
  onSuccess: 256,
  /** Others have named it as a parent. */
  parent: 512,
  watched: 1024,
  /** It stands in `deadlines`. */
  deadline: 2048,
  /** It waits after a settlement `suspended`; its deadline ends the wait, not the task. */
  suspended: 4096,
  timedOut: 8192,
  /** Something else than a settlement made it final: its record says token 0. */
  decided: 32768,
  /** A delay or an instant counts once its parents are final. */
  delayed: 65536,
} as const

/** A task with none of these is claimed and settled without a look at any other table. */
export const CLAIM_CARE: number = FLAG.extras | FLAG.large | FLAG.grouped | FLAG.edges

/** What every step needs to know of a task. */
export interface Row {
  readonly n: number
  readonly id: string
  place: number
  rank: number
  score: number
  flags: number
  settled: number
  attempts: number
  reclaims: number
  readonly kind: string
}

export type RowTuple = [number, string, number, number, number, number, number, number, number, string]

/** The columns of a {@link Row}, in the order of a {@link RowTuple}. */
export const ROW = 't.n, t.id, t.place, t.rank, t.score, t.flags, t.settled, t.attempts, t.reclaims, t.kind'

export function rowFrom(tuple: RowTuple): Row {
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
  }
}

/** Payloads longer than this (bytes, or characters of text) lie apart, so that claim and settlement do not write them again. */
export const LARGE = 1000

export type Stored = string | Buffer | null

/** What a column holds, as the contract wants it: bytes as a plain array of their own. */
export function encoded(value: Stored): Encoded | undefined {
  if (value === null) return undefined
  return typeof value === 'string' ? value : new Uint8Array(value)
}

export function bytesOf(value: Encoded | null | undefined): number {
  if (value === null || value === undefined) return 0
  return typeof value === 'string' ? Buffer.byteLength(value) : value.byteLength
}
