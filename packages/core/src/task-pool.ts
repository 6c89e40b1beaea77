/**
 * The task pool: submit a task, wait for its result. Everything else here is a question about tasks or a word to
 * the queue; the work is done by the parts below, one for each box of the design.
 */
import { checkKeys, checkObject, checkPriority, checkText, oneOf } from './checks.js'
import { setImmediate, type Clock, type Timer } from './clock.js'
import { ClusterEvents, type ClusterEvent } from './cluster-events.js'
import { encodePayload } from './codec.js'
import { Consumers } from './consumers.js'
import { withDeadline } from './deadline.js'
import { TaskDefinition, type Handler, type HandlerFile } from './define-task.js'
import { parseDuration, type Duration } from './duration.js'
import { NeoTaskError, optionError } from './errors.js'
import { EventBus, type EventsOptions, type StreamedEvent } from './event-bus.js'
import { explainTask, type Explanation } from './explain.js'
import { endError, FutureManager, resultOf, type WaitOptions } from './future-manager.js'
import { EXECUTOR, Kinds } from './kinds.js'
import { LifecycleManager, type Submission } from './lifecycle-manager.js'
import { PoolLocks } from './locks.js'
import { listNodes, type NodeStatus } from './node-registry.js'
import { openStorage } from './open-storage.js'
import {
  resolveOptions,
  resolveSubmit,
  type PoolOptions,
  type ResolvedOptions,
  type SubmitOptions,
} from './options.js'
import type { PoolEvents } from './pool-events.js'
import { StatsRecorder, type PoolStats } from './pool-stats.js'
import { Services, type Service } from './service.js'
import type { FinalRecord, OperationOutcome, QueueCounts, QueueRef, Storage, TaskRecord } from './storage.js'
import { SubmitBatch } from './submit-batch.js'
import { taskInfo, type TaskInfo } from './task-info.js'
import { isFinal, TASK_STATES, type Operation, type TaskState } from './task.js'

export interface TaskPoolOptions<Data, Result> extends PoolOptions {
  /** Runs what is submitted without a definition: a function, or the URL of a file that exports one. */
  executor?: Handler<Data, Result> | HandlerFile | undefined
  /** The kinds of task that this pool knows, by `defineTask`. */
  tasks?: readonly TaskDefinition[] | undefined
}

/** A task's id, which remembers the type of the result. An ordinary string at run time. */
export type TaskId<Result = unknown> = string & { readonly [RESULT]?: Result }
declare const RESULT: unique symbol

/** One task of {@link TaskPool.submitBatch}. */
export type BatchItem<Data> = ({ data: Data; task?: undefined } | { task: TaskDefinition; data: unknown }) &
  SubmitOptions

export interface CloseOptions {
  /** How long running tasks may go on before they are aborted and given back. Default: `'30s'`. */
  timeout?: Duration | undefined
  /** Runs what is pending first. Default: false. */
  drain?: boolean | undefined
}

export interface CloseReport {
  /** Attempts that ended while the pool closed. */
  finished: number
  /** Tasks that were held and went back to their places, with no attempt used up. */
  returned: number
  /** Waiting tasks that were lost with a memory storage of the pool's own. */
  discarded: number
}

export interface Health {
  /** Whether the storage answers and, in a consuming pool, the session lives. */
  ok: boolean
  storage: { ok: boolean; latency: number | undefined; error: string | undefined }
  /** In a consuming pool: ms since the last renewal that was answered. */
  session: { ok: boolean; silence: number } | undefined
  running: number
  prefetched: number
}

export interface ListOptions {
  state?: TaskState | undefined
  /** The name of the definition; empty for the executor. */
  name?: string | undefined
  group?: string | undefined
  /** Tasks on a page, 1 to 500. Default: 100. */
  limit?: number | undefined
  /** The `cursor` of the page before. */
  cursor?: string | undefined
}

export interface TaskList {
  tasks: TaskInfo[]
  /** Given when there may be more. */
  cursor: string | undefined
}

type State = 'new' | 'open' | 'closing' | 'closed'

/** What there is once the storage is open. */
interface Parts {
  readonly storage: Storage
  readonly futures: FutureManager
  readonly lifecycle: LifecycleManager
}

/** What `tier.ts` makes a tier of. */
export interface PoolInside {
  readonly ref: QueueRef
  readonly options: ResolvedOptions
  readonly kinds: Kinds
  readonly events: EventBus<PoolEvents>
  /** The lifecycle manager, once the storage is open; opens it. */
  lifecycle(): Promise<LifecycleManager>
  /** As `submit` would store it; refuses what `submit` refuses. */
  create(first: unknown, second: unknown, third: SubmitOptions | undefined): Promise<Submission>
  readonly call: <T>(what: string, call: (storage: Storage) => Promise<T>) => Promise<T>
  readonly consume: () => void
  readonly trouble: (error: unknown, during: string) => void
}

/** The inside of a pool, for tiers. */
export let insideOf: (pool: TaskPool) => PoolInside

const MOST_IN_FLIGHT = 2000
/** Tasks of a batch that are made in one turn of the event loop. */
const TURN = 200
/** The pause before a start that failed is tried again, in ms. */
const START_AGAIN = 1000

export class TaskPool<Data = never, Result = unknown> implements AsyncDisposable {
  static {
    insideOf = (pool) => ({
      ref: pool.#ref,
      options: pool.#options,
      kinds: pool.#kinds,
      events: pool.#events,
      lifecycle: async () => (pool.#parts ?? (await pool.#open())).lifecycle,
      create: async (first, second, third) => {
        const parts = pool.#parts ?? (await pool.#open())
        return await pool.#create(parts, first, second, third, () => {}, false)
      },
      call: (what, call) => pool.#call(what, call),
      consume: () => pool.#consume(),
      trouble: (error, during) => pool.#trouble(error, during),
    })
  }

  readonly #options: ResolvedOptions
  readonly #kinds: Kinds
  readonly #ref: QueueRef
  readonly #clock: Clock
  readonly #events: EventBus<PoolEvents>
  readonly #cluster: ClusterEvents
  readonly #stats: StatsRecorder
  readonly #locks: PoolLocks
  readonly #services: Services<TaskPool<Data, Result>> = new Services(this)
  #state: State = 'new'
  #pausedHere = false
  #parts: Parts | undefined
  #opening: Promise<Parts> | undefined
  #consumer: Consumers | undefined
  #starting: Promise<void> | undefined
  #startAgain: Timer | undefined
  #closing: Promise<CloseReport> | undefined

  /** Checks the options and touches nothing; throws `OPTION_INVALID` for the first that does not fit. */
  constructor(options: TaskPoolOptions<Data, Result>) {
    this.#options = resolveOptions(options)
    const { executor, tasks = [] } = options
    const { retry, timeout, codec, clock, tenant, queue, logger } = this.#options
    this.#kinds = new Kinds(executor, tasks, { retry, timeout, codec })
    if (this.#options.concurrency > 0) {
      const { servedHere, servedInThreads } = this.#kinds
      if (servedHere.length + servedInThreads.length === 0) {
        throw optionError('executor', 'an executor, or tasks with a handler, or concurrency: 0', undefined)
      }
      this.#kinds.checkFiles()
    }
    this.#ref = { tenant, queue }
    this.#clock = clock
    this.#stats = new StatsRecorder(clock.monotonic())
    const { callTimeout, node } = this.#options
    const storage = async (): Promise<Storage> => (this.#parts ?? (await this.#open())).storage
    this.#locks = new PoolLocks({ tenant, storage, clock, callTimeout })
    this.#events = new EventBus<PoolEvents>({
      clock,
      onError: (error, type) => {
        // A listener of `pool.error` that throws is not told to the others of its kind, or it would never end.
        if (type === 'pool.error') logger.error({ err: error }, 'NeoTask: a listener of pool.error failed')
        else this.#trouble(error, `a listener of ${type}`)
      },
    })
    this.#cluster = new ClusterEvents({
      ref: this.#ref,
      node,
      codec,
      clock,
      callTimeout,
      events: this.#events,
      storage,
      troubled: (error) => {
        if (this.#state === 'new' || this.#state === 'open') this.#trouble(error, 'events')
      },
    })
  }

  // -------------------------------------------------------------------------------------------------- submit

  /**
   * Stores a task; resolves with its id when it is committed. Repeating it with the same `id` is one task.
   *
   * Rejects: `VALIDATION_FAILED` `PAYLOAD_INVALID` `PAYLOAD_TOO_LARGE` `OPTION_INVALID` `QUEUE_FULL`
   * `DEPENDENCY_NOT_FOUND` `POOL_CLOSED` `STORAGE_UNAVAILABLE` (with `uncertain`: it may be stored) `NOT_REPLICATED` (it is
   * stored, on fewer servers than asked for).
   */
  submit<Input, R>(task: TaskDefinition<Input, R>, data: Input, options?: SubmitOptions): Promise<TaskId<R>>
  submit(data: Data, options?: SubmitOptions): Promise<TaskId<Result>>
  submit(first: unknown, second?: unknown, third?: SubmitOptions): Promise<TaskId<never>> {
    return new Promise((resolve, reject) => {
      const answer: Submission['answer'] = ({ id }, _isNew, error) => {
        if (error === undefined) resolve(id)
        else reject(error)
      }
      const sent = this.#submit(first, second, third, answer, false, this.#send)
      if (sent instanceof Promise) sent.catch(reject)
    })
  }

  /**
   * Stores many tasks, from any iterable, of any length, in bounded memory. Resolves with their ids in order. Each
   * is accepted or refused by itself: the first refusal rejects, and what was stored before it stays stored.
   */
  async submitBatch(
    items: Iterable<BatchItem<Data>> | AsyncIterable<BatchItem<Data>>,
  ): Promise<TaskId<Result>[]> {
    if (!isIterable(items))
      throw optionError('submitBatch(items)', 'an iterable of { data, ...options }', items)
    const batch = new SubmitBatch()
    const add = (item: BatchItem<Data>): void => {
      checkObject(item, 'submitBatch item', '{ data, ...options }')
      batch.add((answer) => {
        const { task, data, ...rest } = item
        // Most have no options, which takes a shorter way.
        const options = Object.keys(rest).length > 0 ? rest : undefined
        if (task === undefined) return this.#submit(data, options, undefined, answer, false, this.#send)
        return this.#submit(task, data, options, answer, false, this.#send)
      })
    }
    let count = 0
    /** @returns what is to be awaited before the next one is made */
    const next = (item: BatchItem<Data>): Promise<unknown> | undefined => {
      add(item)
      if (batch.isRefused || batch.open >= MOST_IN_FLIGHT) return batch.land()
      // A storage that works elsewhere begins with these while the next ones are made.
      return ++count % TURN === 0 ? nextTurn() : undefined
    }
    try {
      if (Symbol.iterator in items) {
        for (const item of items) {
          const wait = next(item instanceof Promise ? ((await item) as BatchItem<Data>) : item)
          if (wait !== undefined) await wait
        }
      } else {
        for await (const item of items) await next(item)
      }
    } catch (error) {
      // What was refused before it is the first.
      await batch.land()
      throw error
    }
    return await batch.land()
  }

  /**
   * Stores a task inside the transaction that you have open on the database handle of the storage: it commits or
   * rolls back with it. SQLite only, after `start()`; `ILLEGAL_STATE` elsewhere.
   */
  submitSync<Input, R>(task: TaskDefinition<Input, R>, data: Input, options?: SubmitOptions): TaskId<R>
  submitSync(data: Data, options?: SubmitOptions): TaskId<Result>
  submitSync(first: unknown, second?: unknown, third?: SubmitOptions): TaskId<never> {
    this.#refuseClosed()
    if (this.#parts === undefined) {
      throw new NeoTaskError('ILLEGAL_STATE', 'submitSync: await pool.start() first')
    }
    const task = this.#create(this.#parts, first, second, third, () => {}, false)
    if (task instanceof Promise) {
      throw optionError(
        'submitSync',
        'a task whose schema validates synchronously',
        (first as TaskDefinition).name,
      )
    }
    return this.#parts.lifecycle.submitSync(task)
  }

  /** Stores a task and waits for its result. Rejects as `submit` and `waitForResult` do. */
  run<Input, R>(task: TaskDefinition<Input, R>, data: Input, options?: SubmitOptions): Promise<R>
  run(data: Data, options?: SubmitOptions): Promise<Result>
  run(first: unknown, second?: unknown, third?: SubmitOptions): Promise<unknown> {
    try {
      return this.#submit(first, second, third, this.#answerRun, true, this.#sendAndWait)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  // ---------------------------------------------------------------------------------------------------- wait

  /**
   * The task's result, from whichever process runs it. Always settles while the pool is open.
   *
   * Rejects: `TASK_FAILED` (with the handler's error as `cause`) `POISON` `TASK_CANCELLED` `TASK_EXPIRED`
   * `DEPENDENCY_FAILED` `TASK_REMOVED` `TASK_NOT_FOUND` `RESULT_EXPIRED` `WAIT_TIMEOUT` `POOL_CLOSED`, or the reason
   * of the signal.
   *
   * @param options.timeout the longest to wait; the task goes on. Default: none
   */
  waitForResult<R = Result>(
    id: TaskId<R>,
    options?: { timeout?: Duration; signal?: AbortSignal },
  ): Promise<R> {
    try {
      checkText(id, 'waitForResult(id)', 256)
      this.#refuseClosed()
      const bounds = options === undefined ? undefined : resolveWait(options)
      const parts = this.#parts
      const result =
        parts === undefined
          ? this.#open().then(({ futures }) => futures.wait(id, bounds))
          : parts.futures.wait(id, bounds)
      return result as Promise<R>
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** The results of several tasks, in order; rejects with the first failure. */
  async waitAll<R = Result>(
    ids: readonly TaskId<R>[],
    options?: { timeout?: Duration; signal?: AbortSignal },
  ): Promise<R[]> {
    if (!Array.isArray(ids)) throw optionError('waitAll(ids)', 'an array of task ids', ids)
    return await Promise.all(ids.map((id) => this.waitForResult<R>(id as TaskId<R>, options)))
  }

  /** The result of a task that succeeded; throws as `waitForResult` would, and `ILLEGAL_STATE` while it has not ended. */
  async getResult<R = Result>(id: TaskId<R>): Promise<R> {
    const record = await this.#record(id)
    if (!isFinal(record.state)) throw stateError('getResult', id, record.state)
    if (record.state !== 'success') throw endError(record as FinalRecord)
    return resultOf(record, this.#options.codec) as R
  }

  // ----------------------------------------------------------------------------------------------------- ask

  /** Everything that is known of a task; `undefined` when nothing is. */
  async getTask(id: string): Promise<TaskInfo | undefined> {
    const record = await this.#find(id)
    return record === undefined ? undefined : taskInfo(record, this.#options.codec)
  }

  /** The task's state; `undefined` when the task is unknown. */
  async getStatus(id: string): Promise<TaskState | undefined> {
    return (await this.#find(id))?.state
  }

  /** One page of the tasks in a state (default `pending`), in the order of running or, when final, newest first. */
  async list(options: ListOptions = {}): Promise<TaskList> {
    checkKeys(options, ['state', 'name', 'group', 'limit', 'cursor'], 'list.')
    const { state = 'pending', name, group, limit = 100, cursor } = options
    if (!TASK_STATES.includes(state))
      throw optionError('list.state', `one of ${TASK_STATES.join(', ')}`, state)
    if (!Number.isInteger(limit) || limit < 1 || limit > 500) {
      throw optionError('list.limit', 'an integer from 1 to 500', limit)
    }
    const query = { state, kind: name, group, limit, cursor }
    const page = await this.#call('list', (storage) => storage.queue.list(this.#ref, query))
    return { tasks: page.tasks.map((record) => taskInfo(record, this.#options.codec)), cursor: page.cursor }
  }

  /** How many tasks of the queue are in each state, from all processes. */
  async counts(): Promise<QueueCounts> {
    return await this.#call('counts', (storage) => storage.queue.counts(this.#ref))
  }

  /** What this pool did, with percentiles; `waiting` is of the whole queue. */
  async getStats(): Promise<PoolStats> {
    const { pending, scheduled, blocked } = await this.counts()
    const outside = {
      waiting: pending + scheduled + blocked,
      running: this.#consumer?.running ?? 0,
      overload: this.#consumer?.overload,
    }
    return this.#stats.snapshot(this.#clock.monotonic(), outside)
  }

  /** Why the task does not run, in words and codes. Rejects `TASK_NOT_FOUND`. */
  async explain(id: string): Promise<Explanation> {
    const [record, counts, nodes] = await Promise.all([this.#record(id), this.counts(), this.getNodes()])
    return explainTask(record, { counts, nodes, now: this.#clock.now() })
  }

  /** The nodes that consume from this queue now, in any process. */
  async getNodes(): Promise<NodeStatus[]> {
    return await this.#call('getNodes', (storage) => listNodes(storage, this.#ref))
  }

  /** Asks the storage, and looks at the session. Never rejects. */
  async health(): Promise<Health> {
    const start = this.#clock.monotonic()
    let error: string | undefined
    try {
      await this.counts()
    } catch (cause) {
      error = (cause as Error).message
    }
    const latency = error === undefined ? this.#clock.monotonic() - start : undefined
    const consumer = this.#consumer
    const session =
      consumer?.hasBegun === true ? { ok: !consumer.fenced, silence: consumer.silence } : undefined
    return {
      ok: error === undefined && session?.ok !== false,
      storage: { ok: error === undefined, latency, error },
      session,
      running: consumer?.running ?? 0,
      prefetched: consumer?.prefetched ?? 0,
    }
  }

  // -------------------------------------------------------------------------------------------------- change

  /**
   * Ends a task that has not ended, wherever it is; a running handler is told by its signal and its result is not
   * accepted. Rejects `TASK_NOT_FOUND`, and `ILLEGAL_STATE` when the task is final.
   */
  async cancel(id: string, reason?: string): Promise<void> {
    if (reason !== undefined && typeof reason !== 'string')
      throw optionError('cancel(id, reason)', 'a text', reason)
    const options = reason === undefined ? {} : { message: reason.slice(0, 1000) }
    // The attempt that runs here, if one does, is told at once; its notice would say the same a little later.
    await this.#change('cancel', id, (storage) => storage.queue.cancel(this.#ref, [id], options))
    this.#stats.cancelled++
    this.#consumer?.cancelled(id)
    this.#parts?.futures.check(id)
    if (this.#events.hears('task.cancelled')) this.#events.emit('task.cancelled', { id, reason })
  }

  /** Gives a failed or cancelled task another life, with no attempts used up. */
  async retry(id: string): Promise<void> {
    await this.#change('retry', id, (storage) => storage.queue.retry(this.#ref, [id]))
  }

  /** Makes a scheduled task ready now. */
  async promote(id: string): Promise<void> {
    await this.#change('promote', id, (storage) => storage.queue.promote(this.#ref, [id]))
  }

  /** Changes the priority of a task that waits. */
  async reprioritize(id: string, priority: number): Promise<void> {
    checkPriority(priority, 'priority')
    await this.#change('reprioritize', id, (storage) => storage.queue.reprioritize(this.#ref, [id], priority))
  }

  /** Removes every trace of a task that does not run; who waits for it gets `TASK_REMOVED`. */
  async remove(id: string): Promise<void> {
    await this.#change('remove', id, (storage) => storage.queue.remove(this.#ref, [id]))
    this.#parts?.futures.check(id)
    if (this.#events.hears('task.removed')) this.#events.emit('task.removed', { id })
  }

  /** Ends a held task as a success with this value. */
  async complete(id: string, value?: unknown): Promise<void> {
    const { codec, maxPayload } = this.#options
    const result = encodePayload(codec, value, 'value', maxPayload)
    await this.#change('complete', id, async (storage) => [
      await storage.queue.complete(this.#ref, id, result, codec.id),
    ])
    this.#parts?.futures.check(id)
  }

  /** Stops the queue for every process; with `local`, this process only. Running tasks go on. */
  async pause(options: { local?: boolean } = {}): Promise<void> {
    await this.#pause(true, options)
  }

  async resume(options: { local?: boolean } = {}): Promise<void> {
    await this.#pause(false, options)
  }

  /** Locks with an owner and a fencing number, in the storage. */
  get locks(): PoolLocks {
    return this.#locks
  }

  // ------------------------------------------------------------------------------------------------- listen

  /**
   * Calls the listener for each event of this process, in order. What it throws never touches the pool; if it
   * returns a promise that rejects it is called again, at most twice. Failures are told to `pool.error`.
   *
   * @returns the function that ends it
   */
  on<Type extends keyof PoolEvents>(type: Type, listener: (event: PoolEvents[Type]) => unknown): () => void {
    return this.#events.on(type, listener)
  }

  /** The same for the next event only. */
  once<Type extends keyof PoolEvents>(
    type: Type,
    listener: (event: PoolEvents[Type]) => unknown,
  ): () => void {
    return this.#events.once(type, listener)
  }

  /**
   * The events of all pools of this queue, in every process that uses the storage, this one included: without `data` and
   * `result`, with the `node` and the time. Best effort: what is said while a connection is down is not heard, and others
   * begin to tell some ms after the call. Holds the process until it ends.
   */
  events<Type extends keyof PoolEvents = keyof PoolEvents>(
    options: EventsOptions<Type> & { scope: 'cluster' },
  ): AsyncIterableIterator<ClusterEvent<Type>, undefined, undefined>
  /**
   * The events of this process from now on, to be read at your own pace: beyond `capacity` the oldest are dropped,
   * and the next one says how many. Ends with the signal, the reader or the pool.
   */
  events(
    options?: EventsOptions<keyof PoolEvents> & { scope?: 'local' | undefined },
  ): AsyncIterableIterator<StreamedEvent<PoolEvents>, undefined, undefined>
  events(
    options: EventsOptions<keyof PoolEvents> & { scope?: 'local' | 'cluster' | undefined } = {},
  ): AsyncIterableIterator<StreamedEvent<PoolEvents> | ClusterEvent, undefined, undefined> {
    const scope = oneOf(options.scope ?? 'local', 'events.scope', ['local', 'cluster'])
    return scope === 'local' ? this.#events.events(options) : this.#cluster.events(options)
  }

  // -------------------------------------------------------------------------------------------------- live

  /** Begins to consume. `submit` and `run` call it unless `autoStart` is false. Safe to call twice. */
  async start(): Promise<void> {
    this.#refuseClosed()
    this.#starting ??= this.#start().catch((error: unknown) => {
      // So that the next call tries again.
      this.#starting = undefined
      throw error
    })
    await this.#starting
  }

  /** Adds a service: it starts after the pool and stops before it. Safe to call twice. */
  async use(service: Service<TaskPool<Data, Result>>): Promise<void> {
    this.#refuseClosed()
    await this.#services.add(service)
  }

  /**
   * Resolves when no task is pending or running in the queue, in any process. Scheduled and blocked tasks are not
   * waited for, unless what runs makes them ready.
   */
  async drain(options: { timeout?: Duration } = {}): Promise<void> {
    const { timeout } = options
    const until =
      timeout === undefined ? Infinity : this.#clock.monotonic() + parseDuration(timeout, 'timeout')
    await this.start()
    for (let pause = 1; ; pause = Math.min(250, pause * 2)) {
      const { pending, running } = await this.counts()
      if (pending + running === 0) return
      if (this.#clock.monotonic() >= until) {
        throw new NeoTaskError('WAIT_TIMEOUT', `drain: ${pending} tasks are pending and ${running} run`)
      }
      await new Promise<void>((resolve) => void this.#clock.after(pause, resolve, { hold: true }))
    }
  }

  /**
   * Claims no more, lets running tasks end (at the timeout they are aborted and given back), gives back what was
   * claimed ahead, stops the services and lets go of the storage. Open waits reject `POOL_CLOSED`. Safe to call
   * twice.
   */
  async close(options: CloseOptions = {}): Promise<CloseReport> {
    checkKeys(options, ['timeout', 'drain'], 'close.')
    const timeout = parseDuration(options.timeout ?? '30s', 'close.timeout')
    this.#closing ??= this.#close(timeout, options.drain ?? false)
    return await this.#closing
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  // ----------------------------------------------------------------------------------------------- inside

  /**
   * Makes the task that a call describes and hands it on, at once where nothing has to be awaited. Throws what is
   * wrong with it.
   */
  #submit<T>(
    first: unknown,
    second: unknown,
    third: SubmitOptions | undefined,
    answer: Submission['answer'],
    watch: boolean,
    send: (task: Submission) => T,
  ): T | Promise<Awaited<T>> {
    this.#refuseClosed()
    const parts = this.#parts
    if (parts !== undefined) {
      const task = this.#create(parts, first, second, third, answer, watch)
      return task instanceof Promise ? (task.then(send) as Promise<Awaited<T>>) : send(task)
    }
    // Sent in the very step in which the pool is open, so that no newer call overtakes.
    const sent = this.#open().then((opened) => {
      const task = this.#create(opened, first, second, third, answer, watch)
      return task instanceof Promise ? task.then(send) : send(task)
    })
    return sent as Promise<Awaited<T>>
  }

  #create(
    { lifecycle, futures }: Parts,
    first: unknown,
    second: unknown,
    third: SubmitOptions | undefined,
    answer: Submission['answer'],
    watch: boolean,
  ): Submission | Promise<Submission> {
    this.#refuseClosed()
    const watcher = watch ? futures.watcher : undefined
    if (!(first instanceof TaskDefinition)) {
      const resolved = resolveSubmit(second as SubmitOptions | undefined, this.#kinds.get(EXECUTOR).retry)
      return lifecycle.create(EXECUTOR, first, resolved, watcher, answer)
    }
    const kind = first as TaskDefinition
    const resolved = resolveSubmit(third, this.#kinds.get(kind.name).retry)
    const data = kind.parse(second as never)
    if (!(data instanceof Promise)) return lifecycle.create(kind.name, data, resolved, watcher, answer)
    return data.then((parsed: unknown) => lifecycle.create(kind.name, parsed, resolved, watcher, answer))
  }

  readonly #send = (task: Submission): void => {
    // It was open when the call was made; a schema may have taken its time since.
    this.#refuseClosed()
    this.#parts?.lifecycle.submit(task)
    this.#consume()
  }

  readonly #sendAndWait = (task: Submission): Promise<unknown> => {
    // Which task it will be is not known yet.
    if (task.debounce !== undefined) return this.#sendThenWait(task)
    // Waited for before it exists, so that no end can be missed.
    const future = (this.#parts as Parts).futures.expect(task.id, task.nonce === undefined)
    if (future === undefined) return this.#sendThenWait(task)
    task.future = future
    this.#send(task)
    return future.promise
  }

  /** Waits once it is stored: somebody waits for this id already, and must not hear of this call if it fails. */
  #sendThenWait(task: Submission): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const answer: Submission['answer'] = ({ id }, _isNew, error) => {
        if (error === undefined) this.waitForResult(id).then(resolve, reject)
        else reject(error)
      }
      this.#send({ ...task, answer })
    })
  }

  // One function for all runs: there may be hundreds of thousands at once.
  readonly #answerRun: Submission['answer'] = (task, isNew, error) => {
    const { futures } = this.#parts as Parts
    if (error !== undefined) {
      futures.fail(task.id, error)
      return
    }
    if (task.future !== undefined) futures.stored(task.future)
    // It may have ended before anybody waited: another task with this id, or one whose parent had failed.
    if (!isNew || task.after !== undefined) futures.check(task.id)
  }

  #open(): Promise<Parts> {
    this.#refuseClosed()
    if (this.#opening === undefined) {
      this.#opening = this.#createParts().catch((error: unknown) => {
        this.#opening = undefined
        throw error
      })
      // Before those who wait for it go on, and not earlier: a newer call must not overtake them.
      this.#opening.then(
        (parts) => {
          this.#parts = parts
          this.#cluster.begin()
        },
        () => {},
      )
    }
    return this.#opening
  }

  async #createParts(): Promise<Parts> {
    const { storage: given, codec, callTimeout } = this.#options
    const storage = typeof given === 'string' ? await openStorage(given) : given
    const info = await withDeadline(storage.open(), callTimeout, this.#clock, 'open')
    const context = { storage, ref: this.#ref, codec, clock: this.#clock, callTimeout }
    const futures = new FutureManager(context)
    const lifecycle = new LifecycleManager({
      storage,
      info,
      ref: this.#ref,
      options: this.#options,
      kinds: this.#kinds,
      futures,
      events: this.#events,
      stats: this.#stats,
    })
    if (this.#state === 'new') this.#state = 'open'
    return { storage, futures, lifecycle }
  }

  async #start(): Promise<void> {
    const { storage, lifecycle, futures } = this.#parts ?? (await this.#open())
    this.#refuseClosed()
    // A start that failed because of a service is tried again, and this pool consumes already.
    if (this.#options.concurrency > 0 && this.#consumer === undefined) {
      const consumer = new Consumers({
        storage,
        ref: this.#ref,
        options: this.#options,
        kinds: this.#kinds,
        lifecycle,
        events: this.#events,
        stats: this.#stats,
        watcher: futures.watcher,
        troubled: (error, what) => this.#trouble(error, what),
      })
      // Known before it begins, so that it can be paused and stopped on the way.
      this.#consumer = consumer
      if (this.#pausedHere) consumer.pauseHere(true)
      try {
        await consumer.start()
      } catch (error) {
        this.#consumer = undefined
        throw error
      }
    }
    // It may have been closed meanwhile; then nothing more begins.
    if (this.#state !== 'closing') await this.#services.startAll()
  }

  /** A submit begins to consume, and does not wait for it. */
  #consume(): void {
    if (this.#starting !== undefined || !this.#options.autoStart || this.#options.concurrency === 0) return
    this.start().catch((error: unknown) => {
      if (this.#state !== 'open') return
      this.#trouble(error, 'start')
      // The task is stored already, and there may be no other submit to begin again.
      this.#startAgain = this.#clock.after(START_AGAIN, () => this.#consume(), { hold: true })
    })
  }

  async #close(timeout: number, drain: boolean): Promise<CloseReport> {
    const report: CloseReport = { finished: 0, returned: 0, discarded: 0 }
    try {
      if (this.#state !== 'new' || this.#opening !== undefined) await this.#letGo(report, timeout, drain)
    } finally {
      this.#events.close()
      this.#cluster.end()
      this.#state = 'closed'
    }
    return report
  }

  async #letGo(report: CloseReport, timeout: number, drain: boolean): Promise<void> {
    // A pool that cannot drain is closed all the same: what is pending stays in the storage.
    if (drain) await this.drain().catch((error: unknown) => this.#trouble(error, 'close'))
    // From here on, in this very turn, nothing new is taken in or started.
    this.#state = 'closing'
    this.#startAgain?.cancel()
    this.#consumer?.stop()
    await this.#starting?.catch(() => {})
    const parts = this.#parts ?? (await this.#opening?.catch(() => undefined))
    // It never opened, so there is nothing to let go of.
    if (parts === undefined) return
    const { storage, futures, lifecycle } = parts
    lifecycle.close()
    await lifecycle.idle()
    if (this.#consumer !== undefined) {
      const { running, returned } = await this.#consumer.finish(timeout)
      report.finished = running
      report.returned = returned
    }
    for (const error of await this.#services.stopAll()) this.#trouble(error, 'close')
    await this.#consumer?.end().catch((error: unknown) => this.#trouble(error, 'close'))
    await futures.close().catch((error: unknown) => this.#trouble(error, 'close'))
    await this.#cluster.close()
    const own = typeof this.#options.storage === 'string'
    if (own && !storage.durable) {
      const { pending, scheduled, blocked } = await storage.queue.counts(this.#ref)
      report.discarded = pending + scheduled + blocked
    }
    if (own) await storage.close()
  }

  #refuseClosed(): void {
    if (this.#state === 'closing' || this.#state === 'closed')
      throw new NeoTaskError('POOL_CLOSED', 'the pool is closed')
  }

  async #call<T>(what: string, call: (storage: Storage) => Promise<T>): Promise<T> {
    const { storage } = this.#parts ?? (await this.#open())
    if (this.#state === 'closed') this.#refuseClosed()
    return await withDeadline(call(storage), this.#options.callTimeout, this.#clock, what)
  }

  async #find(id: string): Promise<TaskRecord | undefined> {
    if (typeof id !== 'string' || id === '') throw optionError('id', 'a task id', id)
    const [record] = await this.#call('get', (storage) => storage.queue.get(this.#ref, [id]))
    return record
  }

  async #record(id: string): Promise<TaskRecord> {
    const record = await this.#find(id)
    if (record === undefined)
      throw new NeoTaskError('TASK_NOT_FOUND', `no task ${id} in this queue`, { taskId: id })
    return record
  }

  async #change(
    operation: Operation,
    id: string,
    call: (storage: Storage) => Promise<readonly OperationOutcome[]>,
  ): Promise<void> {
    if (typeof id !== 'string' || id === '') throw optionError(`${operation}(id)`, 'a task id', id)
    const [outcome] = await this.#call(operation, call)
    if (outcome === 'done') return
    if (outcome === 'unknown' || outcome === undefined) {
      throw new NeoTaskError('TASK_NOT_FOUND', `no task ${id} in this queue`, { taskId: id })
    }
    throw stateError(operation, id, outcome.state, outcome.neededBy)
  }

  async #pause(paused: boolean, { local = false }: { local?: boolean }): Promise<void> {
    if (typeof local !== 'boolean') throw optionError('local', 'true or false', local)
    if (!local) {
      await this.#call(paused ? 'pause' : 'resume', (storage) => storage.queue.pause(this.#ref, paused))
      this.#consumer?.force()
      return
    }
    this.#refuseClosed()
    this.#pausedHere = paused
    this.#consumer?.pauseHere(paused)
  }

  #trouble(error: unknown, during: string): void {
    this.#options.logger.error({ err: error }, `NeoTask: ${during} failed`)
    if (this.#events.hears('pool.error')) this.#events.emit('pool.error', { error, while: during })
  }
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve)
  })
}

function resolveWait(options: { timeout?: Duration; signal?: AbortSignal }): WaitOptions {
  checkKeys(options, ['timeout', 'signal'], 'waitForResult.')
  const { timeout, signal } = options
  return { timeout: timeout === undefined ? undefined : parseDuration(timeout, 'timeout'), signal }
}

function isIterable(value: unknown): boolean {
  const given = value as Partial<Iterable<unknown> & AsyncIterable<unknown>> | null | undefined
  return typeof (given?.[Symbol.iterator] ?? given?.[Symbol.asyncIterator]) === 'function'
}

function stateError(operation: string, id: string, state: TaskState, neededBy?: string): NeoTaskError {
  const why = neededBy === undefined ? `it is ${state}` : `task ${neededBy} still needs it`
  return new NeoTaskError('ILLEGAL_STATE', `${operation}: not possible for task ${id}: ${why}`, {
    taskId: id,
  })
}
