/**
 * What a tier over a pool works with, for `@neotask/scheduler` and those that follow: the pool's storage, its place, its
 * time, and the door by which its tasks come in. An application needs none of it.
 *
 * A tier makes its tasks in two steps. {@link Tier.prepare} does all of `submit` but the storing, so whatever is wrong is
 * refused while somebody listens; what it gives may be kept as text for years. {@link Tier.enqueue} stores prepared tasks
 * under ids that the tier composes (`parent~part`, which no caller can choose), so that a step that is repeated by anybody
 * stores nothing twice. They ride in the batches of the pool's submits.
 */
import type { Clock } from './clock.js'
import { asTold, type Codec } from './codec.js'
import { TaskDefinition } from './define-task.js'
import { optionError } from './errors.js'
import { storedOptions } from './kinds.js'
import type { Submission } from './lifecycle-manager.js'
import { resolveSubmit, type SubmitOptions } from './options.js'
import type { PoolEvents } from './pool-events.js'
import type { Dependencies, Encoded, Guard, QueueRef, Storage } from './storage.js'
import { insideOf, TaskPool } from './task-pool.js'

export { checkBoolean, checkInstant, checkInteger, checkKeys, checkObject, oneOf } from './checks.js'
export { checkTaskId, LATEST } from './task.js'
export { TimeWheel } from './time-wheel.js'

/** A task as it will be stored, but for its id. */
export interface PreparedTask {
  /** The name of its definition; empty for the executor. */
  readonly kind: string
  readonly payload: Encoded
  readonly codec: string
  readonly priority: number
  /** Retry, timeout and tags as the pool stores them. */
  readonly options?: string | undefined
}

export interface PlacedTask extends PreparedTask {
  /** Composed with `~`. */
  readonly id: string
  readonly after?: Dependencies | undefined
  /**
   * The claim of a record that it comes from: stored only while that holds, else `LEASE_LOST`. Such a task never waits for
   * room, for its claim does not wait either: it is refused with `QUEUE_FULL`.
   */
  readonly guard?: Guard | undefined
}

/**
 * - `stored`: by this call
 * - `known`: a task with this id was there, or had been within the last 24 h
 * - an error: not stored, or with `uncertain` perhaps
 */
export type Stored = 'stored' | 'known' | Error

export interface Tier {
  readonly ref: QueueRef
  /** Of this process; the storage has its own. */
  readonly clock: Clock
  readonly codec: Codec
  /** A call of the storage, which is opened on demand, within the pool's `callTimeout`. `POOL_CLOSED` when it is too late. */
  readonly call: <T>(what: string, call: (storage: Storage) => Promise<T>) => Promise<T>
  /**
   * Validates, encodes and checks as `submit` does, and stores nothing. Rejects what `submit` rejects.
   *
   * @param task its definition; `undefined` for the executor
   */
  prepare(task: TaskDefinition | undefined, data: unknown, options?: SubmitOptions): Promise<PreparedTask>
  /** What {@link prepare} would make of the options alone, for data that was prepared before. */
  prepareOptions(kind: string, options: SubmitOptions): Pick<PreparedTask, 'priority' | 'options'>
  /** Stores them, each by itself, in the batches of the pool. Never rejects once the storage is open. */
  enqueue(tasks: readonly PlacedTask[]): Promise<Stored[]>
  /** The definition that the pool has by this name. */
  definition(kind: string): TaskDefinition | undefined
  /** Begins to consume, as a submit does. */
  readonly consume: () => void
  /** Whether anybody listens; ask before an event is made. */
  hears(type: keyof PoolEvents): boolean
  emit<Type extends keyof PoolEvents>(type: Type, event: PoolEvents[Type]): void
  /** Something failed outside of any call: told to the logger and to `pool.error`. */
  readonly trouble: (error: unknown, during: string) => void
}

/** One shape for all of them: there may be thousands at once. */
class Placed implements Submission {
  readonly id: string
  readonly kind: string
  readonly payload: Encoded
  readonly codec: string
  readonly priority: number
  readonly options: string | undefined
  readonly after: Dependencies | undefined
  readonly guard: Guard | undefined
  readonly answer: Submission['answer']
  future: undefined
  readonly #codec: Codec

  constructor(task: PlacedTask, codec: Codec, answer: Submission['answer']) {
    this.id = task.id
    this.kind = task.kind
    this.payload = task.payload
    this.codec = task.codec
    this.priority = task.priority
    this.options = task.options
    this.after = task.after
    this.guard = task.guard
    this.answer = answer
    this.#codec = codec
  }

  /** Read only when somebody listens to its creation. */
  get data(): unknown {
    return this.#codec.decode(this.payload)
  }
}

/** @throws ValidationError `OPTION_INVALID` for what is no pool */
export function tierOf(pool: TaskPool): Tier {
  if (!((pool as unknown) instanceof TaskPool)) throw optionError('pool', 'a TaskPool', pool)
  const inside = insideOf(pool)
  const { ref, options, kinds, events } = inside
  return {
    ref,
    clock: options.clock,
    codec: options.codec,
    call: inside.call,
    prepare: async (task, data, more) => {
      const made = task === undefined ? inside.create(data, more, undefined) : inside.create(task, data, more)
      const { kind, payload, codec, priority, options: stored } = await made
      return { kind, payload: asTold(payload), codec, priority, options: stored }
    },
    prepareOptions: (kind, more) => {
      const { retry, priority, tags } = kinds.get(kind)
      const resolved = resolveSubmit(more, retry)
      return { priority: resolved.priority ?? priority, options: storedOptions(resolved, tags) }
    },
    enqueue: async (tasks) => {
      const lifecycle = await inside.lifecycle()
      if (tasks.length === 0) return []
      return await new Promise((resolve) => {
        const stored: Stored[] = []
        let open = tasks.length
        for (const [index, task] of tasks.entries()) {
          const answer: Submission['answer'] = (_task, isNew, error) => {
            stored[index] = error ?? (isNew ? 'stored' : 'known')
            if (--open === 0) resolve(stored)
          }
          lifecycle.submit(new Placed(task, options.codec, answer))
        }
      })
    },
    definition: (kind) => kinds.get(kind).definition,
    consume: inside.consume,
    hears: (type) => events.hears(type),
    emit: (type, event) => events.emit(type, event),
    trouble: inside.trouble,
  }
}
