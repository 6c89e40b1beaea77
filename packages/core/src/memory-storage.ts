/**
 * The memory storage: everything of the contract, for as long as the process lives.
 *
 * It is the readable specification of `storage.ts`: what a rule of the contract means is to be seen here. Every
 * method does its whole step before it returns its promise, so steps are atomic by nature. It stores encoded values
 * like every driver, or copies equal to what they would bring back, so nothing works here that fails elsewhere.
 *
 * Several pools may share one storage, and then work like nodes of a cluster.
 */
import { systemClock, type Clock } from './clock.js'
import { optionError } from './errors.js'
import { enqueue, enqueueSingle } from './memory-enqueue.js'
import { MemoryNotices } from './memory-notices.js'
import { MemoryQueue } from './memory-queue.js'
import { MemoryLocks, MemoryRecords } from './memory-records.js'
import { MemorySessions } from './memory-session.js'
import { keep, type Task } from './memory-task.js'
import { countsOf, errorGroups, finalRecordOf, listTasks, recordOf } from './memory-views.js'
import { keepForReading, watch } from './memory-watch.js'
import type {
  CancelOptions,
  Encoded,
  EnqueueOptions,
  EnqueueOutcome,
  ErrorGroup,
  GroupFlags,
  HistoryBucket,
  ListQuery,
  NewTask,
  OperationOutcome,
  QueueCounts,
  QueueFace,
  QueueRef,
  ReclaimReport,
  Retention,
  ReviveOptions,
  Storage,
  StorageInfo,
  TaskPage,
  TaskRecord,
  Unit,
  UpkeepFace,
  WatchOptions,
  WatchOutcome,
} from './storage.js'
import { MAX_PRIORITY, OPERATIONS, isFinal, isStorableId, type Operation } from './task.js'

const FORMAT = 1
const MAX_BATCH = 500

export interface MemoryStorageOptions {
  /** Where its time comes from. Default: the system's clock. */
  readonly clock?: Clock
  /** The newest log lines kept of a task. Default: 100. */
  readonly maxLogs?: number
}

/** Makes a storage in this process's memory. */
export function memoryStorage(options: MemoryStorageOptions = {}): Storage {
  const { maxLogs = 100 } = options
  if (!Number.isInteger(maxLogs) || maxLogs < 0 || maxLogs > 100) {
    throw optionError('maxLogs', 'an integer from 0 to 100', maxLogs)
  }
  return new MemoryStorage(options.clock ?? systemClock, maxLogs)
}

/** Storages of this process. */
let opened = 0

class MemoryStorage implements Storage {
  readonly name = 'memory'
  readonly durable = false
  readonly keepsValues = true
  readonly limits: Storage['limits'] = { enqueue: MAX_BATCH, work: MAX_BATCH }
  readonly queue: MemoryQueues
  readonly session: MemorySessions
  readonly upkeep: MemoryUpkeep
  readonly records: MemoryRecords
  readonly locks: MemoryLocks
  readonly notices: MemoryNotices
  readonly #info: StorageInfo = { format: FORMAT, runId: crypto.randomUUID(), generator: opened++ }

  constructor(clock: Clock, maxLogs: number) {
    const now = (): number => clock.now()
    this.notices = new MemoryNotices()
    this.records = new MemoryRecords(now)
    this.locks = new MemoryLocks(now)
    this.queue = new MemoryQueues(now, this.notices, this.records)
    this.session = new MemorySessions({
      now,
      queueOf: (ref) => this.queue.of(ref),
      records: this.records,
      maxWork: MAX_BATCH,
      maxLogs,
    })
    this.upkeep = new MemoryUpkeep(now, this.queue, this.session)
  }

  async open(): Promise<StorageInfo> {
    return this.#info
  }

  /** What it holds is nobody else's to keep: it goes with the last reference to the storage. */
  async close(): Promise<void> {}
}

/** The queue face: each method is one step over a batch. */
class MemoryQueues implements QueueFace {
  readonly #now: () => number
  readonly #notices: MemoryNotices
  readonly #records: MemoryRecords
  readonly #tenants = new Map<string, Map<string, MemoryQueue>>()
  #last: MemoryQueue | undefined

  constructor(now: () => number, notices: MemoryNotices, records: MemoryRecords) {
    this.#now = now
    this.#notices = notices
    this.#records = records
  }

  of(ref: QueueRef): MemoryQueue {
    // Most speak of one queue again and again.
    const last = this.#last
    if (last !== undefined && last.ref.queue === ref.queue && last.ref.tenant === ref.tenant) return last
    let queues = this.#tenants.get(ref.tenant)
    if (queues === undefined) this.#tenants.set(ref.tenant, (queues = new Map<string, MemoryQueue>()))
    let queue = queues.get(ref.queue)
    if (queue === undefined)
      queues.set(ref.queue, (queue = new MemoryQueue(ref, this.#notices, this.#records)))
    this.#last = queue
    return queue
  }

  async enqueue(ref: QueueRef, units: readonly Unit[], options?: EnqueueOptions): Promise<EnqueueOutcome[]> {
    const now = this.#now()
    const queue = this.of(ref)
    const outcomes = enqueue(queue, units, options, now)
    queue.conclude(now)
    return outcomes
  }

  enqueueNow(ref: QueueRef, task: NewTask, options?: EnqueueOptions): EnqueueOutcome {
    const now = this.#now()
    const queue = this.of(ref)
    const outcome = enqueueSingle(queue, task, options, now)
    queue.conclude(now)
    return outcome
  }

  async get(ref: QueueRef, ids: readonly string[]): Promise<(TaskRecord | undefined)[]> {
    const { tasks } = this.of(ref)
    return ids.map((id) => {
      const task = tasks.get(id)
      return task && recordOf(task)
    })
  }

  async watch(ref: QueueRef, ids: readonly string[], options: WatchOptions): Promise<WatchOutcome[]> {
    const now = this.#now()
    const queue = this.of(ref)
    return ids.map((id) => {
      const task = queue.tasks.get(id)
      if (task === undefined) return queue.tombstones.get(id, now) === undefined ? 'unknown' : 'forgotten'
      if (isFinal(task.where.state)) {
        keepForReading(task, now)
        return finalRecordOf(task)
      }
      watch(queue.notices, task, options.watcher, options.ttl, now)
      return 'open'
    })
  }

  async list(ref: QueueRef, query: ListQuery): Promise<TaskPage> {
    return listTasks(this.of(ref), query)
  }

  async counts(ref: QueueRef): Promise<QueueCounts> {
    return countsOf(this.of(ref))
  }

  async history(ref: QueueRef, range: { from: number; to: number }): Promise<HistoryBucket[]> {
    return this.of(ref).history.range(range.from, range.to, this.#now())
  }

  async errors(ref: QueueRef, options: { limit: number }): Promise<ErrorGroup[]> {
    return errorGroups(this.of(ref), options.limit)
  }

  async cancel(
    ref: QueueRef,
    ids: readonly string[],
    options: CancelOptions = {},
  ): Promise<OperationOutcome[]> {
    return this.#each(ref, 'cancel', ids, (queue, task, now) => {
      queue.end(task, 'cancelled', options.code ?? 'TASK_CANCELLED', now, options.message)
      return 'done'
    })
  }

  async retry(
    ref: QueueRef,
    ids: readonly string[],
    options: ReviveOptions = {},
  ): Promise<OperationOutcome[]> {
    return this.#each(ref, 'retry', ids, (queue, task, now) => {
      if (options.payload !== undefined) {
        task.payload = keep(options.payload.payload)
        task.codec = options.payload.codec
        // What the last attempt saved belongs to the payload that it had.
        if (task.rare !== undefined) task.rare.checkpoint = undefined
      }
      queue.revive(task, now)
      return 'done'
    })
  }

  async promote(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#each(ref, 'promote', ids, (queue, task, now) => {
      queue.due.leave(task)
      queue.promote(task, now)
      return 'done'
    })
  }

  async reprioritize(ref: QueueRef, ids: readonly string[], priority: number): Promise<OperationOutcome[]> {
    if (!(Number.isInteger(priority) && priority >= 0 && priority <= MAX_PRIORITY)) {
      throw optionError('priority', `an integer from 0 to ${MAX_PRIORITY}`, priority)
    }
    return this.#each(ref, 'reprioritize', ids, (queue, task, now) => {
      queue.reprioritize(task, priority, now)
      return 'done'
    })
  }

  async remove(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return this.#each(ref, 'remove', ids, (queue, task, now) => {
      const neededBy = queue.neededBy(task)
      if (neededBy !== undefined) return { state: task.where.state, neededBy }
      queue.forget(task, now)
      return 'done'
    })
  }

  async complete(ref: QueueRef, id: string, result: Encoded, codec: string): Promise<OperationOutcome> {
    const [outcome] = this.#each(ref, 'complete', [id], (queue, task, now) => {
      if (task.rare?.held !== true) return { state: task.where.state }
      task.result = keep(result)
      task.resultCodec = codec
      queue.finish(task, 'success', 0, now)
      return 'done'
    })
    return outcome as OperationOutcome
  }

  async pause(ref: QueueRef, paused: boolean): Promise<void> {
    this.of(ref).pause(paused)
  }

  async setGroup(ref: QueueRef, id: string, flags: GroupFlags): Promise<void> {
    if (!isStorableId(id)) throw optionError('group', 'an id that can be stored', id)
    const now = this.#now()
    const queue = this.of(ref)
    queue.groups.flag(queue.groups.get(id), flags.cancelled === true, flags.paused, now)
    queue.conclude(now)
  }

  /** One step that does the same to each id, where the state permits it. */
  #each(
    ref: QueueRef,
    operation: Operation,
    ids: readonly string[],
    action: (queue: MemoryQueue, task: Task, now: number) => OperationOutcome,
  ): OperationOutcome[] {
    return eachPermitted(this.of(ref), operation, ids, this.#now(), action)
  }
}

function eachPermitted(
  queue: MemoryQueue,
  operation: Operation,
  ids: readonly string[],
  now: number,
  action: (queue: MemoryQueue, task: Task, now: number) => OperationOutcome,
): OperationOutcome[] {
  const permitted = OPERATIONS[operation]
  const outcomes = ids.map((id): OperationOutcome => {
    const task = queue.tasks.get(id)
    if (task === undefined) return 'unknown'
    const { state } = task.where
    return permitted.includes(state) ? action(queue, task, now) : { state }
  })
  queue.conclude(now)
  return outcomes
}

class MemoryUpkeep implements UpkeepFace {
  readonly #now: () => number
  readonly #queues: MemoryQueues
  readonly #sessions: MemorySessions

  constructor(now: () => number, queues: MemoryQueues, sessions: MemorySessions) {
    this.#now = now
    this.#queues = queues
    this.#sessions = sessions
  }

  async reclaim(limit: number): Promise<ReclaimReport> {
    return this.#sessions.reclaim(limit)
  }

  async drain(ref: QueueRef, limit: number): Promise<'done' | 'more'> {
    const now = this.#now()
    const queue = this.#queues.of(ref)
    let done = queue.promoteDue(now, limit)
    done += queue.passDeadlines(now, limit - done)
    done += queue.release(now, limit - done)
    queue.sweep(now, limit - done)
    queue.wake(now)
    return queue.hasBacklog || queue.nextTime() <= now ? 'more' : 'done'
  }

  async prune(ref: QueueRef, retention: Retention, limit: number): Promise<'done' | 'more'> {
    return this.#queues.of(ref).prune(retention, this.#now(), limit) ? 'more' : 'done'
  }

  async revoke(ref: QueueRef, ids: readonly string[]): Promise<OperationOutcome[]> {
    return eachPermitted(this.#queues.of(ref), 'revoke', ids, this.#now(), (queue, task, now) => {
      this.#sessions.revoke(queue, task, now)
      return 'done'
    })
  }

  /** A task's state *is* the structure that holds it, so there is nothing that could disagree. */
  async reconcile(): Promise<{ readonly mended: number }> {
    return { mended: 0 }
  }
}
