/**
 * The slots: calls handlers, watches over their timeouts, and reports how each attempt ended, once.
 *
 * An attempt ends when its handler settles, at its timeout, or when the storage took the task away. In the last
 * two cases its slot is free at once and the handler, which has been told by its signal, is no longer listened to.
 * After `lease-lost` and `shutdown` it still is: the task may be ours, and the storage decides.
 */
import type { Clock } from './clock.js'
import { NeoTaskError } from './errors.js'
import { Execution, type ExecutionHost } from './execution.js'
import type { Claimed } from './storage.js'
import type { AbortKind } from './task-context.js'
import type { Kinds } from './kinds.js'
import type { TimeWheel } from './time-wheel.js'

export interface WorkerPoolHost extends ExecutionHost {
  readonly clock: Clock
  readonly wheel: TimeWheel
  readonly kinds: Kinds
  /** A handler is about to be called. */
  started(execution: Execution): void
  succeeded(execution: Execution, value: unknown, now: number): void
  /** Also after an abort; `execution.aborted` says so. */
  failed(execution: Execution, error: unknown, now: number): void
  /** A slot is free. @param now monotonic ms */
  freed(now: number): void
}

/** Listens to the promise of one handler after another, so that no attempt needs functions of its own. */
interface Listener {
  execution: Execution | undefined
  readonly resolved: (value: unknown) => void
  readonly rejected: (error: unknown) => void
}

export class WorkerPool {
  readonly concurrency: number
  readonly #host: WorkerPoolHost
  readonly #running = new Map<string, Execution>()
  /** Attempts whose task was lost and claimed again by this very process while their handlers still run. */
  readonly #displaced = new Set<Execution>()
  /** Those whose last promise has settled. */
  readonly #listeners: Listener[] = []
  #idle: (() => void)[] = []

  constructor(concurrency: number, host: WorkerPoolHost) {
    this.concurrency = concurrency
    this.#host = host
  }

  /** How many attempts run. */
  get active(): number {
    return this.#running.size + this.#displaced.size
  }

  get executions(): readonly Execution[] {
    return [...this.#running.values(), ...this.#displaced]
  }

  /** The attempt that this process makes of the task, if it does. */
  find(id: string): Execution | undefined {
    return this.#running.get(id)
  }

  /** Calls the task's handler. The caller has made sure that a slot is free. @param now monotonic ms */
  run(claimed: Claimed, session: string, marked: boolean, now: number): void {
    const host = this.#host
    const execution = new Execution(host, claimed, session, now)
    execution.marked = marked
    const older = this.#running.get(claimed.id)
    if (older !== undefined) this.#displaced.add(older)
    this.#running.set(claimed.id, execution)
    let value: unknown
    try {
      const { handler, timeout } = host.kinds.resolve(claimed)
      const data = host.kinds.decode(claimed)
      host.started(execution)
      if (timeout !== undefined)
        execution.timer = host.wheel.add(timeout, () => this.#expire(execution, timeout))
      value = handler(data, execution)
      if (isThenable(value)) {
        const listener = this.#listeners.pop() ?? this.#createListener()
        listener.execution = execution
        value.then(listener.resolved, listener.rejected)
        return
      }
    } catch (error) {
      this.#end(execution, false, error)
      return
    }
    this.#end(execution, true, value)
  }

  /**
   * Aborts one attempt, if this process makes it under a token that is not newer.
   *
   * @returns whether it did
   */
  take(id: string, token: number, kind: AbortKind): boolean {
    const execution = this.#running.get(id)
    if (execution === undefined || execution.token > token) return false
    execution.abort(kind)
    this.#leave(execution)
    return true
  }

  /** Aborts every attempt; what its handler returns all the same still counts. */
  abortAll(kind: 'lease-lost' | 'shutdown'): void {
    for (const execution of this.executions) execution.abort(kind)
  }

  /** Ends every attempt without a result: nobody listens to its handler any more. */
  abandonAll(): readonly Execution[] {
    const left = this.executions
    for (const execution of left) this.#leave(execution)
    return left
  }

  /** Resolves when nothing runs. */
  async idle(): Promise<void> {
    if (this.active === 0) return
    await new Promise<void>((resolve) => this.#idle.push(resolve))
  }

  #createListener(): Listener {
    const hear = (success: boolean, value: unknown): void => {
      const execution = listener.execution
      // A promise of another library may settle twice.
      if (execution === undefined) return
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
    const error = new NeoTaskError(
      'TASK_TIMEOUT',
      `the attempt took longer than its timeout of ${timeout} ms`,
    )
    this.#end(execution, false, error)
  }

  #end(execution: Execution, success: boolean, value: unknown): void {
    if (execution.ended) return
    execution.ended = true
    execution.timer?.cancel()
    this.#remove(execution)
    const now = this.#host.clock.monotonic()
    if (success) this.#host.succeeded(execution, value, now)
    else this.#host.failed(execution, value, now)
    this.#host.freed(now)
  }

  #leave(execution: Execution): void {
    execution.ended = true
    execution.timer?.cancel()
    this.#remove(execution)
    this.#host.freed(this.#host.clock.monotonic())
  }

  #remove(execution: Execution): void {
    if (this.#running.get(execution.id) === execution) this.#running.delete(execution.id)
    else this.#displaced.delete(execution)
    if (this.active > 0 || this.#idle.length === 0) return
    const waiting = this.#idle
    this.#idle = []
    for (const resolve of waiting) resolve()
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return (
    value !== null && typeof value === 'object' && typeof (value as { then?: unknown }).then === 'function'
  )
}
