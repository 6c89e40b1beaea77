/**
 * The two doors of a task's life in this process: how it comes into the storage, and how the end of an attempt is
 * put into words that the storage understands. Whatever this pool knows of its tasks (waiters, events, counters)
 * is told here and nowhere else, and only after the storage has answered.
 */
import { Batcher, type BatcherOptions } from './batcher.js'
import type { Clock } from './clock.js'
import { encodedSize, encodePayload, jsonCodec, plainCodec, type Codec } from './codec.js'
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
import { approachable, fingerprint, StoredError, storeFailure, type Failure } from './failure.js'
import type { Future, FutureManager } from './future-manager.js'
import { storedOptions, type Kinds } from './kinds.js'
import type { ResolvedOptions, ResolvedSubmit } from './options.js'
import type { PoolEvents } from './pool-events.js'
import type { StatsRecorder } from './pool-stats.js'
import { retryDelay, type RetryPolicy } from './retry-policy.js'
import type { Session } from './session.js'
import {
  isRefusal,
  type Claimed,
  type Encoded,
  type EnqueueOptions,
  type EnqueueOutcome,
  type NewTask,
  type QueueRef,
  type Refusal,
  type Settlement,
  type Storage,
  type StorageInfo,
} from './storage.js'
import { TaskIds } from './task.js'

/** A settlement, with what this process still wants to know when it is answered. */
export type Ending = Settlement & {
  readonly execution?: Execution
  /** The result, or the stored failure. */
  readonly value?: unknown
}

export interface LifecycleContext {
  readonly storage: Storage
  readonly info: StorageInfo
  readonly ref: QueueRef
  readonly options: ResolvedOptions
  readonly kinds: Kinds
  readonly futures: FutureManager
  readonly events: EventBus<PoolEvents>
  readonly stats: StatsRecorder
}

/** The `value` of an ending whose result came encoded; it is decoded when somebody listens. */
const NOT_DECODED = Symbol('a result that is only known encoded')
/** Submits that wait for a batch at the same time, at most. */
const MOST_WAITING = 1_000_000
const BATCH_BYTES = 1024 * 1024
/** Pauses between looks for room in a full queue, in ms. */
const ROOM_FIRST = 5
const ROOM_LONGEST = 250

/** A task on its way into the storage, and who wants to know how that went. */
export interface Submission extends NewTask {
  /** What the caller submitted, for the event. */
  readonly data: unknown
  /** The wait of a caller that submits and waits in one. */
  future: Future | undefined
  /** Called once, with the task as it is stored; `isNew` is false for one that was known, or has another's id now. */
  readonly answer: (task: Submission, isNew: boolean, error: Error | undefined) => void
}

export class LifecycleManager {
  readonly #context: LifecycleContext
  readonly #clock: Clock
  readonly #codec: Codec
  readonly #ids: TaskIds
  readonly #submits: Batcher<Submission, EnqueueOutcome>
  /** Of those that wait for room: one call at a time, or a later one might find what an earlier one did not. */
  readonly #roomTries: Batcher<Submission, EnqueueOutcome>
  readonly #limits: EnqueueOptions
  /** With a counter, tells this pool's repeats from other tasks with the same id. */
  readonly #nonce: string
  #nonces = 0
  #roomWaiters: Submission[] = []
  #roomPause = ROOM_FIRST
  #lookingForRoom = false
  #closed = false

  constructor(context: LifecycleContext) {
    this.#context = context
    const { storage, info, ref, options } = context
    this.#ids = idsOf(info)
    this.#clock = options.clock
    this.#codec = storage.keepsValues === true && options.codec === jsonCodec ? plainCodec : options.codec
    this.#nonce = `${context.futures.watcher}.`
    this.#limits = { maxQueueSize: options.maxQueueSize }
    const batching: BatcherOptions<Submission, EnqueueOutcome> = {
      run: (tasks) => storage.queue.enqueue(ref, tasks, this.#limits),
      maxItems: storage.limits.enqueue,
      size: (task) => encodedSize(task.payload),
      maxSize: BATCH_BYTES,
      maxWaiting: MOST_WAITING,
      timeout: options.callTimeout,
      clock: options.clock,
    }
    this.#submits = new Batcher({ ...batching, flights: storage.limits.flights })
    this.#roomTries = new Batcher(batching)
  }

  // ------------------------------------------------------------------------------------------------- submit

  /** A task ready to be stored; throws what is wrong with it. */
  create(
    kind: string,
    data: unknown,
    submit: ResolvedSubmit,
    watcher: string | undefined,
    answer: Submission['answer'],
  ): Submission {
    const { options, kinds } = this.#context
    const { priority, tags } = kinds.get(kind)
    return {
      id: submit.id ?? this.#ids.next(this.#clock.now()),
      kind,
      payload: encodePayload(this.#codec, data, 'data', options.maxPayload),
      codec: this.#codec.id,
      priority: submit.priority ?? priority,
      options: storedOptions(submit, tags),
      nonce: submit.id === undefined ? undefined : `${this.#nonce}${++this.#nonces}`,
      delay: submit.delay,
      runAt: submit.runAt,
      after: submit.after,
      hold: submit.hold ? true : undefined,
      group: submit.group,
      expiresIn: submit.expiresIn,
      debounce: submit.debounce,
      watcher,
      data,
      answer,
      future: undefined,
    }
  }

  /** Stores the task; its `answer` is called when the storage has answered, which may be now. */
  submit(task: Submission): void {
    const { storage, ref } = this.#context
    // Whoever waits for room, or tries whether there is some, was there first.
    const othersWait = this.#roomWaiters.length > 0 || this.#lookingForRoom
    if (othersWait && task.guard === undefined) this.#waitForRoom(task)
    else if (storage.queue.enqueueNow === undefined) this.#submits.push(task, this.#answered, this.#failed)
    else this.#answered(storage.queue.enqueueNow(ref, task, this.#limits), task)
  }

  /** Stores the task in the caller's own open transaction. @returns its id there */
  submitSync(task: Submission): string {
    const { storage, ref } = this.#context
    if (storage.queue.enqueueSync === undefined) {
      throw new NeoTaskError(
        'ILLEGAL_STATE',
        `submitSync: the storage ${storage.name} has no transactions of yours`,
      )
    }
    const outcomes = storage.queue.enqueueSync(ref, [task], this.#limits)
    const outcome = outcomes[0] as EnqueueOutcome
    if (isRefusal(outcome)) throw refusalError(outcome, task.id)
    if (typeof outcome === 'object') return outcome.into
    this.#tell(task, outcome)
    return task.id
  }

  /** Resolves when every submit has been answered. */
  async idle(): Promise<void> {
    await Promise.all([this.#submits.idle(), this.#roomTries.idle()])
  }

  /** A claim made room in the queue. */
  roomMade(): void {
    this.#roomPause = ROOM_FIRST
  }

  /** Refuses whoever waits for room. */
  close(): void {
    this.#closed = true
    for (const task of this.#roomWaiters.splice(0)) task.answer(task, false, closedError(task.id))
  }

  // One function for all submits: there may be hundreds of thousands at once.
  readonly #answered = (outcome: EnqueueOutcome, task: Submission): void => {
    if (typeof outcome !== 'object') task.answer(task, this.#tell(task, outcome), undefined)
    else if (!isRefusal(outcome)) task.answer({ ...task, id: outcome.into }, false, undefined)
    else if (isFull(outcome) && this.#mayWait(task)) this.#waitForRoom(task)
    else task.answer(task, false, refusalError(outcome, task.id))
  }

  readonly #failed = (error: unknown, task: Submission): void => {
    task.answer(task, false, withTaskId(error, task.id))
  }

  /** @returns whether the task is new, as opposed to one that was known */
  #tell(task: Submission, outcome: Exclude<EnqueueOutcome, object>): boolean {
    if (outcome === 'duplicate') return false
    // `repeated`: the first reply was lost, so nobody has been told yet.
    const { stats, events } = this.#context
    stats.submitted++
    if (events.hears('task.created')) {
      events.emit('task.created', { id: task.id, name: task.kind, data: task.data })
    }
    return true
  }

  /** A claim does not wait for room, and what comes from it would be late. */
  #mayWait(task: Submission): boolean {
    return this.#context.options.overflow === 'wait' && task.guard === undefined
  }

  #waitForRoom(task: Submission): void {
    if (this.#closed) {
      task.answer(task, false, closedError(task.id))
      return
    }
    this.#roomWaiters.push(task)
    this.#lookForRoom()
  }

  #lookForRoom(): void {
    if (this.#lookingForRoom || this.#roomWaiters.length === 0) return
    this.#lookingForRoom = true
    this.#clock.after(this.#roomPause, () => void this.#tryRoom(), { hold: true })
  }

  /** Tries those that wait longest, in their order; who is refused again stays in front. */
  async #tryRoom(): Promise<void> {
    const trying = this.#roomWaiters.splice(0, this.#context.storage.limits.enqueue)
    const refused: Submission[] = []
    const tries = trying.map(async (task) => {
      try {
        const outcome = await this.#roomTries.add(task)
        if (!isFull(outcome)) this.#answered(outcome, task)
        else if (this.#closed) task.answer(task, false, closedError(task.id))
        else refused.push(task)
      } catch (error) {
        this.#failed(error, task)
      }
    })
    await Promise.all(tries)
    this.#roomWaiters.unshift(...refused)
    this.#roomPause =
      refused.length < trying.length ? ROOM_FIRST : Math.min(ROOM_LONGEST, this.#roomPause * 2)
    this.#lookingForRoom = false
    this.#lookForRoom()
  }

  // ------------------------------------------------------------------------------------------------- settle

  /**
   * The handler returned.
   *
   * @param now monotonic ms
   * @param encoded the result, when a thread has encoded it already; `value` is not known then
   */
  succeeded(execution: Execution, value: unknown, session: Session, now: number, encoded?: Encoded): void {
    const { options } = this.#context
    const duration = this.#measure(execution, now)
    let result
    try {
      result = encoded ?? encodePayload(this.#codec, value, 'result', options.maxPayload)
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
      codec: this.#codec.id,
      duration,
      execution,
      value: encoded === undefined ? value : NOT_DECODED,
    }
    session.settle(ending, execution.session)
  }

  /** The handler threw, its attempt took too long, or its data could not be read. */
  failed(execution: Execution, thrown: unknown, session: Session, now: number): void {
    const error = approachable(thrown)
    const duration = this.#measure(execution, now)
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
        this.#settleFuture(execution, ending)
        if (events.hears('task.completed')) {
          const result = ending.value === NOT_DECODED ? options.codec.decode(ending.result) : ending.value
          events.emit('task.completed', { id, name, result, duration: ending.duration ?? 0 })
        }
        break
      case 'failed':
        stats.failed++
        this.#settleFuture(execution, ending)
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

  #settleFuture(execution: Execution, ending: Extract<Ending, { outcome: 'success' | 'failed' }>): void {
    const { futures } = this.#context
    const { id, outcome, duration } = ending
    const future = futures.take(id)
    if (future === undefined) return
    const isSuccess = outcome === 'success'
    futures.settle(future, {
      id,
      state: outcome,
      attempts: execution.attempt,
      duration,
      result: isSuccess ? ending.result : undefined,
      resultCodec: isSuccess ? ending.codec : undefined,
      error: isSuccess ? undefined : ending.error,
    })
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

  #measure(execution: Execution, now: number): number {
    const duration = now - execution.startedAt
    this.#context.stats.ran(duration, now)
    return duration
  }
}

/** Pools that share a storage share its number, and so the generator. */
const generators = new WeakMap<StorageInfo, TaskIds>()

function idsOf(info: StorageInfo): TaskIds {
  let ids = generators.get(info)
  if (ids === undefined) generators.set(info, (ids = new TaskIds(info.generator)))
  return ids
}

function isFull(outcome: EnqueueOutcome): boolean {
  return isRefusal(outcome) && outcome.code === 'QUEUE_FULL'
}

function closedError(taskId: string): NeoTaskError {
  return new NeoTaskError('POOL_CLOSED', 'the pool was closed while this submit waited for room', { taskId })
}

/** The items of a batch share their error; each caller needs the id, to repeat a submit that may have been stored. */
function withTaskId(error: unknown, taskId: string): Error {
  if (!(error instanceof StorageUnavailableError)) {
    return error instanceof Error
      ? error
      : new Error('the storage rejected with what is no error', { cause: error })
  }
  const { code, message, retryable, uncertain } = error
  return new StorageUnavailableError(code, message, { retryable, uncertain, taskId, cause: error })
}

function refusalError({ code, message }: Refusal, taskId: string): NeoTaskError {
  if (code === 'QUEUE_FULL') return new QueueFullError(code, message, { taskId, retryable: true })
  if (code === 'PAYLOAD_TOO_LARGE') return new PayloadError(code, message, { taskId })
  if (code === 'OPTION_INVALID') return new ValidationError(code, message, { taskId })
  return new NeoTaskError(code, message, { taskId, retryable: code === 'NOT_REPLICATED' })
}
