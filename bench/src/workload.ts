/** What all subjects are given, and how their deliveries are checked. */

/** The payload of every benchmark: a number and a text of 100 characters. */
export interface Payload {
  i: number
  s: string
}

const TEXT = 'x'.repeat(100)

export const payload = (i: number): Payload => ({ i, s: TEXT })

/** Calls that are on their way at a time, and tasks that run at a time, unless a row says otherwise. */
export const IN_FLIGHT = 100

/** Calls `step` for each number from `from` up to `to`, `width` of them at a time. */
export async function inLanes(
  from: number,
  to: number,
  width: number,
  step: (i: number) => unknown,
): Promise<void> {
  let next = from
  const lane = async (): Promise<void> => {
    while (next < to) await step(next++)
  }
  await Promise.all(Array.from({ length: width }, lane))
}

/**
 * Counts what was delivered; {@link Deliveries.check} throws unless each came exactly once. Time counts from the delivery
 * that ends the warm-up: by then code is compiled and scripts are loaded, for who is fast as for who is slow.
 */
export class Deliveries {
  readonly #seen: Uint8Array
  readonly #complete: Promise<void>
  readonly #warmUp: number
  readonly #count: number
  #delivered = 0
  #start = NaN
  #end = NaN
  #done!: () => void

  /** @param warmUp how many of them are not measured */
  constructor(count: number, warmUp: number = 0) {
    this.#seen = new Uint8Array(count)
    this.#count = count
    this.#warmUp = warmUp
    if (warmUp === 0) this.#start = performance.now()
    this.#complete = new Promise((resolve) => {
      this.#done = resolve
    })
  }

  count(i: number): void {
    this.#seen[i] = (this.#seen[i] ?? 0) + 1
    this.#delivered++
    if (this.#delivered === this.#warmUp) this.#start = performance.now()
    if (this.#delivered < this.#count) return
    this.#end = performance.now()
    this.#done()
  }

  /** Resolves with the last one. */
  get complete(): Promise<void> {
    return this.#complete
  }

  /** Deliveries per second, without the warm-up. */
  get rate(): number {
    return rate(this.#count - this.#warmUp, this.#end - this.#start)
  }

  check(): void {
    const wrong = this.#seen.findIndex((times) => times !== 1)
    if (wrong >= 0) throw new Error(`task ${wrong} was delivered ${this.#seen[wrong]} times`)
  }
}

/** Tasks per second. */
export const rate = (count: number, ms: number): number => (count / ms) * 1000

/** The value below which `share` of them lie. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN
}

/** Bytes of the heap in use, once what is not needed any more is gone. */
export function heap(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms)
  })
}
