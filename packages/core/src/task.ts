/**
 * What a task is: its states, which steps lead from one to another, what may be asked of it in each, and its id.
 *
 * The tables are data. Drivers, the pool, the published suite and the docs read these and no others.
 */
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
const STORED_ID = /^[A-Za-z0-9._:@/+=~#-]{1,256}$/
const GENERATED_ID = /^[0-9A-Za-z]{9}-[0-9A-Za-z]{6}$/

/** Checks an id that a caller chose. */
export function checkTaskId(id: unknown, option = 'id'): string {
  if (typeof id !== 'string' || !CALLER_ID.test(id)) {
    throw optionError(option, '1 to 128 characters of A-Z a-z 0-9 . _ : @ / + = -', id)
  }
  return id
}

/** Whether a storage may accept the id: what callers may choose, and what the library composes with `~` and `#`. */
export function isStorableId(id: string): boolean {
  return STORED_ID.test(id)
}

/** Whether the id has the form that {@link TaskIds} makes. Such ids leave no tombstone. */
export function isGeneratedId(id: string): boolean {
  return GENERATED_ID.test(id)
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const BASE = DIGITS.length
const PER_MS = BASE * BASE

function digits(value: number, length: number): string {
  let text = ''
  for (let rest = value; text.length < length; rest = Math.floor(rest / BASE)) {
    text = DIGITS.charAt(rest % BASE) + text
  }
  return text
}

/**
 * Makes ids of 16 characters that sort by the time of their making: 7 characters of time in ms, 2 of a counter,
 * 6 that tell this generator from any other. More than 3 844 ids in one ms borrow from the next.
 */
export class TaskIds {
  readonly #suffix = `-${digits(Math.floor(Math.random() * BASE ** 6), 6)}`
  #ms = 0
  #prefix = ''
  #count = PER_MS

  /** @param now wall time in ms */
  next(now: number): string {
    if (now > this.#ms) this.#turn(now)
    else if (this.#count === PER_MS) this.#turn(this.#ms + 1)
    const count = this.#count++
    return this.#prefix + DIGITS.charAt(Math.floor(count / BASE)) + DIGITS.charAt(count % BASE) + this.#suffix
  }

  #turn(ms: number): void {
    this.#ms = ms
    this.#prefix = digits(ms, 7)
    this.#count = 0
  }
}
