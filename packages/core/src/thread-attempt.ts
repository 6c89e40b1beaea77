/**
 * One attempt whose handler runs in a thread: turns what the thread tells into what the pool knows of any attempt.
 * However it ends, the pool hears of one end, and of the free slot when the handler is at work no more.
 */
import { asTold, jsonCodec } from './codec.js'
import { MOST_LINES, type Execution } from './execution.js'
import type { Encoded } from './storage.js'
import type { AbortKind } from './task-context.js'
import { transferOf, v8Codec } from './thread-protocol.js'
import { timeoutError, type WorkerPoolHost } from './worker-pool.js'
import type { Attempt, WorkerThread } from './worker-thread.js'

export interface ThreadAttemptContext {
  readonly host: WorkerPoolHost
  /** It was told to end, and its handler may be at work still. */
  ending(attempt: ThreadAttempt): void
  /** The end of the attempt is decided, and its handler may be at work still. */
  decided(attempt: ThreadAttempt): void
  /** Its handler is at work no more. */
  ended(attempt: ThreadAttempt, now: number): void
  /** It was not begun. {@link freed} follows, once all that come back together are here. */
  returned(attempt: ThreadAttempt): void
  /** A slot is free. */
  freed(now: number): void
}

export class ThreadAttempt implements Attempt {
  readonly execution: Execution
  /** The URL of its handler. */
  readonly file: string
  /** Its place in line. */
  readonly arrival: number
  readonly #context: ThreadAttemptContext
  readonly #timeout: number | undefined
  #thread: WorkerThread | undefined
  /** What it fails with, whatever its handler does. */
  #verdict: unknown
  #reachedAt: number | undefined
  #hasStarted = false

  /** @param timeout ms from the call of the handler */
  constructor(
    context: ThreadAttemptContext,
    execution: Execution,
    file: string,
    timeout: number | undefined,
    arrival: number,
  ) {
    this.#context = context
    this.execution = execution
    this.file = file
    this.#timeout = timeout
    this.arrival = arrival
  }

  get thread(): WorkerThread | undefined {
    return this.#thread
  }

  /** Monotonic ms since which its thread had nothing else to do; `undefined` unless its handler was called. */
  get busySince(): number | undefined {
    return this.#hasStarted ? (this.#reachedAt ?? this.execution.startedAt) : undefined
  }

  /** Throws when its data cannot be read. @param mayWait see {@link WorkerThread.run} */
  run(thread: WorkerThread, mayWait: boolean): void {
    const { claimed } = this.execution
    const { codec, kinds } = this.#context.host
    kinds.checkCodec(claimed)
    const wire = this.#isJson ? asTold : (encoded: Encoded) => v8Codec.encode(codec.decode(encoded))
    const { id, kind, token, attempts, parents, timedOut } = claimed
    const payload = wire(claimed.payload)
    const state = claimed.checkpoint === undefined ? undefined : wire(claimed.checkpoint)
    this.#thread = thread
    thread.run(
      this,
      [thread.nextTicket, this.file, id, kind, token, attempts, payload, state, parents, timedOut],
      this.#isJson ? undefined : [...transferOf(payload), ...transferOf(state)],
      mayWait,
    )
  }

  /** @returns whether it was not told before */
  tell(kind: AbortKind): boolean {
    if (this.execution.aborted !== undefined) return false
    this.execution.abort(kind)
    this.#context.ending(this)
    return true
  }

  /** Tells the handler in its thread, and sees to it that it ends. One that is held ends here. */
  stop(kind: AbortKind): void {
    if (this.#thread === undefined) this.refused()
    else this.#thread.abort(this, kind)
  }

  /** Nobody wants to know its end any more. */
  leave(): void {
    this.execution.ended = true
    this.execution.timer?.cancel()
    this.#context.decided(this)
  }

  reached(): void {
    this.#reachedAt = this.#context.host.clock.monotonic()
  }

  started(): void {
    const { execution } = this
    if (execution.ended || execution.aborted !== undefined) return
    const { host } = this.#context
    execution.startedAt = host.clock.monotonic()
    host.started(execution)
    this.#hasStarted = true
    const timeout = this.#timeout
    if (timeout === undefined) return
    execution.timer = host.wheel.add(timeout, () => {
      if (execution.ended) return
      this.#verdict ??= timeoutError(timeout)
      if (this.tell('timeout')) this.stop('timeout')
    })
  }

  reported(progress: Encoded | undefined, lines: readonly string[] | undefined): void {
    const { execution } = this
    if (execution.ended) return
    if (lines !== undefined) execution.lines = [...(execution.lines ?? []), ...lines].slice(-MOST_LINES)
    if (progress === undefined || this.#isJson) {
      execution.progressed = progress ?? execution.progressed
      this.#context.host.report(execution, progress !== undefined)
      return
    }
    try {
      execution.progress(v8Codec.decode(progress))
    } catch (error) {
      // Where handlers are called directly, `ctx.progress` would have thrown this.
      this.#verdict ??= error
      this.#thread?.end()
    }
  }

  async checkpoint(state: Encoded): Promise<void> {
    if (this.#isJson) await this.#context.host.checkpoint(this.execution, state)
    else await this.execution.checkpoint(v8Codec.decode(state))
  }

  succeeded(result: Encoded): void {
    const { execution } = this
    const { host } = this.#context
    this.#free((now) => {
      if (this.#isJson) host.succeeded(execution, undefined, now, result)
      else host.succeeded(execution, v8Codec.decode(result), now)
    })
  }

  failed(error: unknown): void {
    this.#free((now) => this.#context.host.failed(this.execution, error, now))
  }

  refused(): void {
    const { execution } = this
    this.#end((now) => {
      if (execution.aborted === undefined) this.#context.returned(this)
      else this.#context.host.failed(execution, execution.signal.reason, now)
    })
  }

  stuck(error: unknown): void {
    if (this.execution.ended) return
    this.leave()
    const { host } = this.#context
    host.failed(this.execution, this.#verdict ?? error, host.clock.monotonic())
  }

  #free(tell: (now: number) => void): void {
    this.#context.freed(this.#end(tell))
  }

  /** @returns monotonic ms */
  #end(tell: (now: number) => void): number {
    const { execution } = this
    const { host } = this.#context
    const now = host.clock.monotonic()
    const isTold = execution.ended
    execution.ended = true
    execution.timer?.cancel()
    if (execution.startedAt < 0) execution.startedAt = now
    this.#context.ended(this, now)
    if (!isTold) {
      if (this.#verdict === undefined) tell(now)
      else host.failed(execution, this.#verdict, now)
    }
    return now
  }

  /** Whether what the storage holds goes to the thread and back as it is. */
  get #isJson(): boolean {
    return this.#context.host.codec === jsonCodec
  }
}
