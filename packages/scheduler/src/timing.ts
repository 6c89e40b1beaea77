/**
 * The slots of a schedule: instants at which it fires, from an interval or a cron expression, within a window.
 *
 * Pure: every question takes the time as an argument. Slots of an interval are anchor + n × every, so they never drift.
 */
import { LATEST } from '@neotask/core/tier'
import { parseCron, type Cron } from './cron.js'

/** What gives the slots, as it is stored. */
export type Timing =
  | {
      /** ms. */
      readonly every: number
      /** A slot of the interval, ms since 1970. */
      readonly anchor: number
    }
  | { readonly cron: string; readonly zone: string }

/** Bounds of the slots, both inclusive, ms since 1970. */
export interface Window {
  readonly start?: number | undefined
  readonly end?: number | undefined
}

/** Cron slots are whole seconds. */
const SECOND = 1000
/** Bounds of an interval, ms: the longest is a hundred years. */
export const SHORTEST_INTERVAL = 100
export const LONGEST_INTERVAL: number = 36_525 * 86_400_000

export class Slots {
  readonly #cron: Cron | undefined
  readonly #every: number | undefined
  readonly #anchor: number
  readonly #start: number
  readonly #end: number

  /** @throws ValidationError `CRON_INVALID` or `ZONE_INVALID` */
  constructor(timing: Timing, { start = -Infinity, end = Infinity }: Window = {}) {
    this.#start = start
    this.#end = Math.min(end, LATEST)
    if ('every' in timing) {
      this.#every = timing.every
      this.#anchor = timing.anchor
    } else {
      this.#cron = parseCron(timing.cron, timing.zone)
      this.#anchor = 0
    }
  }

  /** The first slot after this instant, `undefined` when there is none. */
  next(after: number): number | undefined {
    const from = Math.max(after, this.#start - 1)
    const slot =
      this.#every === undefined ? this.#cron?.next(from) : this.#intervalUpTo(from, this.#every) + this.#every
    return slot === undefined || slot > this.#end ? undefined : slot
  }

  /** The next slots after this instant, at most so many. */
  preview(after: number, count: number): number[] {
    const slots: number[] = []
    for (let slot = this.next(after); slot !== undefined && slots.length < count; slot = this.next(slot)) {
      slots.push(slot)
    }
    return slots
  }

  /**
   * The last slot after `after` that is not later than `upTo`, `undefined` when there is none. Of an expression by doubling
   * and halving, for nothing calculates backwards: some dozen questions, however far apart the two are.
   */
  last(after: number, upTo: number): number | undefined {
    if (this.#every !== undefined) {
      const slot = this.#intervalUpTo(Math.min(upTo, this.#end), this.#every)
      return slot > after && slot >= this.#start ? slot : undefined
    }
    const within = (from: number): number | undefined => {
      const slot = this.next(from)
      return slot !== undefined && slot <= upTo ? slot : undefined
    }
    let found: number | undefined
    // Backwards, further each time, to where one lies ahead.
    for (let back = SECOND; found === undefined; back *= 4) {
      const from = Math.max(after, upTo - back)
      found = within(from)
      if (found === undefined && from === after) return undefined
    }
    // Forwards: behind `found` there may be more; behind `none` there are none.
    let none = upTo
    while (found < none) {
      const following = within(found)
      if (following === undefined) return found
      const gap = following - found
      found = following
      // Half of the way, unless the next one is nearer than that is worth.
      const middle = found + Math.floor((none - found) / 2)
      if (middle - found <= gap) continue
      const beyond = within(middle)
      if (beyond === undefined) none = middle
      else found = beyond
    }
    return found
  }

  /** The last slot of the interval up to and with this instant. */
  #intervalUpTo(instant: number, every: number): number {
    return this.#anchor + Math.floor((instant - this.#anchor) / every) * every
  }

  /**
   * The newest slots after `after` and not later than `upTo`, in order, at most `most` of them.
   */
  newest(after: number, upTo: number, most: number): number[] {
    const slots: number[] = []
    for (let end = upTo; slots.length < most;) {
      const slot = this.last(after, end)
      if (slot === undefined) break
      slots.push(slot)
      end = slot - 1
    }
    return slots.reverse()
  }
}

/**
 * ms that a slot is put off: the same for the same slot, whoever asks, and spread evenly over `[0, jitter)`.
 *
 * FNV-1a (Fowler, Noll and Vo) with the last steps of MurmurHash3 (Appleby), since ids of neighbours differ in their last
 * characters only.
 */
export function jitterOf(id: string, slot: number, jitter: number): number {
  if (jitter === 0) return 0
  let hash = 0x811c9dc5
  const text = `${id}~${slot}`
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return Math.floor((((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32) * jitter)
}
