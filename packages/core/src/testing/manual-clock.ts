/**
 * A clock that stands still until a test moves it.
 *
 * Timers fire in the order of their due times (equal ones in the order of their making), each at its exact time,
 * and none fires unless the test advances the clock. Wall time can be stepped apart from monotonic time, as an
 * administrator or NTP does.
 */
import { setImmediate, type Clock, type Timer, type TimerOptions } from '../clock.js'

export interface ManualClockOptions {
  /** Wall time at the start, in ms since 1970. Default: 2026-01-01T00:00:00Z. */
  now?: number
  /** Monotonic time at the start. Default: 0. */
  monotonic?: number
}

interface ManualTimer extends Timer {
  readonly due: number
  readonly action: () => void
  readonly hold: boolean
  readonly poll: boolean
}

export class ManualClock implements Clock {
  /** Wall time is the monotonic time and this: sums of many small steps would not be exact. */
  #offset: number
  #time: number
  /** Sorted, the first due at the end, so that taking it is a pop. */
  readonly #timers: ManualTimer[] = []

  constructor(options: ManualClockOptions = {}) {
    this.#time = options.monotonic ?? 0
    this.#offset = (options.now ?? Date.UTC(2026, 0, 1)) - this.#time
  }

  now(): number {
    return Math.floor(this.#offset + this.#time)
  }

  monotonic(): number {
    return this.#time
  }

  after(delay: number, action: () => void, options?: TimerOptions): Timer {
    if (!Number.isFinite(delay)) throw new RangeError(`a timer needs a finite delay, got ${delay}`)
    const timer: ManualTimer = {
      due: this.#time + Math.max(1, delay),
      action,
      hold: options?.hold ?? false,
      poll: options?.poll ?? false,
      cancel: () => {
        const index = this.#timers.indexOf(timer)
        if (index >= 0) this.#timers.splice(index, 1)
      },
    }
    this.#timers.splice(this.#place(timer.due), 0, timer)
    return timer
  }

  /** How many timers are waiting. */
  get pending(): number {
    return this.#timers.length
  }

  /** How many of them would keep a process alive. */
  get holding(): number {
    return this.#timers.filter((timer) => timer.hold).length
  }

  /** ms until the first timer is due, `undefined` without one. */
  get nextDueIn(): number | undefined {
    const next = this.#timers.at(-1)
    return next && next.due - this.#time
  }

  /** The same for the first timer that does more than look again, as `TimerOptions.poll` says. */
  get nextEventIn(): number | undefined {
    const next = this.#timers.findLast((timer) => !timer.poll)
    return next && next.due - this.#time
  }

  /**
   * Moves time on by `ms`, from timer to timer. What an action throws comes out here, with the clock at that
   * action's time.
   */
  advance(ms: number): void {
    const end = this.#end(ms)
    while (this.#fireNext(end));
    this.#moveTo(end)
  }

  /** The same, and lets promises and immediates run before the first timer and after each. */
  async advanceAsync(ms: number): Promise<void> {
    const end = this.#end(ms)
    await this.settle()
    while (this.#fireNext(end)) await this.settle()
    this.#moveTo(end)
    await this.settle()
  }

  /**
   * Moves time on by `ms` at one stroke, as for a machine that slept: whatever came due meanwhile fires afterwards, in
   * its order, at the new time.
   */
  leap(ms: number): void {
    const end = this.#end(ms)
    this.#moveTo(end)
    while (this.#fireNext(end));
  }

  /** Lets promises and immediates run without moving time. Real input and output is not waited for. */
  async settle(): Promise<void> {
    // An immediate often starts promises that ask for another immediate; five in a row are enough for our layers.
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
  }

  /** Sets wall time on (or, when negative, back) by `ms`; monotonic time and timers stay as they are. */
  step(ms: number): void {
    this.#offset += ms
  }

  #end(ms: number): number {
    if (!(ms >= 0 && ms < Infinity)) throw new RangeError(`time moves on by a finite number of ms, got ${ms}`)
    return this.#time + ms
  }

  #fireNext(end: number): boolean {
    const next = this.#timers.at(-1)
    if (next === undefined || next.due > end) return false
    this.#timers.pop()
    this.#moveTo(next.due)
    next.action()
    return true
  }

  #moveTo(time: number): void {
    // An action may have advanced the clock itself: time never goes back.
    if (time > this.#time) this.#time = time
  }

  /** Where a timer due then belongs: before all that are due earlier or at the same time. */
  #place(due: number): number {
    let low = 0
    let high = this.#timers.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#timers[middle] as ManualTimer).due > due) low = middle + 1
      else high = middle
    }
    return low
  }
}
