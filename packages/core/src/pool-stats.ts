/**
 * What this process did: counters, percentiles from histograms of fixed size, and the rate of the last minute. Its
 * memory does not grow, whatever runs through it.
 */
import { Histogram } from './histogram.js'
import type { Overload } from './load-limit.js'

/** Percentiles of a time, in ms. */
export interface LatencySummary {
  count: number
  mean: number
  min: number
  max: number
  p50: number
  p90: number
  p95: number
  p99: number
}

export interface PoolStats {
  /** Tasks that this pool submitted. */
  submitted: number
  /** Attempts of this pool that ended in success. */
  completed: number
  /** Tasks that ended `failed` here, after their last attempt. */
  failed: number
  /** Tasks that this pool cancelled. */
  cancelled: number
  /** Attempts that failed here and will be repeated. */
  retried: number
  /** In the storage, from all processes: pending, scheduled and blocked. */
  waiting: number
  /** Attempts that run in this process. */
  running: number
  /** What this node has too much of, while it is over its `loadLimit`. */
  overload: Overload | undefined
  /** completed / (completed + failed), from 0 to 1; 1 before the first. */
  successRate: number
  /** Tasks per second that ended in this process, over the last minute or the pool's life if that is shorter. */
  throughput: number
  latency: {
    /** From ready to claimed, by the storage's clock. */
    wait: LatencySummary
    /** From the handler's call to its end. */
    run: LatencySummary
  }
}

const WINDOW = 60

export class StatsRecorder {
  submitted = 0
  completed = 0
  failed = 0
  cancelled = 0
  retried = 0
  readonly #wait = new Histogram()
  readonly #run = new Histogram()
  /** Ends in each of the last 60 s, by second modulo 60. */
  readonly #seconds = new Uint32Array(WINDOW)
  #second: number
  readonly #since: number

  /** @param now monotonic ms */
  constructor(now: number) {
    this.#since = now
    this.#second = Math.floor(now / 1000)
  }

  waited(ms: number): void {
    this.#wait.record(ms)
  }

  /** An attempt ended at `now` (monotonic) after `ms`. */
  ran(ms: number, now: number): void {
    this.#run.record(ms)
    this.#turnTo(now)
    const slot = this.#second % WINDOW
    this.#seconds[slot] = (this.#seconds[slot] ?? 0) + 1
  }

  snapshot(now: number, outside: Pick<PoolStats, 'waiting' | 'running' | 'overload'>): PoolStats {
    const { submitted, completed, failed, cancelled, retried } = this
    const ended = completed + failed
    return {
      submitted,
      completed,
      failed,
      cancelled,
      retried,
      ...outside,
      successRate: ended === 0 ? 1 : completed / ended,
      throughput: this.#throughput(now),
      latency: { wait: this.#wait.toJSON(), run: this.#run.toJSON() },
    }
  }

  #throughput(now: number): number {
    this.#turnTo(now)
    let ends = 0
    for (const count of this.#seconds) ends += count
    return ends / Math.min(WINDOW, Math.max(1, (now - this.#since) / 1000))
  }

  /** Clears the seconds that passed since the last end. */
  #turnTo(now: number): void {
    const second = Math.floor(now / 1000)
    if (second === this.#second) return
    const passed = Math.min(WINDOW, second - this.#second)
    for (let i = 1; i <= passed; i++) this.#seconds[(this.#second + i) % WINDOW] = 0
    this.#second = second
  }
}
