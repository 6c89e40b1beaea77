/**
 * The slots: calls handlers, watches over their timeouts, and reports how each attempt ended, once.
 *
 * An attempt ends when its handler settles, at its timeout, or when the storage took the task away. In the last
 * two cases its slot is free at once and the handler, which has been told by its signal, is no longer listened to.
 * After `lease-lost` and `shutdown` it still is: the task may be ours, and the storage decides.
 */
import type { Clock } from './clock.js'
import type { Handler } from './define-task.js'
import { NeoTaskError } from './errors.js'
import { Execution, type ExecutionHost } from './execution.js'
import { Slots } from './slots.js'
import type { Claimed, Encoded } from './storage.js'
import type { AbortKind } from './task-context.js'
import type { Kinds } from './kinds.js'
import { isThenable } from './thenable.js'
import type { TimeWheel } from './time-wheel.js'

export interface WorkerPoolHost extends ExecutionHost {
  readonly clock: Clock
  readonly wheel: TimeWheel
  readonly kinds: Kinds
  /** A handler is about to be called. */
  started(execution: Execution): void
  /** @param encoded the result, when a thread has encoded it already; `value` is not known then */
  succeeded(execution: Execution, value: unknown, now: number, encoded?: Encoded): void
  /** Also after an abort; `execution.aborted` says so. */
  failed(execution: Execution, error: unknown, now: number): void
  /** It was not begun, and its task is to wait in its old place. {@link freed} follows. @param arrival of its `run` */
  returned(execution: Execution, arrival: number): void
  /** A slot is free. @param now monotonic ms */
  freed(now: number): void
}

/**
 * Listens to the promise of one handler after another, so that no attempt needs functions of its own. Each must settle
 * once and no more, or it would speak for the next one.
 */
interface Listener {
  execution: Execution | undefined
  readonly resolved: (value: unknown) => void
  readonly rejected: (error: unknown) => void
}

/** Whatever calls handlers: here, or in threads (`thread-pool.ts`). */
export interface Workers {
  /** How many handlers are at work. */
  readonly active: number
  /** How many attempts may be begun now. */
  readonly free: number
  /** The attempts whose end is not decided. */
  readonly executions: readonly Execution[]
  /** The attempt that this process makes of the task, if it does. */
  find(id: string): Execution | undefined
  /**
   * Calls the task's handler. The caller has made sure that a slot is free.
   *
   * @param now monotonic ms
   * @param arrival its place in line, which `returned` tells
   */
  run(claimed: Claimed, session: string, marked: boolean, now: number, arrival: number): void
  /**
   * Aborts one attempt, if this process makes it under a token that is not newer.
   *
   * @returns whether it did
   */
  take(id: string, token: number, kind: AbortKind): boolean
  /** Aborts every attempt; what its handler returns all the same still counts. */
  abortAll(kind: 'lease-lost' | 'shutdown'): void
  /** Ends every attempt without a result: nobody listens to its handler any more. */
  abandonAll(): readonly Execution[]
  /** Lets go of what it took and has not begun. @returns those attempts, which never were */
  giveBack(): readonly Execution[]
  /** Resolves when no slot is taken. */
  idle(): Promise<void>
  /** Lets go of what it keeps to call handlers with. Nothing runs any more. */
  close(): Promise<void>
}

export class WorkerPool implements Workers {
  readonly #concurrency: number
  readonly #host: WorkerPoolHost
  readonly #slots = new Slots()
  /** Those whose last promise has settled. */
  readonly #listeners: Listener[] = []

  constructor(concurrency: number, host: WorkerPoolHost) {
    this.#concurrency = concurrency
    this.#host = host
  }

  get active(): number {
    return this.#slots.active
  }

  get free(): number {
    return this.#concurrency - this.#slots.active
  }

  get executions(): readonly Execution[] {
    return this.#slots.executions
  }

  find(id: string): Execution | undefined {
    return this.#slots.find(id)
  }

  run(claimed: Claimed, session: string, marked: boolean, now: number): void {
    const host = this.#host
    const execution = new Execution(host, claimed, session, now)
    execution.marked = marked
    this.#slots.add(execution)
    let value: unknown
    try {
      const { handler, timeout } = host.kinds.resolve(claimed)
      const data = host.kinds.decode(claimed)
      host.started(execution)
      if (timeout !== undefined)
        execution.timer = host.wheel.add(timeout, () => this.#expire(execution, timeout))
      // Those in files have a session of their own, whose tasks run in threads.
      value = (handler as Handler<never>)(data, execution)
      if (isThenable(value)) {
        const listener = this.#listeners.pop() ?? this.#createListener()
        listener.execution = execution
        asPromise(value).then(listener.resolved, listener.rejected)
        return
      }
    } catch (error) {
      this.#end(execution, false, error)
      return
    }
    this.#end(execution, true, value)
  }

  take(id: string, token: number, kind: AbortKind): boolean {
    const execution = this.#slots.find(id)
    if (execution === undefined || execution.token > token) return false
    execution.abort(kind)
    this.#leave(execution)
    return true
  }

  abortAll(kind: 'lease-lost' | 'shutdown'): void {
    for (const execution of this.executions) execution.abort(kind)
  }

  abandonAll(): readonly Execution[] {
    const left = this.executions
    for (const execution of left) this.#leave(execution)
    return left
  }

  giveBack(): readonly Execution[] {
    return []
  }

  async idle(): Promise<void> {
    await this.#slots.idle()
  }

  async close(): Promise<void> {}

  #createListener(): Listener {
    const hear = (success: boolean, value: unknown): void => {
      const execution = listener.execution as Execution
      listener.execution = undefined
      this.#listeners.push(listener)
      this.#end(execution, success, value)
    }
    const listener: Listener = {
      execution: undefined,
      resolved: (value) => hear(true, value),
      rejected: (error) => hear(false, error),
    }
    return listener
  }

  #expire(execution: Execution, timeout: number): void {
    if (execution.ended) return
    execution.abort('timeout')
    this.#end(execution, false, timeoutError(timeout))
  }

  #end(execution: Execution, success: boolean, value: unknown): void {
    if (execution.ended) return
    execution.ended = true
    execution.timer?.cancel()
    this.#slots.remove(execution)
    const now = this.#host.clock.monotonic()
    if (success) this.#host.succeeded(execution, value, now)
    else this.#host.failed(execution, value, now)
    this.#host.freed(now)
  }

  #leave(execution: Execution): void {
    execution.ended = true
    execution.timer?.cancel()
    this.#slots.remove(execution)
    this.#host.freed(this.#host.clock.monotonic())
  }
}

/** How an attempt fails at its timeout, in ms. */
export function timeoutError(timeout: number): NeoTaskError {
  return new NeoTaskError('TASK_TIMEOUT', `the attempt took longer than its timeout of ${timeout} ms`)
}

/** One that settles once: what another library calls a promise may do so twice. */
function asPromise(value: PromiseLike<unknown>): Promise<unknown> {
  return value instanceof Promise && value.then === Promise.prototype.then
    ? value
    : new Promise((resolve) => resolve(value))
}
