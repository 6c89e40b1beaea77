/** Locks for the user's own purposes, in the storage that the pool uses. */
import { randomBytes } from 'node:crypto'
import { checkText } from './checks.js'
import type { Clock } from './clock.js'
import { withDeadline } from './deadline.js'
import { parseDuration, type Duration } from './duration.js'
import type { Storage } from './storage.js'

export interface Lock {
  readonly key: string
  /**
   * Grows with each holder of the key: hand it to the system that the lock protects, so that it can refuse a
   * holder who was late.
   */
  readonly fence: number
  /** Holds it for `ttl` from now. @returns false when it was lost meanwhile */
  extend(ttl: Duration): Promise<boolean>
  /** @returns false when it was lost meanwhile */
  release(): Promise<boolean>
}

export interface PoolLocksContext {
  readonly tenant: string
  readonly storage: () => Promise<Storage>
  readonly clock: Clock
  readonly callTimeout: number
}

export class PoolLocks {
  readonly #context: PoolLocksContext
  #owners = 0
  readonly #owner = randomBytes(9).toString('base64url')

  constructor(context: PoolLocksContext) {
    this.#context = context
  }

  /**
   * Takes the lock if nobody holds it.
   *
   * @param ttl how long it is held without `extend`, at least 1 ms
   * @returns `undefined` when somebody holds it
   */
  async acquire(key: string, ttl: Duration): Promise<Lock | undefined> {
    checkText(key, 'locks.acquire(key)', 512)
    const ms = parseTtl(ttl, 'locks.acquire(ttl)')
    const owner = `${this.#owner}.${++this.#owners}`
    const { tenant, clock, callTimeout } = this.#context
    const { locks } = await this.#context.storage()
    const call = <T>(answer: Promise<T>): Promise<T> =>
      withDeadline(answer, callTimeout, clock, `the lock ${key}`)
    const taken = await call(locks.acquire(tenant, key, owner, ms))
    if (taken === undefined) return undefined
    return {
      key,
      fence: taken.fence,
      extend: async (more) =>
        await call(locks.extend(tenant, key, owner, parseTtl(more, 'lock.extend(ttl)'))),
      release: () => call(locks.release(tenant, key, owner)),
    }
  }
}

/** Whole ms, as storages keep them. */
function parseTtl(ttl: Duration, option: string): number {
  return Math.ceil(parseDuration(ttl, option, { min: 1 }))
}
