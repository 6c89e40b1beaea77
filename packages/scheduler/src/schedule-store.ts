/**
 * The records of schedules: the one place where they are read and written.
 *
 * Every change of a record that exists is a compare-and-set here, repeated on what the record is by then. A record that
 * cannot be read is told once for each version of it and set aside, so that it neither stops the others nor comes back
 * with each lease.
 */
import {
  NeoTaskError,
  type DueReply,
  type Encoded,
  type Guard,
  type StoredRecord,
  type TaskRecord,
} from '@neotask/core'
import type { Tier } from '@neotask/core/tier'
import { createHash } from 'node:crypto'
import { idOf, keyPrefix, labelsOf, recordDueAt, type Schedule } from './schedule.js'
import { Definitions, parseSchedule, serialize } from './schedule-record.js'

/** Tries of a change before it is given up: each means that somebody else had changed the record. */
const TRIES = 50
/** ms of the longest pause between two of them. */
const PAUSE = 20
/** ms until a record that cannot be read is looked at again. Another version of the library may read it meanwhile. */
const ASIDE = 300_000
/** Records that were told of, at most; beyond it one may be told of again. */
const MOST_TOLD = 1000
/** Tasks that are asked for in one call. */
const MOST_ASKED = 500

/** A schedule with the version of its record. */
export interface Versioned {
  readonly schedule: Schedule
  readonly version: number
}

export interface Claim {
  /** Monotonic ms of this process before which it was not made. */
  readonly since: number
  readonly due: readonly Versioned[]
  /** The storage's time. */
  readonly now: number
  readonly nextDueIn: number | undefined
}

export class ScheduleStore {
  readonly #tier: Tier
  readonly #tenant: string
  readonly #prefix: string
  readonly #definitions = new Definitions()
  /** Of records that could not be read and were told of: the hashes of their values, by their keys. */
  readonly #told = new Map<string, string>()
  /** The storage's time, and the monotonic time of this process when it was told. */
  #time: { readonly now: number; readonly at: number } | undefined
  #asking: Promise<Claim> | undefined

  constructor(tier: Tier) {
    this.#tier = tier
    this.#tenant = tier.ref.tenant
    this.#prefix = keyPrefix(tier.ref.queue)
  }

  /** The storage's time, ms since 1970: asked for, since a machine that slept would take an old answer for a new one. */
  async now(): Promise<number> {
    // Many who ask at once share an answer.
    this.#asking ??= this.claim(0, 1).finally(() => (this.#asking = undefined))
    return (await this.#asking).now
  }

  /** ms from now to an instant of the storage's, good enough to sleep by; `undefined` while its time is not known at all. */
  delayTo(instant: number): number | undefined {
    if (this.#time === undefined) return undefined
    const age = this.#tier.clock.monotonic() - this.#time.at
    return instant - Math.floor(this.#time.now + age)
  }

  /** Takes due schedules for `lease` ms. */
  async claim(limit: number, lease: number): Promise<Claim> {
    const query = { prefix: this.#prefix, limit, leaseMs: lease }
    const since = this.#tier.clock.monotonic()
    const reply: DueReply = await this.#tier.call('claimDue', (storage) =>
      storage.records.claimDue(this.#tenant, query),
    )
    this.#time = { now: reply.now, at: this.#tier.clock.monotonic() }
    const due: Versioned[] = []
    for (const record of reply.records) {
      const schedule = this.#parse(record)
      if (schedule === undefined) await this.#setAside(record)
      else due.push({ schedule, version: record.version })
    }
    return { since, due, now: reply.now, nextDueIn: reply.nextDueIn }
  }

  /** Puts a schedule off with which something is wrong, and tells of it. */
  async setAside({ schedule, version }: Versioned, error: unknown): Promise<void> {
    const key = this.#key(schedule.id)
    const value = serialize(schedule)
    this.#tell(key, value, error)
    await this.#setAside({ key, value, version, labels: labelsOf(schedule.definition) })
  }

  /** Of the claim of a schedule: its tasks are stored only while it holds. */
  guardOf({ schedule, version }: Versioned): Guard {
    return { key: this.#key(schedule.id), version }
  }

  async #setAside({ key, value, version, labels }: StoredRecord): Promise<void> {
    const options = { ifVersion: version, labels, dueIn: ASIDE }
    await this.#tier
      .call('put', (storage) => storage.records.put(this.#tenant, key, value, options))
      // Then it comes back with its lease, and is put off then.
      .catch(() => {})
  }

  /** Puts many that were claimed, in one step. @returns which of them were changed by somebody else meanwhile */
  async putAll(items: readonly Versioned[]): Promise<boolean[]> {
    const puts = items.map(({ schedule, version }) => this.#put(schedule, version))
    const outcomes = await this.#tier.call('putAll', (storage) => storage.records.putAll(this.#tenant, puts))
    return outcomes.map((outcome) => outcome !== 'conflict')
  }

  /** @returns whether there was none with this id */
  async create(schedule: Schedule): Promise<boolean> {
    const { key, value, options } = this.#put(schedule, 0)
    const outcome = await this.#tier.call('put', (storage) =>
      storage.records.put(this.#tenant, key, value, options),
    )
    return outcome !== 'conflict'
  }

  #put(schedule: Schedule, version: number) {
    const dueAt = recordDueAt(schedule)
    return {
      key: this.#key(schedule.id),
      value: serialize(schedule, this.#definitions),
      options: {
        ifVersion: version,
        labels: labelsOf(schedule.definition),
        ...(dueAt !== undefined && { dueAt }),
      },
    }
  }

  /** The schedule. Rejects `STORAGE_FORMAT` when its record cannot be read. */
  async get(id: string): Promise<Versioned | undefined> {
    const record = await this.#tier.call('get', (storage) => storage.records.get(this.#tenant, this.#key(id)))
    return record && { schedule: parseSchedule(id, record.value, this.#definitions), version: record.version }
  }

  /**
   * Changes a schedule, however many others do so at the same time.
   *
   * @param edit what it is to be, given what it is; `undefined` leaves it. Called again for each try
   * @returns the schedule as it is afterwards, `undefined` when there is none
   */
  async change(
    id: string,
    edit: (schedule: Schedule) => Schedule | undefined,
  ): Promise<{ schedule: Schedule; isChanged: boolean } | undefined> {
    for (let tries = 1; ; tries++) {
      const found = await this.get(id)
      if (found === undefined) return undefined
      const changed = edit(found.schedule)
      if (changed === undefined) return { schedule: found.schedule, isChanged: false }
      const [isDone] = await this.putAll([{ schedule: changed, version: found.version }])
      if (isDone === true) return { schedule: changed, isChanged: true }
      if (tries >= TRIES) {
        throw new NeoTaskError('ILLEGAL_STATE', `schedule ${id}: others change it all the time`, {
          retryable: true,
        })
      }
      const pause = 1 + Math.random() * Math.min(PAUSE, tries)
      await new Promise<void>((resolve) => void this.#tier.clock.after(pause, resolve, { hold: true }))
    }
  }

  /** @returns whether there was one */
  async delete(id: string): Promise<boolean> {
    return await this.#tier.call('delete', (storage) => storage.records.delete(this.#tenant, this.#key(id)))
  }

  async list(query: {
    limit: number
    cursor: string | undefined
    label: string | undefined
  }): Promise<{ schedules: Schedule[]; cursor: string | undefined }> {
    const { limit, label } = query
    const cursor = query.cursor === undefined ? undefined : this.#key(query.cursor)
    const page = await this.#tier.call('list', (storage) =>
      storage.records.list(this.#tenant, { prefix: this.#prefix, limit, label, cursor }),
    )
    const schedules = page.records.map((record) => this.#parse(record)).filter((each) => each !== undefined)
    return { schedules, cursor: page.cursor?.slice(this.#prefix.length) }
  }

  /** The tasks of these ids; those that are unknown are not among them. */
  async tasks(ids: readonly string[]): Promise<Map<string, TaskRecord>> {
    const found = new Map<string, TaskRecord>()
    const unique = [...new Set(ids)]
    for (let start = 0; start < unique.length; start += MOST_ASKED) {
      const page = unique.slice(start, start + MOST_ASKED)
      const records = await this.#tier.call('get', (storage) => storage.queue.get(this.#tier.ref, page))
      for (const record of records) if (record !== undefined) found.set(record.id, record)
    }
    return found
  }

  #key(id: string): string {
    return this.#prefix + id
  }

  /** The schedule of a record among others; one that cannot be read is told of, once for each version. */
  #parse(record: StoredRecord): Schedule | undefined {
    try {
      return parseSchedule(idOf(record, this.#tier.ref.queue), record.value, this.#definitions)
    } catch (error) {
      this.#tell(record.key, record.value, error)
      return undefined
    }
  }

  #tell(key: string, value: Encoded, error: unknown): void {
    const hash = createHash('sha256').update(value).digest('base64')
    if (this.#told.get(key) === hash) return
    if (this.#told.size >= MOST_TOLD) this.#told.clear()
    this.#told.set(key, hash)
    this.#tier.trouble(error, 'schedules')
  }
}
