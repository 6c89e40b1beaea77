/** Records and locks of the memory storage. */
import { checkPut } from './checks.js'
import { encodedSize } from './codec.js'
import { CLAIM_BYTES } from './memory-claim.js'
import { keepBytes } from './memory-task.js'
import { PriorityQueue } from './priority-queue.js'
import type {
  DueQuery,
  DueReply,
  Encoded,
  LocksFace,
  PutOptions,
  RecordPut,
  RecordQuery,
  RecordsFace,
  StoredRecord,
} from './storage.js'

const MAX_PAGE = 500
/** Other records of a group among which the next of a prefix is looked for. */
const MAX_LOOK = 100
/** Records whose end has passed that one write removes. */
const PRUNE_LIMIT = 20
const SLACK = 512

/** The records of one tenant. A change replaces the object, so an entry of an old one in a queue is known to be dead. */
class Tenant {
  readonly byKey = new Map<string, StoredRecord>()
  /** By groups of keys. */
  readonly byDue = new Map<string, PriorityQueue<StoredRecord>>()
  readonly byEnd = new PriorityQueue<StoredRecord>()
  #sorted: string[] | undefined
  /** The highest version of a record that was removed. */
  #removed = 0

  get(key: string, now: number): StoredRecord | undefined {
    const record = this.byKey.get(key)
    return record !== undefined && (record.expiresAt ?? Infinity) > now ? record : undefined
  }

  set(record: StoredRecord): void {
    if (!this.byKey.has(record.key)) this.#sorted = undefined
    this.byKey.set(record.key, record)
    if (record.dueAt !== undefined) this.#pushDue(record.dueAt, record)
    if (record.expiresAt !== undefined) this.byEnd.push(record.expiresAt, record)
    this.#tidy(this.byEnd)
  }

  /** The version of a record that is made, perhaps anew: beyond all that one of its key may have had. */
  firstVersion(key: string, now: number): number {
    const last = Math.max(this.#removed, this.byKey.get(key)?.version ?? 0)
    return Math.max(last + 1, Math.floor(now * 1000))
  }

  delete(key: string): void {
    const record = this.byKey.get(key)
    if (record === undefined) return
    this.#removed = Math.max(this.#removed, record.version)
    this.byKey.delete(key)
    this.#sorted = undefined
  }

  prune(now: number): void {
    for (let left = PRUNE_LIMIT; left > 0 && (this.byEnd.peekKey() ?? Infinity) <= now; left--) {
      const record = this.byEnd.pop() as StoredRecord
      if (this.byKey.get(record.key) === record) this.delete(record.key)
    }
  }

  #pushDue(dueAt: number, record: StoredRecord): void {
    const group = groupOf(record.key)
    let queue = this.byDue.get(group)
    if (queue === undefined) this.byDue.set(group, (queue = new PriorityQueue()))
    queue.push(dueAt, record)
    this.#tidy(queue)
  }

  /** The due records of the prefix, longest due first, and ms until the next one behind them; takes nothing out. */
  due(prefix: string, most: number, now: number): { due: StoredRecord[]; nextDueIn: number | undefined } {
    const due: StoredRecord[] = []
    let next = Infinity
    for (const [group, queue] of this.#groups(prefix)) {
      const seen: StoredRecord[] = []
      let others = 0
      let found = 0
      for (let record = queue.peek(); record !== undefined; record = queue.peek()) {
        const dueAt = record.dueAt as number
        if (this.get(record.key, now) === record) {
          const isOwn = record.key.startsWith(prefix)
          const isLast = dueAt > now && (isOwn || ++others === MAX_LOOK)
          if (isLast) next = Math.min(next, dueAt - now)
          if (isLast || found > most) break
          if (isOwn) {
            found++
            due.push(record)
          }
          seen.push(record)
        }
        queue.pop()
      }
      for (const record of seen) queue.push(record.dueAt as number, record)
      if (queue.size === 0) this.byDue.delete(group)
    }
    due.sort((one, other) => (one.dueAt as number) - (other.dueAt as number))
    return { due, nextDueIn: next === Infinity ? undefined : next }
  }

  #groups(prefix: string): (readonly [string, PriorityQueue<StoredRecord>])[] {
    const own = groupOf(prefix)
    if (own === '') return [...this.byDue].filter(([group]) => group === '' || group.startsWith(prefix))
    const queue = this.byDue.get(own)
    return queue === undefined ? [] : [[own, queue]]
  }

  /** All keys in order. */
  keys(): readonly string[] {
    return (this.#sorted ??= [...this.byKey.keys()].sort())
  }

  #tidy(queue: PriorityQueue<StoredRecord>): void {
    if (queue.size > 2 * this.byKey.size + SLACK)
      queue.compact((record) => this.byKey.get(record.key) === record)
  }
}

export class MemoryRecords implements RecordsFace {
  readonly #now: () => number
  readonly #tenants = new Map<string, Tenant>()

  constructor(now: () => number) {
    this.#now = now
  }

  async get(tenant: string, key: string): Promise<StoredRecord | undefined> {
    return this.#tenant(tenant).get(key, this.#now())
  }

  /** The version of the record, `undefined` when there is none. */
  versionOf(tenant: string, key: string): number | undefined {
    return this.#tenant(tenant).get(key, this.#now())?.version
  }

  async put(
    tenant: string,
    key: string,
    value: Encoded,
    options: PutOptions = {},
  ): Promise<number | 'conflict'> {
    checkPut(options)
    return this.#put(tenant, key, value, options, this.#now())
  }

  async putAll(tenant: string, puts: readonly RecordPut[]): Promise<(number | 'conflict')[]> {
    for (const [index, { options }] of puts.entries()) checkPut(options, `puts[${index}].options.`)
    const now = this.#now()
    return puts.map(({ key, value, options = {} }) => this.#put(tenant, key, value, options, now))
  }

  #put(tenant: string, key: string, value: Encoded, options: PutOptions, now: number): number | 'conflict' {
    const records = this.#tenant(tenant)
    const present = records.get(key, now)?.version
    if (options.ifVersion !== undefined && options.ifVersion !== (present ?? 0)) return 'conflict'
    records.prune(now)
    const version = present === undefined ? records.firstVersion(key, now) : present + 1
    records.set({
      key,
      value: keepBytes(value),
      version,
      labels: [...(options.labels ?? [])],
      dueAt: options.dueAt ?? (options.dueIn === undefined ? undefined : now + options.dueIn),
      expiresAt: options.expiresIn === undefined ? undefined : now + options.expiresIn,
    })
    return version
  }

  async delete(tenant: string, key: string, options: { ifVersion?: number } = {}): Promise<boolean> {
    const records = this.#tenant(tenant)
    const record = records.get(key, this.#now())
    if (record === undefined) return false
    if (options.ifVersion !== undefined && options.ifVersion !== record.version) return false
    records.delete(key)
    return true
  }

  async list(tenant: string, query: RecordQuery): Promise<{ records: StoredRecord[]; cursor?: string }> {
    const now = this.#now()
    const records = this.#tenant(tenant)
    records.prune(now)
    const { prefix = '', label, cursor } = query
    const limit = Math.max(1, Math.min(query.limit, MAX_PAGE))
    const keys = records.keys()
    const found: StoredRecord[] = []
    for (let i = firstAfter(keys, prefix, cursor); i < keys.length; i++) {
      const key = keys[i] as string
      if (!key.startsWith(prefix)) break
      const record = records.get(key, now)
      if (record === undefined || (label !== undefined && !record.labels.includes(label))) continue
      if (found.length === limit) return { records: found, cursor: (found[limit - 1] as StoredRecord).key }
      found.push(record)
    }
    return { records: found }
  }

  async claimDue(tenant: string, query: DueQuery): Promise<DueReply> {
    const now = this.#now()
    const records = this.#tenant(tenant)
    const { prefix = '', limit, leaseMs, maxBytes = CLAIM_BYTES } = query
    const { due, nextDueIn } = records.due(prefix, limit, now)
    const claimed: StoredRecord[] = []
    let bytes = maxBytes
    for (const record of due) {
      bytes -= encodedSize(record.value)
      if (claimed.length >= limit || (bytes < 0 && claimed.length > 0)) break
      const leased = { ...record, version: record.version + 1, dueAt: now + leaseMs }
      records.set(leased)
      claimed.push(leased)
    }
    if (due.length > claimed.length) return { records: claimed, now, nextDueIn: 0 }
    // Those that were taken are due again with the end of their lease.
    const isLease = claimed.length > 0 && (nextDueIn ?? Infinity) > leaseMs
    return { records: claimed, now, nextDueIn: isLease ? leaseMs : nextDueIn }
  }

  /** Puts a record from within another step. */
  set(tenant: string, key: string, value: string, expiresIn: number): void {
    void this.put(tenant, key, value, { expiresIn })
  }

  #tenant(tenant: string): Tenant {
    let records = this.#tenants.get(tenant)
    if (records === undefined) this.#tenants.set(tenant, (records = new Tenant()))
    return records
  }
}

/** What the key begins with, up to its first `/`; empty when it has none. */
const groupOf = (key: string): string => key.slice(0, key.indexOf('/') + 1)

/** Where a page begins: by halving. */
function firstAfter(keys: readonly string[], prefix: string, cursor: string | undefined): number {
  let low = 0
  let high = keys.length
  while (low < high) {
    const middle = (low + high) >> 1
    const key = keys[middle] as string
    if (key < prefix || (cursor !== undefined && key <= cursor)) low = middle + 1
    else high = middle
  }
  return low
}

interface Lock {
  readonly owner: string
  readonly until: number
}

export class MemoryLocks implements LocksFace {
  readonly #now: () => number
  readonly #held = new Map<string, Lock>()
  /** One row of numbers for all locks: each lock's own numbers grow all the more. */
  #lastFence = 0

  constructor(now: () => number) {
    this.#now = now
  }

  async acquire(
    tenant: string,
    key: string,
    owner: string,
    ttl: number,
  ): Promise<{ fence: number } | undefined> {
    const now = this.#now()
    const name = nameOf(tenant, key)
    if ((this.#held.get(name)?.until ?? -Infinity) > now) return undefined
    this.#held.set(name, { owner, until: now + ttl })
    this.#lastFence = Math.max(this.#lastFence + 1, now * 1_000)
    return { fence: this.#lastFence }
  }

  async extend(tenant: string, key: string, owner: string, ttl: number): Promise<boolean> {
    const name = nameOf(tenant, key)
    if (!this.#isHeld(name, owner)) return false
    this.#held.set(name, { owner, until: this.#now() + ttl })
    return true
  }

  async release(tenant: string, key: string, owner: string): Promise<boolean> {
    const name = nameOf(tenant, key)
    return this.#isHeld(name, owner) && this.#held.delete(name)
  }

  #isHeld(name: string, owner: string): boolean {
    const lock = this.#held.get(name)
    return lock !== undefined && lock.owner === owner && lock.until > this.#now()
  }
}

/** A tenant's name cannot run into a key's: its length stands first. */
const nameOf = (tenant: string, key: string): string => `${tenant.length}:${tenant}${key}`
