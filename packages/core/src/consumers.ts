/**
 * All that a pool consumes with: one {@link Consumer} for the handlers that are functions, one for those that are
 * files and run in threads. Each has slots and a session of its own, so neither waits for what the other runs, and
 * the storage gives each only the kinds that it serves. A pool of one sort has one.
 */
import { Consumer, type ConsumerContext, type ConsumerPart, type Stopped } from './consumer.js'
import type { Overload } from './load-limit.js'
import { WorkerPool } from './worker-pool.js'

export class Consumers {
  readonly #context: ConsumerContext
  #consumers: Consumer[] = []
  #hasBegun = false
  #pausedHere = false
  #stopped = false

  constructor(context: ConsumerContext) {
    this.#context = context
  }

  /** Whether they consume, or have done. */
  get hasBegun(): boolean {
    return this.#hasBegun
  }

  get running(): number {
    return this.#sum(({ running }) => running)
  }

  get prefetched(): number {
    return this.#sum(({ prefetched }) => prefetched)
  }

  get fenced(): boolean {
    return this.#consumers.some(({ fenced }) => fenced)
  }

  get silence(): number {
    return Math.max(...this.#consumers.map(({ silence }) => silence))
  }

  /** By how much this node is over its load limit. All of them see the same. */
  get overload(): Overload | undefined {
    return this.#consumers[0]?.overload
  }

  /** None claims before all have a session. Rejects when one of them gets none. */
  async start(): Promise<void> {
    const { kinds, options } = this.#context
    const { concurrency, threads, logger } = options
    const parts: ConsumerPart[] = []
    const { servedHere, servedInThreads } = kinds
    if (servedHere.length > 0) {
      parts.push({
        kinds: servedHere,
        concurrency,
        speaksOfLoad: true,
        workers: (host) => new WorkerPool(concurrency, host),
      })
    }
    if (servedInThreads.length > 0) {
      // Only who has handlers in files pays for threads.
      const { ThreadPool } = await import('./thread-pool.js')
      const size = Math.min(concurrency, threads.size)
      parts.push({
        kinds: servedInThreads,
        concurrency: size,
        speaksOfLoad: parts.length === 0,
        workers: (host) => new ThreadPool(size, host, threads, logger),
      })
    }
    this.#consumers = parts.map((part) => new Consumer(this.#context, part))
    // What was asked for while there were none.
    if (this.#pausedHere) this.pauseHere(true)
    if (this.#stopped) this.stop()
    const opened = await Promise.allSettled(this.#consumers.map((consumer) => consumer.open()))
    const failed = opened.find((each) => each.status === 'rejected')
    if (failed !== undefined) {
      await this.end().catch(() => {})
      throw failed.reason
    }
    this.#hasBegun = true
    for (const consumer of this.#consumers) consumer.begin()
  }

  /** This process cancelled the task. */
  cancelled(id: string): void {
    for (const consumer of this.#consumers) consumer.cancelled(id)
  }

  /** Asks the storage now: something changed by this process's own doing. */
  force(): void {
    for (const consumer of this.#consumers) consumer.force()
  }

  pauseHere(paused: boolean): void {
    this.#pausedHere = paused
    for (const consumer of this.#consumers) consumer.pauseHere(paused)
  }

  /** Claims and starts nothing more, and gives back what has not started. Safe to call twice. */
  stop(): void {
    this.#stopped = true
    for (const consumer of this.#consumers) consumer.stop()
  }

  /** Stops, lets what runs end, and gives back what does not. */
  async finish(timeout: number): Promise<Stopped> {
    const stopped = await Promise.all(this.#consumers.map((consumer) => consumer.finish(timeout)))
    return {
      running: stopped.reduce((sum, { running }) => sum + running, 0),
      returned: stopped.reduce((sum, { returned }) => sum + returned, 0),
    }
  }

  /** Ends the sessions; whatever they still hold goes back. */
  async end(): Promise<void> {
    await Promise.all(this.#consumers.map((consumer) => consumer.end()))
  }

  #sum(of: (consumer: Consumer) => number): number {
    return this.#consumers.reduce((sum, consumer) => sum + of(consumer), 0)
  }
}
