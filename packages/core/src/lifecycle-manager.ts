/**
 * The two doors of a task's life in this process: how it comes into the storage, and how the end of an attempt is
 * put into words that the storage understands. Whatever this pool knows of its tasks (waiters, events, counters)
 * is told here and nowhere else, and only after the storage has answered.
 */
import { Batcher } from './batcher.js'
import type { Clock } from './clock.js'
import { encodedSize, encodePayload } from './codec.js'
import { parseDuration } from './duration.js'
import {
  NeoTaskError,
  NonRetryableError,
  PayloadError,
  QueueFullError,
  RetryLaterError,
  StorageUnavailableError,
  ValidationError,
} from './errors.js'
import type { EventBus } from './event-bus.js'
import type { Execution } from './execution.js'
import { fingerprint, StoredError, storeFailure, type Failure } from './failure.js'
import type { FutureManager } from './future-manager.js'
import { storedOptions, type Kinds } from './kinds.js'
import type { ResolvedOptions, ResolvedSubmit } from './options.js'
import type { PoolEvents } from './pool-events.js'
import type { StatsRecorder } from './pool-stats.js'
import { retryDelay, type RetryPolicy } from './retry-policy.js'
import type { Session } from './session.js'
import type { Claimed, EnqueueOutcome, NewTask, QueueRef, Settlement, Storage } from './storage.js'
import { TaskIds } from './task.js'

/** A settlement, with what this process still wants to know when it is answered. */
export type Ending = Settlement & {
  readonly execution?: Execution
  /** The result, or the stored failure. */
  readonly value?: unknown
}

export interface LifecycleContext {
  readonly storage: Storage
  readonly ref: QueueRef
  readonly options: ResolvedOptions
  readonly kinds: Kinds
  readonly futures: FutureManager
  readonly events: EventBus<PoolEvents>
  readonly stats: StatsRecorder
}

/** Submits that wait for a batch at the same time, at most. */
const MOST_WAITING = 1_000_000
const BATCH_BYTES = 1024 * 1024
/** Pauses between looks for room in a full queue, in ms. */
const ROOM_FIRST = 5
const ROOM_LONGEST = 250

interface RoomWaiter {
  readonly task: NewTask
  readonly resolve: (outcome: EnqueueOutcome) => void
  readonly reject: (error: unknown) => void
}

export class LifecycleManager {
  readonly #context: LifecycleContext
  readonly #clock: Clock
  readonly #ids = new TaskIds()
  readonly #submits: Batcher<NewTask, EnqueueOutcome>
  /** With a counter, tells this pool's repeats from other tasks with the same id. */
  readonly #nonce: string
  #nonces = 0
  #roomWaiters: RoomWaiter[] = []
  #roomPause = ROOM_FIRST
  #lookingForRoom = false
  #closed = false

  constructor(context: LifecycleContext) {
    this.#context = context
    const { storage, ref, options } = context
    this.#clock = options.clock
    this.#nonce = `${context.futures.watcher}.`
    const limits = { maxQueueSize: options.maxQueueSize }
    this.#submits = new Batcher({
      run: (tasks) => storage.queue.enqueue(ref, tasks, limits),
      maxItems: storage.limits.enqueue,
      size: (task) => encodedSize(task.payload),
      maxSize: BATCH_BYTES,
      maxWaiting: MOST_WAITING,
      timeout: options.callTimeout,
      clock: options.clock,
    })
  }

  // ------------------------------------------------------------------------------------------------- submit

  /** A task ready to be stored; throws what is wrong with it. */
  create(kind: string, data: unknown, submit: ResolvedSubmit, watcher?: string): NewTask {
    const { options, kinds } = this.#context
    const { priority, tags } = kinds.get(kind)
    return {
      id: submit.id ?? this.#ids.next(this.#clock.now()),
      kind,
      payload: encodePayload(options.codec, data, 'data', options.maxPayload),
      codec: options.codec.id,
      priority: submit.priority ?? priority,
      options: storedOptions(submit, tags),
      nonce: submit.id === undefined ? undefined : `${this.#nonce}${++this.#nonces}`,
      delay: submit.delay,
      runAt: submit.runAt,
      after: submit.after,
      hold: submit.hold ? true : undefined,
      group: submit.group,
      expiresIn: submit.expiresIn,
      replace: submit.replace ? true : undefined,
      watcher,
    }
  }

  /** Stores the task. @returns whether it is new, as opposed to a duplicate */
  async submit(task: NewTask, data: unknown): Promise<boolean> {
    const wait = this.#context.options.overflow === 'wait'
    // Whoever waits for room was there first.
    let outcome: EnqueueOutcome
    try {
      outcome = await (wait && this.#roomWaiters.length > 0 ? this.#whenRoom(task) : this.#submits.add(task))
      if (wait && isFull(outcome)) outcome = await this.#whenRoom(task)
    } catch (error) {
      throw withTaskId(error, task.id)
    }
    return this.#tell(task, data, outcome)
  }

  /** Stores the task in the caller's own open transaction. */
  submitSync(task: NewTask, data: unknown): boolean {
    const { storage, ref, options } = this.#context
    if (storage.queue.enqueueSync === undefined) {
      throw new NeoTaskError(
        'ILLEGAL_STATE',
        `submitSync: the storage ${storage.name} has no transactions of yours`,
      )
    }
    const [outcome] = storage.queue.enqueueSync(ref, [task], { maxQueueSize: options.maxQueueSize })
    return this.#tell(task, data, outcome as EnqueueOutcome)
  }

  /** Resolves when every submit has been answered. */
  idle(): Promise<void> {
    return this.#submits.idle()
  }

  /** A claim made room in the queue. */
  roomMade(): void {
    if (this.#roomWaiters.length === 0) return
    this.#roomPause = ROOM_FIRST
  }

  /** Refuses whoever waits for room. */
  close(): void {
    this.#closed = true
    for (const waiter of this.#roomWaiters.splice(0)) waiter.reject(closedError(waiter.task.id))
  }

  #tell(task: NewTask, data: unknown, outcome: EnqueueOutcome): boolean {
    if (typeof outcome === 'object') throw refusalError(outcome.code, outcome.message, task.id)
    // `repeated`: the first reply was lost, so nobody has been told yet.
    return outcome === 'duplicate' || outcome === 'replaced' ? false : this.#created(task, data)
  }

  #created(task: NewTask, data: unknown): true {
    const { stats, events } = this.#context
    stats.submitted++
    if (events.hears('task.created')) events.emit('task.created', { id: task.id, name: task.kind, data })
    return true
  }

  #whenRoom(task: NewTask): Promise<EnqueueOutcome> {
    if (this.#closed) return Promise.reject(closedError(task.id))
    return new Promise((resolve, reject) => {
      this.#roomWaiters.push({ task, resolve, reject })
      this.#lookForRoom()
    })
  }

  #lookForRoom(): void {
    if (this.#lookingForRoom || this.#roomWaiters.length === 0) return
    this.#lookingForRoom = true
    this.#clock.after(this.#roomPause, () => void this.#tryRoom(), { hold: true })
  }

  /** Tries those that wait longest, in their order; who is refused again stays in front. */
  async #tryRoom(): Promise<void> {
    const trying = this.#roomWaiters.splice(0, this.#context.storage.limits.enqueue)
    const refused: RoomWaiter[] = []
    await Promise.all(
      trying.map(async (waiter) => {
        try {
          const outcome = await this.#submits.add(waiter.task)
          if (!isFull(outcome)) waiter.resolve(outcome)
          else if (this.#closed) waiter.reject(closedError(waiter.task.id))
          else refused.push(waiter)
        } catch (error) {
          waiter.reject(error)
        }
      }),
    )
    this.#roomWaiters.unshift(...refused)
    this.#roomPause =
      refused.length < trying.length ? ROOM_FIRST : Math.min(ROOM_LONGEST, this.#roomPause * 2)
    this.#lookingForRoom = false
    this.#lookForRoom()
  }

  // ------------------------------------------------------------------------------------------------- settle

  /** The handler returned. */
  succeeded(execution: Execution, value: unknown, session: Session): void {
    const { options } = this.#context
    const duration = this.#measure(execution)
    let result
    try {
      result = encodePayload(options.codec, value, 'result', options.maxPayload)
    } catch (error) {
      this.#fail(execution, error, duration, session)
      return
    }
    const { id, token } = execution.claimed
    const ending: Ending = {
      id,
      token,
      outcome: 'success',
      result,
      codec: options.codec.id,
      duration,
      execution,
      value,
    }
    session.settle(ending, execution.session)
  }

  /** The handler threw, its attempt took too long, or its data could not be read. */
  failed(execution: Execution, error: unknown, session: Session): void {
    const duration = this.#measure(execution)
    const { id, token } = execution.claimed
    if (execution.aborted === 'lease-lost' || execution.aborted === 'shutdown') {
      session.settle({ id, token, outcome: 'released' }, execution.session)
      return
    }
    if (error instanceof RetryLaterError) {
      try {
        const until = parseDuration(error.delay, 'RetryLaterError.delay')
        session.settle({ id, token, outcome: 'suspended', until, duration }, execution.session)
      } catch (invalid) {
        this.#fail(execution, invalid, duration, session)
      }
      return
    }
    const attempt = execution.attempt
    const retry = this.#retryOf(execution.claimed, error)
    if (retry === undefined || attempt > retry.limit) {
      this.#fail(execution, error, duration, session)
      return
    }
    const failure = storeFailure(error)
    const ending: Ending = {
      id,
      token,
      outcome: 'retry',
      in: retryDelay(retry, attempt),
      error: JSON.stringify(failure),
      duration,
      execution,
      value: failure,
    }
    session.settle(ending, execution.session)
  }

  /** Gives a task back that has not started. */
  release(task: Claimed, session: Session): void {
    session.settle({ id: task.id, token: task.token, outcome: 'released' }, session.id)
  }

  /** The storage has answered: tells whoever wants to know. */
  settled(ending: Ending, accepted: boolean): void {
    const { execution } = ending
    if (execution === undefined) return
    const { stats, events, options } = this.#context
    if (!accepted) {
      options.logger.debug(
        { task: ending.id, token: ending.token },
        'the end of an attempt came too late and was refused',
      )
      return
    }
    const { id } = ending
    const name = execution.name
    switch (ending.outcome) {
      case 'success':
        stats.completed++
        this.#settleFuture(execution, ending, 'success')
        if (events.hears('task.completed')) {
          events.emit('task.completed', { id, name, result: ending.value, duration: ending.duration ?? 0 })
        }
        break
      case 'failed':
        stats.failed++
        this.#settleFuture(execution, ending, 'failed')
        if (events.hears('task.failed')) {
          const error = new StoredError(ending.value as Failure)
          events.emit('task.failed', { id, name, error, attempts: execution.attempt })
        }
        break
      case 'retry':
        stats.retried++
        if (events.hears('task.retry')) {
          const error = new StoredError(ending.value as Failure)
          events.emit('task.retry', { id, name, retryCount: execution.attempt, delay: ending.in, error })
        }
        break
      default:
    }
  }

  #settleFuture(execution: Execution, ending: Ending, state: 'success' | 'failed'): void {
    const { futures } = this.#context
    if (!futures.has(ending.id)) return
    futures.settle(ending.id, () => ({
      id: ending.id,
      state,
      attempts: execution.attempt,
      duration: ending.duration,
      ...(ending.outcome === 'success' ? { result: ending.result, resultCodec: ending.codec } : {}),
      ...(ending.outcome === 'failed' ? { error: ending.error } : {}),
    }))
  }

  #fail(execution: Execution, error: unknown, duration: number, session: Session): void {
    const failure = storeFailure(error)
    const { id, token } = execution.claimed
    const ending: Ending = {
      id,
      token,
      outcome: 'failed',
      error: JSON.stringify(failure),
      fingerprint: fingerprint(failure),
      duration,
      execution,
      value: failure,
    }
    session.settle(ending, execution.session)
  }

  /** What can never succeed, or was said to be final by the handler, is not tried again. */
  #retryOf(task: Claimed, error: unknown): RetryPolicy | undefined {
    const isFinal =
      error instanceof NonRetryableError || error instanceof PayloadError || error instanceof ValidationError
    if (isFinal) return undefined
    try {
      return this.#context.kinds.resolve(task).retry
    } catch {
      // Its options cannot be read, or nothing here runs its kind: that is what it failed with.
      return undefined
    }
  }

  #measure(execution: Execution): number {
    const now = this.#clock.monotonic()
    const duration = now - execution.startedAt
    this.#context.stats.ran(duration, now)
    return duration
  }
}

function isFull(outcome: EnqueueOutcome): boolean {
  return typeof outcome === 'object' && outcome.code === 'QUEUE_FULL'
}

function closedError(taskId: string): NeoTaskError {
  return new NeoTaskError('POOL_CLOSED', 'the pool was closed while this submit waited for room', { taskId })
}

/** The items of a batch share their error; each caller needs the id, to repeat a submit that may have been stored. */
function withTaskId(error: unknown, taskId: string): unknown {
  if (!(error instanceof StorageUnavailableError)) return error
  const { code, message, retryable, uncertain } = error
  return new StorageUnavailableError(code, message, { retryable, uncertain, taskId, cause: error })
}

function refusalError(code: NeoTaskError['code'], message: string, taskId: string): NeoTaskError {
  if (code === 'QUEUE_FULL') return new QueueFullError(code, message, { taskId, retryable: true })
  if (code === 'PAYLOAD_TOO_LARGE') return new PayloadError(code, message, { taskId })
  if (code === 'OPTION_INVALID') return new ValidationError(code, message, { taskId })
  return new NeoTaskError(code, message, { taskId })
}
