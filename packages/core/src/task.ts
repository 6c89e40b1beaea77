/**
 * What a task is: its states, which steps lead from one to another, what may be asked of it in each, and its id.
 *
 * The tables are data. Drivers, the pool, the published suite and the docs read these and no others.
 */
import { LONGEST_DURATION } from './duration.js'
import { optionError } from './errors.js'

/** Where a task is. The first three are waiting, `running` is held by a session, the last four are final. */
export type TaskState =
  'pending' | 'scheduled' | 'blocked' | 'running' | 'success' | 'failed' | 'cancelled' | 'skipped'

export type FinalState = 'success' | 'failed' | 'cancelled' | 'skipped'

export const TASK_STATES: readonly TaskState[] = [
  'pending',
  'scheduled',
  'blocked',
  'running',
  'success',
  'failed',
  'cancelled',
  'skipped',
]

/** Which states may follow a state. A task appears as one of the states of `created`. */
export const TRANSITIONS: Readonly<Record<TaskState | 'created', readonly TaskState[]>> = {
  // `cancelled`: a dependency had failed already.
  created: ['pending', 'scheduled', 'blocked', 'cancelled'],
  pending: ['running', 'cancelled'],
  scheduled: ['pending', 'cancelled'],
  // `success`: a held task that was completed. `scheduled`: released, with a delay that starts now.
  blocked: ['pending', 'scheduled', 'success', 'cancelled'],
  // `pending`: released, reclaimed or revoked. `scheduled`: to be retried. `blocked`: suspended.
  running: ['success', 'failed', 'cancelled', 'skipped', 'scheduled', 'pending', 'blocked'],
  success: [],
  failed: ['pending'],
  cancelled: ['pending'],
  skipped: [],
}

/** What may be asked of a task from outside. */
export type Operation = 'cancel' | 'promote' | 'reprioritize' | 'remove' | 'retry' | 'complete' | 'revoke'

/**
 * In which states each operation is permitted; in any other it answers with the state and changes nothing.
 * `complete` asks also that the task is held, `remove` that no unfinished dependent needs it.
 */
export const OPERATIONS: Readonly<Record<Operation, readonly TaskState[]>> = {
  cancel: ['pending', 'scheduled', 'blocked', 'running'],
  promote: ['scheduled'],
  reprioritize: ['pending', 'scheduled', 'blocked'],
  remove: ['pending', 'scheduled', 'blocked', 'success', 'failed', 'cancelled', 'skipped'],
  retry: ['failed', 'cancelled'],
  complete: ['blocked'],
  revoke: ['running'],
}

export function isFinal(state: TaskState): state is FinalState {
  return state === 'success' || state === 'failed' || state === 'cancelled' || state === 'skipped'
}

/** The named priorities. Any integer from 0 to 1 000 will do; the smaller one runs first. */
export const Priority = { critical: 0, high: 1, normal: 2, low: 3 } as const

export const MAX_PRIORITY = 1000

/** Why a session lost a task that it held. */
export type TakenReason = 'cancelled' | 'revoked'

const CALLER_ID = /^[A-Za-z0-9._:@/+=-]{1,128}$/
const STORED_CHARACTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/+=~#-'
const LONGEST_STORED = 256
/** The last instant of a Date, ms since 1970. */
export const LATEST = 8.64e15
/** 1 for what may stand in an id, by its character code. */
const STORABLE = new Uint8Array(128)
for (const character of STORED_CHARACTERS) STORABLE[character.charCodeAt(0)] = 1

/** Checks an id that a caller chose, or that he repeats. */
export function checkTaskId(id: unknown, option = 'id'): string {
  if (typeof id !== 'string' || !(CALLER_ID.test(id) || isGeneratedId(id))) {
    throw optionError(option, '1 to 128 characters of A-Z a-z 0-9 . _ : @ / + = -', id)
  }
  return id
}

/** Whether a storage may accept the id: what callers may choose, and what the library composes with `~` and `#`. */
export function isStorableId(id: string): boolean {
  const { length } = id
  if (length === 0 || length > LONGEST_STORED) return false
  // Every submit comes here, and an expression takes longer.
  for (let i = 0; i < length; i++) if (STORABLE[id.charCodeAt(i)] !== 1) return false
  return true
}

/** Whether a storage must accept it as a `delay`, `expiresIn` or `maxWait`. */
export function isStorableDuration(ms: number | undefined): boolean {
  return ms === undefined || (ms >= 0 && ms <= LONGEST_DURATION)
}

/** Whether a storage must accept it as a `runAt`: from 1970 to the last instant of a Date. */
export function isStorableInstant(ms: number | undefined): boolean {
  return ms === undefined || (ms >= 0 && ms <= LATEST)
}

/**
 * Whether the id has the form that {@link TaskIds} makes, which callers' ids cannot have, nor those that the library
 * composes: they have something behind a `~`. Such ids leave no tombstone.
 */
export function isGeneratedId(id: string): boolean {
  if (id.length !== LENGTH || id.charCodeAt(LENGTH - 1) !== TILDE) return false
  for (let i = 0; i < LENGTH - 1; i++) {
    if ((VALUES[id.charCodeAt(i)] ?? -1) < 0) return false
  }
  return true
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const BASE = DIGITS.length
const PER_BLOCK = BASE * BASE
/** ms in which a block of ids may be begun. */
const BLOCK_MS = 100
const TIME = 7
const PLACE = 2
const GENERATOR = TIME + PLACE
const NUMBER = 4
const LENGTH = GENERATOR + NUMBER + 1
/** How many generators ids tell apart. */
export const GENERATORS: number = BASE ** NUMBER
const TILDE = '~'.charCodeAt(0)
/** The value of each digit, by its character code. */
const VALUES = new Int8Array(128).fill(-1)
for (let value = 0; value < BASE; value++) VALUES[DIGITS.charCodeAt(value)] = value

function digits(value: number, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest = Math.floor(rest / BASE)) {
    text = DIGITS.charAt(rest % BASE) + text
  }
  return text
}

/** The place of an id within its block, 0 to 3 843; -1 when it has not the form that {@link TaskIds} makes. */
export function placeOf(id: string): number {
  if (id.length !== LENGTH || id.charCodeAt(LENGTH - 1) !== TILDE) return -1
  const high = VALUES[id.charCodeAt(TIME)] ?? -1
  const low = VALUES[id.charCodeAt(TIME + 1)] ?? -1
  return high < 0 || low < 0 ? -1 : high * BASE + low
}

/** Whether two ids that tell a place are of the same block. */
export function isInBlockOf(other: string, id: string): boolean {
  for (let i = 0; i < TIME; i++) if (other.charCodeAt(i) !== id.charCodeAt(i)) return false
  for (let i = GENERATOR; i < LENGTH; i++) if (other.charCodeAt(i) !== id.charCodeAt(i)) return false
  return true
}

/** A name for the block of an id that tells its place. */
export function blockOf(id: string): string {
  return id.slice(0, TIME) + id.slice(GENERATOR)
}

/** The id at a place in the block of another. */
export function idAt(other: string, place: number): string {
  return other.slice(0, TIME) + digits(place, PLACE) + other.slice(TIME + PLACE)
}

/**
 * Makes ids of 14 characters: 7 of the time in ms at which a block of them was begun, 2 of the place in the block,
 * 4 of a number that the storage gives to one generator at a time, so that no two of them make the same id, and a `~`.
 * They sort by the time of their making, those of one generator exactly and others to 100 ms. A block that is full before
 * its time borrows the next ms.
 */
export class TaskIds {
  readonly #suffix: string
  /** What follows the time, for each place: made once, so that an id is put together from two pieces only. */
  readonly #tails: string[] = []
  #ms = 0
  #prefix = ''
  #place = PER_BLOCK

  /** @param generator tells it from others; only the remainder by {@link GENERATORS} counts */
  constructor(generator: number) {
    this.#suffix = `${digits(generator % GENERATORS, NUMBER)}~`
  }

  /** @param now wall time in ms */
  next(now: number): string {
    if (now >= this.#ms + BLOCK_MS) this.#begin(now)
    else if (this.#place === PER_BLOCK) this.#begin(Math.max(now, this.#ms + 1))
    const place = this.#place++
    // Places begin at 0 each time, so the array has no holes.
    return this.#prefix + (this.#tails[place] ??= digits(place, PLACE) + this.#suffix)
  }

  #begin(ms: number): void {
    this.#ms = ms
    this.#prefix = digits(ms, TIME)
    this.#place = 0
  }
}
