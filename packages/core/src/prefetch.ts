/**
 * How many tasks a node claims ahead of its free slots, and when.
 *
 * Claiming ahead hides the storage's latency, and is worth more than any other single thing; too much of it
 * keeps tasks from nodes that are idle. So the amount is measured in time: about 20 ms of this node's work.
 */
import { checkInteger, checkKeys, checkObject, oneOf } from './checks.js'
import { parseDuration, type Duration } from './duration.js'

/** When to claim: once the buffer is half empty, at every interval, or on whichever comes first. */
export type PrefetchStrategy = 'size' | 'time' | 'hybrid'

/**
 * - `'auto'`: by the measured run time, from 20 to 500 tasks, with the hybrid strategy
 * - a number: that many, with the hybrid strategy; 0 claims only for free slots
 * - an object: `size` as above, `strategy` (default `'hybrid'`), `interval` (default `'100ms'`)
 */
export type PrefetchOptions =
  'auto' | number | { size?: 'auto' | number; strategy?: PrefetchStrategy; interval?: Duration }

export interface PrefetchPolicy {
  readonly size: 'auto' | number
  readonly strategy: PrefetchStrategy
  /** ms. */
  readonly interval: number
}

export function resolvePrefetch(options: PrefetchOptions): PrefetchPolicy {
  if (options === 'auto' || typeof options === 'number') return resolvePrefetch({ size: options })
  const expected = "'auto', a number, or { size, strategy, interval }"
  checkObject(options, 'prefetch', expected)
  checkKeys(options, ['size', 'strategy', 'interval'], 'prefetch.')
  const { size = 'auto', interval = '100ms' } = options
  const strategy = oneOf(options.strategy ?? 'hybrid', 'prefetch.strategy', ['size', 'time', 'hybrid'])
  if (size !== 'auto') checkInteger(size, 'prefetch', 0, 10_000)
  return { size, strategy, interval: parseDuration(interval, 'prefetch.interval', { min: 1, max: 60_000 }) }
}

/** What `auto` holds ready: this much work, within these bounds. */
const AHEAD_MS = 20
const SMALLEST = 20
const LARGEST = 500
/** A task that runs this long gains nothing from being claimed ahead, and others could run it now. */
const SLOW_MS = 1000
/** The weight of the newest run time in the moving mean. */
const WEIGHT = 1 / 32

/** Turns run times into the number to claim ahead, and the buffer's level and age into the moment to do so. */
export class Prefetch {
  readonly #policy: PrefetchPolicy
  readonly #concurrency: number
  /** ms; `undefined` before the first end. */
  #meanRun: number | undefined
  #stalled = false
  #lastClaim = -Infinity

  constructor(policy: PrefetchPolicy, concurrency: number) {
    this.#policy = policy
    this.#concurrency = concurrency
  }

  /** A handler ended after `ms`. */
  ran(ms: number): void {
    const mean = this.#meanRun ?? ms
    this.#meanRun = mean + (ms - mean) * WEIGHT
    if (ms < SLOW_MS) this.#stalled = false
  }

  /** Tasks waited in the buffer for as long as a slow task runs: nothing is claimed ahead until slots turn over again. */
  stall(): void {
    this.#stalled = true
  }

  /** How long a buffered task may wait for a slot before the buffer is given back, in ms. */
  readonly patience: number = SLOW_MS

  /** How many tasks should be held beyond those that run. */
  get target(): number {
    const mean = this.#meanRun
    if (this.#stalled || (mean !== undefined && mean >= SLOW_MS)) return 0
    if (this.#policy.size !== 'auto') return this.#policy.size
    if (mean === undefined) return SMALLEST
    const work = Math.round((AHEAD_MS * this.#concurrency) / Math.max(mean, 0.001))
    return Math.min(LARGEST, Math.max(SMALLEST, work))
  }

  /**
   * How many tasks to ask for now.
   *
   * @param free slots without a task
   * @param buffered tasks claimed and not started
   * @param now monotonic ms
   */
  demand(free: number, buffered: number, now: number): number {
    const target = this.target
    const missing = free + target - buffered
    if (missing <= 0) return 0
    // A free slot with nothing to put in it never waits for a strategy.
    if (free > buffered) return missing
    const { strategy, interval } = this.#policy
    const low = strategy !== 'time' && buffered <= target / 2
    const due = strategy !== 'size' && now - this.#lastClaim >= interval
    return low || due ? missing : 0
  }

  /** A claim was sent at `now`. */
  claimed(now: number): void {
    this.#lastClaim = now
  }
}
