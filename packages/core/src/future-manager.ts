/**
 * Everybody who waits for a result: callers of `waitForResult`, by task.
 *
 * Whoever ends a task in this process settles its waiters at once. For what ends elsewhere the storage sends the id
 * to this manager's channel, and because messages may be lost, open waits are read again about once a second. The
 * storage registers and looks in one step, so a task that was faster than the wait is seen too.
 */
import { randomBytes } from 'node:crypto'
import { Batcher } from './batcher.js'
import { setImmediate, type Clock, type Timer } from './clock.js'
import { IdMap } from './id-map.js'
import {
  NeoTaskError,
  TaskCancelledError,
  TaskFailedError,
  WaitTimeoutError,
  type ErrorCode,
} from './errors.js'
import { StoredError, type Failure } from './failure.js'
import {
  CHANGED,
  finalChannel,
  idsIn,
  type FinalRecord,
  type QueueRef,
  type Storage,
  type WatchOutcome,
} from './storage.js'
import { isGeneratedId } from './task.js'
import type { Codec } from './codec.js'

export interface WaitOptions {
  /** ms to wait at most; the task goes on. */
  timeout?: number | undefined
  /** Ends the wait; the task goes on. */
  signal?: AbortSignal | undefined
}

const NO_BOUNDS: WaitOptions = {}

interface FutureContext {
  readonly storage: Storage
  readonly ref: QueueRef
  readonly codec: Codec
  readonly clock: Clock
  readonly callTimeout: number
}

/** A wait that all who want the result of a task share. */
export interface Future {
  readonly id: string
  readonly promise: Promise<unknown>
  readonly resolve: (value: unknown) => void
  readonly reject: (error: unknown) => void
  /** Calls that wait; when the last one has given up, nobody asks any more. */
  waiting: number
  /**
   * What the storage knows of the task: nothing yet, while its submission is under way (`expected`); perhaps
   * something (`asked`); certainly (`seen`): if it does not know it later, the task was removed.
   */
  known: 'expected' | 'asked' | 'seen'
  /** How many ticks there had been at the last look. */
  looked: number
}

/** A registration lasts this long, in ms, and is renewed by every look. */
const REGISTRATION = 60_000
/** ms; a wait is looked at again after so many ticks. */
const TICK = 500
const TICKS_BETWEEN = 2
/** Waits looked at again in one tick, and ids in one call. */
const LOOKS = 5000
const BATCH = 500

// An executor of its own for each promise would be a closure and a context more for each wait.
const captured = { resolve: (_value: unknown): void => {}, reject: (_error: unknown): void => {} }
function capture(resolve: (value: unknown) => void, reject: (error: unknown) => void): void {
  captured.resolve = resolve
  captured.reject = reject
}

export class FutureManager {
  /** The name of this manager's channel. */
  readonly watcher: string = randomBytes(6).toString('base64url')
  readonly #context: FutureContext
  readonly #futures = new IdMap<Future>()
  /** Goes through the waits, a piece at each tick. */
  #round: Iterator<Future, undefined> | undefined
  /** The clock of the looks: a number for each of them costs less than a time. */
  #ticks = 0
  readonly #looks: Batcher<string, WatchOutcome>
  #timer: Timer | undefined
  #unsubscribe: (() => Promise<void>) | undefined
  #subscribing: Promise<void> | undefined
  #closed = false

  constructor(context: FutureContext) {
    this.#context = context
    const { storage, ref, clock, callTimeout } = context
    this.#looks = new Batcher({
      run: (ids) => storage.queue.watch(ref, ids, { watcher: this.watcher, ttl: REGISTRATION }),
      maxItems: BATCH,
      maxWaiting: Infinity,
      timeout: callTimeout,
      clock,
    })
  }

  /** Promises the result of the task; always settles. */
  wait(id: string, options: WaitOptions = NO_BOUNDS): Promise<unknown> {
    if (this.#closed) return Promise.reject(closedError(id))
    const known = this.#futures.get(id)
    const future = known ?? this.#create(id)
    future.waiting++
    if (known === undefined) void this.#look(id, future)
    if (options.timeout === undefined && options.signal === undefined) return future.promise
    return this.#bounded(id, future, options)
  }

  /**
   * Waits for a task that is about to be submitted with this manager's {@link watcher}; `undefined` when somebody
   * waits for that id already.
   *
   * @param isNew whether the id was made for this task, so that nobody can know it yet
   */
  expect(id: string, isNew = false): Future | undefined {
    if (!isNew && this.#futures.has(id)) return undefined
    const future = this.#create(id, 'expected')
    future.waiting++
    return future
  }

  /** An expected task is stored. */
  stored(future: Future): void {
    future.known = 'seen'
  }

  /** The submission of an expected task failed. */
  fail(id: string, error: unknown): void {
    const future = this.#futures.get(id)
    if (future === undefined) return
    this.#drop(id)
    future.reject(error)
  }

  /** Looks once whether the task is final: it may have been before it was expected. */
  check(id: string): void {
    const future = this.#futures.get(id)
    if (future !== undefined) void this.#look(id, future)
  }

  /** A task ended in this process: its wait, if there is one, which is to be settled now. */
  take(id: string): Future | undefined {
    const future = this.#futures.take(id)
    if (future !== undefined) this.#rest()
    return future
  }

  /** Tells those who wait how their task ended. */
  settle(future: Future, record: FinalRecord): void {
    try {
      if (record.state === 'success') future.resolve(resultOf(record, this.#context.codec))
      else future.reject(endError(record))
    } catch (error) {
      future.reject(error)
    }
  }

  /** Rejects every open wait with `POOL_CLOSED`. */
  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    for (const future of this.#futures.values()) future.reject(closedError(future.id))
    this.#futures.clear()
    await this.#subscribing
    await this.#unsubscribe?.()
  }

  #leave(id: string, future: Future): void {
    future.waiting--
    if (future.waiting === 0 && this.#futures.get(id) === future) this.#drop(id)
  }

  #drop(id: string): void {
    this.#futures.take(id)
    this.#rest()
  }

  /** The timer holds the process, so it ends with the last wait. */
  #rest(): void {
    if (this.#futures.size > 0) return
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #create(id: string, known: Future['known'] = 'asked'): Future {
    const promise = new Promise<unknown>(capture)
    const { resolve, reject } = captured
    const future: Future = { id, promise, resolve, reject, waiting: 0, known, looked: this.#ticks }
    this.#futures.set(id, future)
    this.#subscribing ??= this.#subscribe()
    this.#arm()
    return future
  }

  async #subscribe(): Promise<void> {
    const { notices } = this.#context.storage
    try {
      this.#unsubscribe = await notices.subscribe(finalChannel(this.watcher), (message) =>
        this.#heard(message),
      )
      // What ended before there was anybody to hear of it.
      for (const future of this.#futures.values()) {
        if (future.known === 'seen') void this.#look(future.id, future)
      }
    } catch {
      // Polling finds what messages would have said; the next wait tries again.
      this.#subscribing = undefined
    }
  }

  /** What ended in this process settles within this turn, so only what is still open after it needs a look. */
  #heard(message: string): void {
    setImmediate(() => {
      if (this.#futures.size === 0) return
      if (message === CHANGED) {
        this.#lookAgain(Infinity)
        return
      }
      this.#settleTold(message)
      for (const id of idsIn(message)) this.check(id)
    })
  }

  /** An id that a caller chose may be that of another task by now, so those are asked for. */
  #settleTold(message: string): void {
    for (const end of this.#context.storage.notices.endsIn?.(message) ?? []) {
      const future = isGeneratedId(end.id) ? this.take(end.id) : undefined
      if (future !== undefined) this.settle(future, end)
    }
  }

  async #look(id: string, future: Future): Promise<void> {
    future.looked = this.#ticks
    const early = future.known === 'expected'
    let outcome: WatchOutcome
    try {
      outcome = await this.#looks.add(id)
    } catch (error) {
      // A first look that fails is the caller's to know; a later one is repeated by the poll.
      if (future.known !== 'seen' && !early && this.#futures.get(id) === future) {
        this.#drop(id)
        future.reject(error)
      }
      return
    }
    if (this.#futures.get(id) !== future) return
    if (outcome === 'open') future.known = 'seen'
    else if (typeof outcome === 'object') {
      this.#drop(id)
      this.settle(future, outcome)
    } else if (!early) {
      this.#drop(id)
      future.reject(missingError(id, outcome, future.known === 'seen'))
    }
  }

  #bounded(id: string, future: Future, { timeout, signal }: WaitOptions): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer =
        timeout === undefined
          ? undefined
          : this.#context.clock.after(
              timeout,
              () => {
                end()
                reject(
                  new WaitTimeoutError('WAIT_TIMEOUT', `task ${id} did not end within ${timeout} ms`, {
                    taskId: id,
                  }),
                )
              },
              { hold: true },
            )
      const abort = (): void => {
        end()
        // Whatever the caller aborted with is what the caller gets.
        reject(signal?.reason as Error)
      }
      const end = (): void => {
        timer?.cancel()
        signal?.removeEventListener('abort', abort)
        this.#leave(id, future)
      }
      if (signal?.aborted) {
        abort()
        return
      }
      signal?.addEventListener('abort', abort, { once: true })
      future.promise.then(
        (value) => {
          end()
          resolve(value)
        },
        (error: unknown) => {
          end()
          reject(error)
        },
      )
    })
  }

  /** Asks for what was not looked at since that tick; what is beyond the bound has its turn in the next one. */
  #lookAgain(since: number): void {
    this.#round ??= this.#futures.values()
    for (let looks = 0; looks < LOOKS;) {
      const { value: future } = this.#round.next()
      if (future === undefined) {
        this.#round = undefined
        return
      }
      if (future.looked > since) continue
      looks++
      void this.#look(future.id, future)
    }
  }

  /** One timer for all waits; it holds the process, because somebody waits. */
  #arm(): void {
    this.#timer ??= this.#context.clock.after(
      TICK,
      () => {
        this.#timer = undefined
        if (this.#futures.size === 0) return
        this.#arm()
        this.#lookAgain(++this.#ticks - TICKS_BETWEEN)
      },
      { hold: true, poll: true },
    )
  }
}

/** The result of a task that succeeded. */
export function resultOf(record: Pick<FinalRecord, 'result' | 'resultCodec'>, codec: Codec): unknown {
  const { result, resultCodec } = record
  if (result === undefined) return undefined
  if (resultCodec !== undefined && resultCodec !== codec.id) {
    throw new NeoTaskError(
      'PAYLOAD_INVALID',
      `the result was made by codec ${resultCodec}, this pool has ${codec.id}`,
    )
  }
  return codec.decode(result)
}

/** The error of a task that ended otherwise than in success. */
export function endError(record: FinalRecord): NeoTaskError {
  const { id, state, reason, message, error } = record
  const cause = error === undefined ? undefined : new StoredError(JSON.parse(error) as Failure)
  const options = cause === undefined ? { taskId: id } : { taskId: id, cause }
  const why = message ?? cause?.message
  const tail = why === undefined || why === '' ? '' : `: ${why}`
  if (state === 'failed') {
    const code = reason === undefined ? 'TASK_FAILED' : (reason as ErrorCode)
    return new TaskFailedError(
      code,
      `task ${id} failed${reason === undefined ? '' : ` (${reason})`}${tail}`,
      options,
    )
  }
  if (state === 'skipped')
    return new TaskCancelledError('TASK_SKIPPED', `task ${id} was skipped${tail}`, options)
  const code = (reason ?? 'TASK_CANCELLED') as ErrorCode
  const suffix = code === 'TASK_CANCELLED' ? '' : ` (${code})`
  return new TaskCancelledError(code, `task ${id} was cancelled${suffix}${tail}`, options)
}

function missingError(id: string, outcome: 'unknown' | 'forgotten', seen: boolean): NeoTaskError {
  if (seen) return new NeoTaskError('TASK_REMOVED', `task ${id} was removed`, { taskId: id })
  if (outcome === 'forgotten' || isGeneratedId(id)) {
    return new NeoTaskError('RESULT_EXPIRED', `the record of task ${id} is gone`, { taskId: id })
  }
  return new NeoTaskError('TASK_NOT_FOUND', `no task ${id} in this queue`, { taskId: id })
}

function closedError(id: string): NeoTaskError {
  return new NeoTaskError('POOL_CLOSED', `the pool was closed while task ${id} was waited for`, {
    taskId: id,
  })
}
