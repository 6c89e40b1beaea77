/**
 * What is left of tasks when their records go: ids that stay taken, and the history of the last day. Both are
 * found by time, never by a scan.
 */
import { PriorityQueue } from './priority-queue.js'
import type { HistoryBucket } from './storage.js'

export const DAY_MS = 86_400_000
const MINUTE_MS = 60_000

/** Ids that a caller chose or the library composed stay taken for 24 h after their record is gone. */
export class Tombstones {
  readonly #byId = new Map<string, { readonly nonce: string | undefined; readonly until: number }>()
  readonly #byTime = new PriorityQueue<string>()

  get size(): number {
    return this.#byId.size
  }

  add(id: string, nonce: string | undefined, now: number): void {
    this.#byId.set(id, { nonce, until: now + DAY_MS })
    this.#byTime.push(now + DAY_MS, id)
  }

  /** The tombstone of the id, with the nonce that its task had. */
  get(id: string, now: number): { readonly nonce: string | undefined } | undefined {
    if (this.#byId.size === 0) return undefined
    const found = this.#byId.get(id)
    return found !== undefined && found.until > now ? found : undefined
  }

  /** @returns whether there is more to remove */
  prune(now: number, limit: number): boolean {
    for (let left = limit; left > 0; left--) {
      if ((this.#byTime.peekKey() ?? Infinity) > now) return false
      const id = this.#byTime.pop() as string
      if ((this.#byId.get(id)?.until ?? Infinity) <= now) this.#byId.delete(id)
    }
    return true
  }
}

type Bucket = { -readonly [K in keyof HistoryBucket]: HistoryBucket[K] }
export type Happening = Exclude<keyof HistoryBucket, 'at'>

/** What happened in each minute of the last 24 h that has something to tell. */
export class History {
  readonly #byMinute = new Map<number, Bucket>()
  #current: Bucket | undefined

  count(what: Happening, now: number): void {
    let bucket = this.#current
    if (bucket === undefined || now < bucket.at || now >= bucket.at + MINUTE_MS) bucket = this.#turn(now)
    bucket[what]++
  }

  /** The minutes that overlap `from` to `to`. */
  range(from: number, to: number, now: number): HistoryBucket[] {
    return [...this.#byMinute.values()]
      .filter(({ at }) => at + MINUTE_MS > Math.max(from, now - DAY_MS) && at <= to)
      .map((bucket) => ({ ...bucket }))
      .sort((a, b) => a.at - b.at)
  }

  #turn(now: number): Bucket {
    const at = now - (now % MINUTE_MS)
    // At most 1 440 minutes are looked at, once a minute.
    for (const old of this.#byMinute.keys()) if (old + MINUTE_MS <= now - DAY_MS) this.#byMinute.delete(old)
    let bucket = this.#byMinute.get(at)
    if (bucket === undefined) {
      bucket = { at, enqueued: 0, success: 0, failed: 0, cancelled: 0, skipped: 0, retried: 0 }
      this.#byMinute.set(at, bucket)
    }
    this.#current = bucket
    return bucket
  }
}
