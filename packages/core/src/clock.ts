/**
 * The one place where time comes from.
 *
 * Everything else takes a {@link Clock}, so that tests own time. Raw `Date.now` and `setTimeout` appear in no
 * other file (lint refuses them).
 */
import { setImmediate, setTimeout as startTimer } from 'node:timers'

/**
 * Node's own, also while a test runner has replaced the global one with a fake: the next turn of the event loop is no
 * matter of time, and whoever waits for it would wait for ever.
 */
export { setImmediate }

/** Resolves after `ms` of real time, whatever became of the global timers: how long a test may wait for the outside. */
export function realTime(ms: number): Promise<void> {
  return new Promise((resolve) => void startTimer(resolve, ms))
}

/** A timer that can be taken back. */
export interface Timer {
  /** Forgets the timer; harmless when it has fired. */
  cancel(): void
}

export interface TimerOptions {
  /** Whether the timer keeps the process alive until it fires. Default: false. */
  hold?: boolean
  /**
   * Whether it only looks again at what it would be told anyway, so that a clock which a test moves need not stop for
   * it. Default: false.
   */
  poll?: boolean
}

export interface Clock {
  /** Wall time in ms since 1970. May step. */
  now(): number
  /** Time in ms from an arbitrary start that never goes back, with fractions. */
  monotonic(): number
  /**
   * Calls `action` once, at least `delay` ms later. Any finite delay works, also beyond 2^31 ms; one below 1
   * counts as 1.
   */
  after(delay: number, action: () => void, options?: TimerOptions): Timer
}

/** Node refuses longer timeouts: it would fire them at once. */
const LONGEST = 2 ** 31 - 1

class SystemTimer implements Timer {
  #handle: NodeJS.Timeout | undefined
  readonly #due: number
  readonly #action: () => void
  readonly #hold: boolean

  constructor(delay: number, action: () => void, hold: boolean) {
    this.#due = performance.now() + delay
    this.#action = action
    this.#hold = hold
    this.#arm()
  }

  cancel(): void {
    clearTimeout(this.#handle)
    this.#handle = undefined
  }

  #arm(): void {
    // Rounded up, and looked at again when it fires: libuv may fire up to 1 ms early, we never do.
    const rest = Math.max(1, Math.ceil(this.#due - performance.now()))
    this.#handle = setTimeout(
      () => {
        if (this.#due > performance.now()) this.#arm()
        else this.#action()
      },
      Math.min(rest, LONGEST),
    )
    if (!this.#hold) this.#handle.unref()
  }
}

/** The real clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: (delay, action, options) => new SystemTimer(delay, action, options?.hold ?? false),
}
