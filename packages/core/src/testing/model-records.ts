/** The model of records and locks. */
import assert from 'node:assert/strict'
import type { DueQuery, DueReply, PutOptions, StoredRecord } from '../storage.js'

const CLAIM_BYTES = 1024 * 1024

interface Kept {
  readonly value: string
  readonly version: number
  readonly labels: readonly string[]
  readonly dueAt: number | undefined
  readonly expiresAt: number | undefined
}

export class ModelRecords {
  readonly #kept = new Map<string, Kept>()
  /** The highest version that a record of the key has had. */
  readonly #versions = new Map<string, number>()
  readonly #locks = new Map<string, { owner: string; until: number }>()
  readonly #fences = new Map<string, number>()

  get(key: string, now: number): Kept | undefined {
    const kept = this.#kept.get(key)
    return kept !== undefined && (kept.expiresAt ?? Infinity) > now ? kept : undefined
  }

  keys(now: number): string[] {
    return [...this.#kept.keys()].filter((key) => this.get(key, now) !== undefined).sort()
  }

  put(key: string, value: string, options: PutOptions, now: number, answer: number | 'conflict'): void {
    const present = this.get(key, now)?.version
    const isConflict = options.ifVersion !== undefined && options.ifVersion !== (present ?? 0)
    assert.equal(answer === 'conflict', isConflict, `put of ${key}`)
    if (answer === 'conflict') return
    const last = this.#versions.get(key) ?? 0
    const isNext = present === undefined ? answer > last && answer >= now * 1000 : answer === present + 1
    assert.ok(isNext, `the version ${answer} of ${key}, after ${last}`)
    this.#versions.set(key, answer)
    this.#kept.set(key, {
      value,
      version: answer,
      labels: options.labels ?? [],
      dueAt: options.dueIn === undefined ? undefined : now + options.dueIn,
      expiresAt: options.expiresIn === undefined ? undefined : now + options.expiresIn,
    })
  }

  delete(key: string, ifVersion: number | undefined, now: number, answer: boolean): void {
    const kept = this.get(key, now)
    const isDone = kept !== undefined && (ifVersion === undefined || ifVersion === kept.version)
    assert.equal(answer, isDone, `delete of ${key}`)
    if (isDone) this.#kept.delete(key)
  }

  /** Longest due first; of those due at the same time, any. */
  claimDue(
    { prefix = '', limit, leaseMs, maxBytes = CLAIM_BYTES }: DueQuery,
    now: number,
    { records: answer, now: told, nextDueIn }: DueReply,
  ): void {
    assert.equal(told, now, 'the time')
    const dueAt = (key: string): number => this.get(key, now)?.dueAt ?? Infinity
    const due = this.keys(now).filter((key) => key.startsWith(prefix) && dueAt(key) <= now)
    const times = answer.map(({ key }) => (due.includes(key) ? dueAt(key) : Infinity))
    const expected = due.map(dueAt).sort((a, b) => a - b)
    assert.deepEqual(times, expected.slice(0, answer.length), 'which due records are claimed')
    const sizeOf = (key: string): number => this.get(key, now)?.value.length ?? 0
    const room = answer.reduce((left, { key }) => left - sizeOf(key), maxBytes)
    assert.ok(answer.length <= limit && (room >= 0 || answer.length <= 1), 'too many due records are claimed')
    const claimed = new Set(answer.map(({ key }) => key))
    const first = due.filter((key) => !claimed.has(key) && dueAt(key) === expected[answer.length])
    const mayStop = answer.length === limit || (claimed.size > 0 && first.some((key) => sizeOf(key) > room))
    assert.ok(first.length === 0 || mayStop, `${first[0]} is due, and not claimed`)
    for (const key of claimed) {
      const kept = this.get(key, now) as Kept
      this.#kept.set(key, { ...kept, version: kept.version + 1, dueAt: now + leaseMs })
      this.#versions.set(key, kept.version + 1)
    }
    this.check(answer, now)
    const next = Math.min(
      ...this.keys(now)
        .filter((key) => key.startsWith(prefix))
        .map(dueAt),
    )
    const expectedIn = next === Infinity ? undefined : Math.max(0, next - now)
    assert.equal(nextDueIn, expectedIn, 'when the next record is due')
  }

  check(records: readonly StoredRecord[], now: number): void {
    for (const { key, value, version, labels, dueAt, expiresAt } of records) {
      const got = { value, version, labels: [...labels], dueAt, expiresAt }
      assert.deepEqual(got, { ...this.get(key, now) }, `the record ${key}`)
    }
  }

  acquire(key: string, owner: string, ttl: number, now: number, answer: { fence: number } | undefined): void {
    const isHeld = (this.#locks.get(key)?.until ?? 0) > now
    assert.equal(answer === undefined, isHeld, `acquire of ${key}`)
    if (answer === undefined) return
    const last = this.#fences.get(key) ?? 0
    assert.ok(answer.fence > last && answer.fence >= now * 1000, `fence ${answer.fence} of ${key}`)
    this.#fences.set(key, answer.fence)
    this.#locks.set(key, { owner, until: now + ttl })
  }

  extend(key: string, owner: string, ttl: number, now: number, answer: boolean): void {
    const isHeld = this.#holds(key, owner, now)
    assert.equal(answer, isHeld, `extend of ${key}`)
    if (isHeld) this.#locks.set(key, { owner, until: now + ttl })
  }

  release(key: string, owner: string, now: number, answer: boolean): void {
    const isHeld = this.#holds(key, owner, now)
    assert.equal(answer, isHeld, `release of ${key}`)
    if (isHeld) this.#locks.delete(key)
  }

  #holds(key: string, owner: string, now: number): boolean {
    const lock = this.#locks.get(key)
    return lock !== undefined && lock.owner === owner && lock.until > now
  }
}
